"""What taking messages in by weight costs the broker, in one process and without sockets.

    python benchmarks/input_node.py [--json]

Publishers' packets are handed to real connections in pieces as sockets would bring them, and written to
one subscriber each. `plain` decodes and handles every piece at once, as if there were no input
queues; `input` is the broker as it runs: alone, a publisher passes straight through; several
go through the queues. Processor time of one thread, best of some rounds taken in turns, so that
other work on the machine hits both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from timebound.config.input import InputConfig
from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.values import Config
from timebound.core.broker import Broker
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.node.clients.connection import SHARED_READ_BYTES, Connection
from timebound.node.clients.handshake import Door
from timebound.node.driver import Driver
from timebound.node.storage.storage import NoStorage
from timebound.version import is_compiled
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connect, Publish, Subscribe, SubscribeEntry

ROUNDS: Final = 60
PIECES: Final = 8
PAYLOAD: Final = b"x" * 64
FOR_EVER_NS: Final = 1 << 62
# The bar of issue 3: with one active client, what the scheduling may take of the throughput.
LOSS_MAX: Final = 0.15


class Sink:
    """A transport that takes everything."""

    def __init__(self) -> None:
        self.bytes_written = 0

    def write(self, data: bytes) -> None:
        self.bytes_written += len(data)

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None


class Rig:
    """A broker with some publishers, a topic and a subscriber for each."""

    def __init__(self, publishers: int, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> None:
        broker = Broker(BrokerLimits(), AccessList([]))
        self.driver = Driver(broker, NoStorage(), Limits(), loop, InputConfig())
        door = Door(ListenerConfig(), Config(), self.driver, AccessList([]), None, pool)
        self.publishers = []
        piece = SHARED_READ_BYTES if publishers > 1 else 64 * 1024
        self.pieces = []
        for number in range(publishers):
            subscriber = self._open(door, f"s{number}")
            subscriber.data_received(encode(Subscribe(1, [SubscribeEntry(f"t/{number}")]), 5))
            self.publishers.append(self._open(door, f"p{number}"))
            packet = encode(Publish(f"t/{number}", PAYLOAD), 5)
            self.pieces.append(packet * (piece // len(packet)))
        self.messages = sum(len(data) // len(packet) for data in self.pieces)

    def _open(self, door: Door, name: str) -> Connection:
        connection = Connection(self.driver, door)
        connection.connection_made(Sink())
        connection.data_received(encode(Connect(name), 5))
        self.driver.turn()
        return connection

    def plain(self) -> None:
        decoders = [Decoder(is_server=True) for _ in self.publishers]
        for decoder in decoders:
            decoder.feed(encode(Connect("x"), 5))
        for _ in range(PIECES):
            for decoder, connection, data in zip(decoders, self.publishers, self.pieces, strict=True):
                now_ns = self.driver.now_ns()
                connection._packets = decoder.feed(bytes(memoryview(data)))
                connection.pass_through(now_ns, FOR_EVER_NS)
            self.driver.turn()

    def input(self) -> None:
        for _ in range(PIECES):
            for connection, data in zip(self.publishers, self.pieces, strict=True):
                connection.data_received(bytes(memoryview(data)))
            self.driver.turn()
            while self.driver.input.has_more():
                self.driver.turn()


def measure(publishers: int) -> dict[str, Any]:
    """Nanoseconds of processor time a message, plain and through the input."""
    loop = asyncio.new_event_loop()
    pool = ThreadPoolExecutor(1)
    rig = Rig(publishers, loop, pool)
    best = {"plain": 1e18, "input": 1e18}
    for _ in range(ROUNDS):
        for name, run in (("plain", rig.plain), ("input", rig.input)):
            started = time.thread_time_ns()
            run()
            best[name] = min(best[name], (time.thread_time_ns() - started) / (PIECES * rig.messages))
    rig.driver.stop()
    pool.shutdown()
    loop.close()
    return {
        "publishers": publishers,
        "plain_ns": round(best["plain"]),
        "input_ns": round(best["input"]),
        "throughput_lost": round(1 - best["plain"] / best["input"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args().json
    rows = [measure(publishers) for publishers in (1, 4)]
    if as_json:
        print(json.dumps({"compiled": is_compiled(), "loss_max": LOSS_MAX, "rows": rows}, indent=2))
        return
    print(f"{'compiled' if is_compiled() else 'uncompiled'}; CPU time a message, in ns")
    print(f"{'publishers':>10} {'plain':>8} {'input':>8} {'lost':>7}")
    for row in rows:
        lost = row["throughput_lost"]
        print(f"{row['publishers']:>10} {row['plain_ns']:>8} {row['input_ns']:>8} {lost:>7.1%}")


if __name__ == "__main__":
    main()
