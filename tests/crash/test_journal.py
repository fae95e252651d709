"""A broker killed between the journal and the storage: a QoS 2 message stands once in the journal.

Another program locks the database, so that the broker has the message in its journal and cannot write
the packet id; there it is killed with SIGKILL.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.conftest import BrokerProcess, StartOver
from tests.peer import Peer, join, props
from timebound.core.sessions.session import PUBCOMP, PUBREC, PUBREL
from timebound.node.journal.log import JournalLog
from timebound.wire.packets import Ack, Publish, Will

CONFIG = """\
[flight]
enabled = false
[[journals]]
name = "all"
filter = "kept/#"
[[journals]]
name = "some"
filter = "kept/2"
"""
LASTING = props(session_expiry_interval=600)
WAIT_S = 10.0


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Keep the broker from writing to its storage."""
    with closing(sqlite3.connect(data / "timebound.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def wait_journaled(data: Path, payload: bytes) -> None:
    """Wait until both journals have a payload on disk."""
    end_s = time.monotonic() + WAIT_S
    for name in ("all", "some"):
        while not any(payload in part.read_bytes() for part in (data / "journals" / name).glob("*.log")):
            assert time.monotonic() < end_s, f"journal {name!r} has not got {payload!r}"
            time.sleep(0.01)


def rows_of(broker: BrokerProcess, name: str) -> list[bytes]:
    """The payloads in a journal of a broker that has stopped."""
    from timebound.node.journal.rows import message_schema

    folder = broker.data / "journals" / name
    log = JournalLog(folder, message_schema(), bytes_max=1 << 30, age_max_s=3_600, fsync=False)
    try:
        pieces = [batch for _, _, batch in log.read(0, log.next_offset) if batch is not None]
        return [payload for batch in pieces for payload in batch["payload"].to_pylist()]
    finally:
        log.close()


def come_back(broker: BrokerProcess) -> Peer:
    peer = Peer(broker.port)
    assert peer.connect("publisher", clean=False, properties=LASTING).session_present
    return peer


def finish(peer: Peer, packet_id: int) -> None:
    """See a QoS 2 message through, from its PUBREC on."""
    answer = peer.expect(Ack)
    assert (answer.kind, answer.packet_id, answer.reason_code) == (PUBREC, packet_id, 0)
    peer.send(Ack(PUBREL, packet_id))
    assert peer.expect(Ack).kind == PUBCOMP


@pytest.mark.parametrize("kills", [1, 2])
def test_a_message_sent_again_after_a_kill_stands_once_in_every_journal(
    start_over: StartOver, kills: int
) -> None:
    broker = start_over(CONFIG)
    data = broker.data
    with join(broker.port, "reader", properties=LASTING) as reader:
        reader.subscribe("kept/#", qos=2)
    with join(broker.port, "publisher", properties=LASTING) as publisher:
        publisher.publish("kept/2", b"before", 2)
        finish(publisher, 1)
        with locked(data):
            publisher.send(Publish("kept/2", b"in between", 2, packet_id=2))
            wait_journaled(data, b"in between")
            broker.kill()
    for _ in range(kills - 1):  # the publisher is slower than the next kill
        start_over(CONFIG, data).kill()

    broker = start_over(CONFIG, data)
    with come_back(broker) as publisher:
        publisher.send(Publish("kept/2", b"in between", 2, dup=True, packet_id=2))
        finish(publisher, 2)
        publisher.send(Publish("kept/2", b"in between", 2, packet_id=3))  # the same again, but a new message
        finish(publisher, 3)
    with Peer(broker.port) as reader:
        reader.connect("reader", clean=False, properties=LASTING)
        for payload in (b"before", b"in between", b"in between"):
            reader.expect_publish("kept/2", payload)
        reader.expect_silence()
    assert broker.stop() == 0
    for name in ("all", "some"):
        assert rows_of(broker, name) == [b"before", b"in between", b"in between"]


def test_a_will_published_again_after_a_kill_stands_once_in_every_journal(start_over: StartOver) -> None:
    broker = start_over(CONFIG)
    data = broker.data
    doomed = join(broker.port, "publisher", will=Will("kept/2", b"last will", 2), properties=LASTING)
    with locked(data):
        doomed.close()
        wait_journaled(data, b"last will")
        broker.kill()

    broker = start_over(CONFIG, data)

    assert broker.stop() == 0
    assert rows_of(broker, "all") == [b"last will"]
