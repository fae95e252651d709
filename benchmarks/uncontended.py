"""What the default strategy adds to a message that meets no queue: latency against `fifo`.

One message at a time goes through a broker to a subscriber; nothing ever waits. The brokers run side
by side and take turns, message blocks in random order, so that the machine's mood is the same for all.
`no deadline` is a subscriber that asks for nothing: the difference is what a deadline itself costs
(the link is measured, the age is told).

    python benchmarks/uncontended.py [--blocks 40] [--messages 100] [--json] [--check]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import statistics
import sys
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from timebound.demo.brokers import ours, running
from timebound.version import is_compiled
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Packet, Publish, Suback, Subscribe, SubscribeEntry
from timebound.wire.properties import Properties

RATIO_MAX = 1.05  # of the median, default against fifo: what a busy machine lets one tell apart
TIMEOUT_S = 10.0
FILE_WIDTH = 110


class Peer:
    """A blocking MQTT 5 connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(5, is_server=False)
        self.send(Connect("", 5, True, 0, None, None, None, None))
        self.expect(Connack)

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, 5))

    def expect(self, kind: type[Packet]) -> None:
        while True:
            for packet in self._decoder.feed(self.socket.recv(65_536)):
                if not isinstance(packet, kind):
                    raise RuntimeError(f"expected {kind.__name__}, got {packet}")
                return


@dataclass(slots=True)
class Case:
    """One broker, a publisher and a subscriber, and the latencies found."""

    name: str
    publisher: Peer
    subscriber: Peer
    latencies_ns: list[int] = field(default_factory=list)

    def run(self, messages: int) -> None:
        frame = encode(Publish("t", bytes(64), 0, False, False, 0), 5)
        for _ in range(messages):
            started_ns = time.perf_counter_ns()
            self.publisher.socket.sendall(frame)
            self.subscriber.expect(Publish)
            self.latencies_ns.append(time.perf_counter_ns() - started_ns)

    def quantile_us(self, part: float) -> float:
        ordered = sorted(self.latencies_ns)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)] / 1_000


def open_case(stack: contextlib.ExitStack, name: str, strategy: str, deadline: str) -> Case:
    port = stack.enter_context(running(ours(strategy)))
    publisher, subscriber = Peer(port), Peer(port)
    for peer in (publisher, subscriber):
        stack.callback(peer.socket.close)
    properties = Properties()
    if deadline:
        properties.user_properties = [("deadline", deadline)]
    subscriber.send(Subscribe(1, [SubscribeEntry("t", 0)], properties))
    subscriber.expect(Suback)
    return Case(name, publisher, subscriber)


def measure(blocks: int, messages: int, console: Console) -> list[Case]:
    with contextlib.ExitStack() as stack:
        cases = [
            open_case(stack, "fifo", "fifo", "10s"),
            open_case(stack, "worth (default)", "worth", "10s"),
            open_case(stack, "worth, no deadline", "worth", ""),
        ]
        for case in cases:
            case.run(messages)
            case.latencies_ns.clear()
        source = random.Random(1)
        progress = stack.enter_context(Progress(console=console, transient=True))
        for _ in progress.track(range(blocks), description="message by message"):
            for case in source.sample(cases, len(cases)):
                case.run(messages)
        return cases


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--messages", type=int, default=100, help="in each block")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the bar is missed")
    arguments = parser.parse_args()
    cases = measure(arguments.blocks, arguments.messages, Console(stderr=True))
    ratio = cases[1].quantile_us(0.5) / cases[0].quantile_us(0.5)
    if arguments.json:
        rows = [
            {
                "case": case.name,
                "median_us": case.quantile_us(0.5),
                "p99_us": case.quantile_us(0.99),
                "mean_us": statistics.fmean(case.latencies_ns) / 1_000,
            }
            for case in cases
        ]
        print(json.dumps({"compiled": is_compiled(), "cases": rows, "ratio_of_medians": ratio}, indent=2))
    else:
        how = "compiled" if is_compiled() else "plain Python"
        table = Table(title=f"Publisher to subscriber, {len(cases[0].latencies_ns):,} messages each ({how})")
        for heading in ("case", "median", "99 %", "of fifo's median"):
            table.add_column(heading, justify="left" if heading == "case" else "right")
        for case in cases:
            share = case.quantile_us(0.5) / cases[0].quantile_us(0.5)
            median, far = case.quantile_us(0.5), case.quantile_us(0.99)
            table.add_row(case.name, f"{median:.1f} µs", f"{far:.1f} µs", f"{share:.3f}")
        Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
    return int(arguments.check and ratio > RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())
