"""Two builds of this broker: instructions per message, counted by valgrind.

    python -m pip install --no-deps --no-build-isolation --target BEFORE .     # in the older checkout
    python benchmarks/instructions.py BEFORE [--only latency,flood-4] [--check]

Instructions are the same on a busy machine and an idle one, where seconds are not: a change of one
percent shows in one run. They leave out the kernel, caches and branches, so this goes beside
`before_after.py`, not in its place. A broker runs each work twice, the second time with twice the
messages; the difference is what the messages cost, without start and stop. With --check the exit code
is 1 where a ratio is above 1.05.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from brokers import free_port

import timebound
from timebound.bench.handshake import LoadConnection, open_connections
from timebound.bench.options import LoadOptions
from timebound.errors import ConnectError
from timebound.wire.codec import Decoder, encode
from timebound.wire.packet_types import PUBACK
from timebound.wire.packets import (
    Ack,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
)
from timebound.wire.properties import Properties

RATIO_MAX: Final = 1.05
START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 120.0
CHUNK: Final = 500
TOPIC: Final = "bench/instructions"
# Counting starts and ends with the process; a hash seed would move dictionaries from run to run.
TOOL: Final = ("valgrind", "--tool=callgrind", "--callgrind-out-file=counts")

Work = Callable[[int, int], None]  # port, messages


def connect(port: int, names: list[str]) -> list[LoadConnection]:
    return open_connections(LoadOptions(port=port, mqtt_version=5, timeout_s=60.0), names)


def receive(sock: socket.socket, decoder: Decoder) -> list[Packet]:
    """Wait for more, and return what is complete."""
    data = sock.recv(65_536)
    if not data:
        raise RuntimeError("the broker closed a connection")
    return decoder.feed(data)


def receive_all(sock: socket.socket, decoder: Decoder, kind: type, count: int) -> None:
    """Read until `count` packets of a kind have come."""
    while count > 0:
        count -= sum(isinstance(packet, kind) for packet in receive(sock, decoder))


def flood(publishers: int) -> Work:
    """Messages that nobody subscribes to, from some clients at the same time."""

    def run(port: int, messages: int) -> None:
        connections = connect(port, [f"flood-{number}" for number in range(publishers)])
        data = encode(Publish(TOPIC, b"x" * 64), 5) * CHUNK
        for _ in range(messages // CHUNK // publishers):
            for connection in connections:
                connection.sock.sendall(data)
        for connection in connections:
            connection.sock.sendall(encode(Pingreq(), 5))
            receive_all(connection.sock, Decoder(5, is_server=False), Pingresp, 1)
            connection.sock.close()

    return run


def passing(qos: int, at_once: int, deadline: str = "") -> Work:
    """Messages from one client to another, so many at once before the next are sent."""

    def run(port: int, messages: int) -> None:
        publisher, subscriber = connect(port, ["publisher", "subscriber"])
        received, answers = Decoder(5, is_server=False), Decoder(5, is_server=False)
        terms = Properties()
        if deadline:
            terms.user_properties = [("deadline", deadline)]
        subscriber.sock.sendall(encode(Subscribe(1, [SubscribeEntry(TOPIC, qos)], terms), 5))
        receive_all(subscriber.sock, received, Suback, 1)
        ids = range(1, at_once + 1) if qos else [0] * at_once
        data = b"".join(encode(Publish(TOPIC, b"x" * 64, qos=qos, packet_id=number), 5) for number in ids)
        for _ in range(messages // at_once):
            publisher.sock.sendall(data)
            left = at_once
            while left > 0:
                left -= take_messages(subscriber.sock, received)
            if qos:
                receive_all(publisher.sock, answers, Ack, at_once)
        for connection in (publisher, subscriber):
            connection.sock.close()

    return run


def take_messages(sock: socket.socket, decoder: Decoder) -> int:
    """Receive some messages, acknowledge those of QoS 1, and return how many they were."""
    messages = [packet for packet in receive(sock, decoder) if isinstance(packet, Publish)]
    acks = b"".join(encode(Ack(PUBACK, message.packet_id), 5) for message in messages if message.qos)
    if acks:
        sock.sendall(acks)
    return len(messages)


WORKS: Final[dict[str, tuple[Work, int]]] = {
    "flood-1": (flood(1), 100_000),
    "flood-4": (flood(4), 100_000),
    "latency": (passing(0, 1), 5_000),
    "deadline": (passing(0, 1, "1s"), 5_000),
    "qos0-1to1": (passing(0, 100), 50_000),
    "qos1-1to1": (passing(1, 10), 10_000),
}


def instructions(packages: str, work: Work, messages: int) -> int:
    """Run a broker under valgrind for one work, and return what it executed from start to stop."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        port = free_port()
        serve = ["-m", "timebound", "serve", "--port", str(port), "--memory"]
        environment = os.environ | {"PYTHONPATH": packages, "PYTHONHASHSEED": "1"}
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*TOOL, sys.executable, *serve],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=folder,
            )
        try:
            wait_ready(port, process)
            work(port, messages)
        finally:
            process.terminate()
            process.wait(STOP_S_MAX)
        said = log.read_text(errors="replace")
        found = re.search(r"Collected : (\d+)", said)
        if found is None:
            raise RuntimeError(
                f"valgrind counted nothing; it said:\n{log.read_text(errors='replace')[-2000:]}"
            )
        return int(found[1])


def wait_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S_MAX
    while True:
        try:
            connect(port, ["ready"])[0].sock.close()
            return
        except ConnectError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.2)


def cost(packages: str, name: str) -> float:
    """Return the instructions of one message."""
    work, messages = WORKS[name]
    return (instructions(packages, work, 2 * messages) - instructions(packages, work, messages)) / messages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", help="folder with the older build")
    parser.add_argument("--only", default=",".join(WORKS), help="works, with commas")
    parser.add_argument(
        "--check", action="store_true", help=f"exit with 1 where a ratio is above {RATIO_MAX}"
    )
    given = parser.parse_args()
    names = given.only.split(",")
    unknown = [name for name in names if name not in WORKS]
    if unknown:
        parser.error(f"unknown work {unknown[0]!r}; expected one of {', '.join(WORKS)}")
    if shutil.which(TOOL[0]) is None:
        parser.error("valgrind is not installed (Debian: valgrind)")
    after = str(Path(timebound.__file__).parent.parent)
    is_met = True
    print(f"{'instructions per message':<26} {'before':>9} {'after':>9} {'ratio':>6}", flush=True)
    for name in names:
        before, now = cost(given.before, name), cost(after, name)
        print(f"{name:<26} {before:>9.0f} {now:>9.0f} {now / before:>6.3f}", flush=True)
        is_met = is_met and now <= RATIO_MAX * before
    return 1 if given.check and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
