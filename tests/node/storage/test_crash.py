"""A real process that writes, and is killed with SIGKILL again and again."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from timebound.core.values.store_orders import Snapshot
from timebound.core.values.subscription import Subscription
from timebound.node.storage.storage import Storage

NOW_NS = 1_700_000_000_000_000_000
KEPT = 20  # batch n puts delivery n and drops delivery n - KEPT
ROUNDS = 5

WRITER = """
import os, sys, threading
from pathlib import Path
from timebound.core.values.store_orders import DropDelivery, DropMessage, PutDelivery, PutMessage, PutSession
from timebound.core.values.message import Delivery, Message
from timebound.node.storage.storage import Storage

def acknowledge(number):
    os.write(1, b"%d\\n" % number)
    unacknowledged.release()

path, first, kept, fsync = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
unacknowledged = threading.Semaphore(100)
storage = Storage.open(path, None, fsync=fsync)
storage.submit([PutSession("c", 60, 0, "")], lambda: None)
for number in range(first, first + 1_000_000):
    message = Message("t", b"%d" % number * 10, 1, False, number, sequence=number)
    orders = [PutMessage(message), PutDelivery("c", Delivery(message, 1, False, sequence=number))]
    orders += [DropDelivery("c", number - kept), DropMessage(number - kept)]
    assert unacknowledged.acquire(timeout=10)
    storage.submit(orders, lambda number=number: acknowledge(number))
"""


def plain_subscription(*, client_id: str, topic_filter: str, **options: object) -> Subscription:
    return Subscription(client_id=client_id, topic_filter=topic_filter)


def write_until_killed(path: Path, first: int, acknowledgements: int, fsync: bool) -> int:
    """Kill the writer after so many acknowledgements; return the last one it has sent out."""
    arguments = [str(path), str(first), str(KEPT), str(fsync)]
    with subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(acknowledgements)]
        child.kill()
        lines += child.stdout.readlines()
    numbers = [int(line) for line in lines if line.endswith(b"\n")]
    assert numbers == list(range(first, first + len(numbers)))
    return numbers[-1]


def load(path: Path) -> Snapshot:
    with Storage.open(path, plain_subscription) as storage:
        return storage.load(NOW_NS)


@pytest.mark.parametrize("fsync", [True, False])
def test_everything_acknowledged_survives_kill(tmp_path: Path, fsync: bool) -> None:
    moments = random.Random(20260)
    first = 1
    for _ in range(ROUNDS):
        last = write_until_killed(tmp_path, first, moments.randint(1, 300), fsync)

        snapshot = load(tmp_path)

        (session,) = snapshot.sessions
        found = [delivery.sequence for delivery in session.deliveries]
        # Later batches may be on disk as well, but whole and without a gap.
        newest = found[-1]
        assert newest >= last
        assert found == list(range(max(1, newest - KEPT + 1), newest + 1))
        assert [d.message.payload for d in session.deliveries] == [b"%d" % n * 10 for n in found]
        assert snapshot.sequence_max == newest
        first = newest + 1
