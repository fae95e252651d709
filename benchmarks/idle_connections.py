"""What an idle connection costs: the memory of a broker before and after many of them.

    python benchmarks/idle_connections.py                         10,000 against this broker
    python benchmarks/idle_connections.py --broker mosquitto --connections 5000
    python benchmarks/idle_connections.py --subscribe             each with one subscription

The connections are held by a process of their own, so its memory and descriptors do not count.
Processes inherit the limit on open files, which is raised here as far as the system allows.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from brokers import RunningBroker, find_kinds, running
from rich.console import Console

from timebound.bench.handshake import LoadConnection, read_connack, subscribe
from timebound.errors import ConnectError
from timebound.wire.codec import encode
from timebound.wire.packets import Connect

RSS_BYTES_MAX: Final = 400_000_000  # the bar, for 10,000 connections
BAR_CONNECTIONS: Final = 10_000
PORTS_PER_ADDRESS: Final = 20_000  # of the 28,000 that Linux gives out by default
SPARE_FILES: Final = 200  # what a broker opens besides its connections
BATCH: Final = 200  # handshakes under way at a time: less than a listener's backlog
OPEN_S_MAX: Final = 300.0
SETTLE_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class IdleCost:
    """What one measurement found."""

    broker: str
    connections: int
    has_subscriptions: bool
    rss_bytes_before: int
    rss_bytes_after: int
    opening_s: float

    @property
    def rss_bytes_per_connection(self) -> float:
        return (self.rss_bytes_after - self.rss_bytes_before) / self.connections

    @property
    def is_met(self) -> bool:
        """Say whether the bar is kept; it grows with the number of connections, if there are more."""
        return self.rss_bytes_after <= RSS_BYTES_MAX * max(1.0, self.connections / BAR_CONNECTIONS)


def raise_file_limit() -> int:
    """Allow this process and its children as many open files as the system lets us; return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def hold_connections(port: int, count: int, *, with_subscription: bool) -> None:
    """Open the connections, say so on standard output, and hold them until standard input ends."""
    held: list[LoadConnection] = []
    for first in range(0, count, BATCH):
        batch = [open_idle(port, number) for number in range(first, min(first + BATCH, count))]
        for connection in batch:
            read_connack(connection)
        if with_subscription:
            filters = [[f"idle/{connection.name}/+"] for connection in batch]
            subscribe(batch, filters, qos=0, version=4)
        held += batch
    print(len(held), flush=True)
    sys.stdin.read()


def open_idle(port: int, number: int) -> LoadConnection:
    # A source address has a limited number of ports; the loopback network has many addresses.
    source = f"127.0.0.{1 + number // PORTS_PER_ADDRESS}"
    try:
        sock = socket.create_connection(("127.0.0.1", port), timeout=30.0, source_address=(source, 0))
    except OSError as error:
        raise ConnectError(f"connection {number} failed ({error})") from error
    name = f"idle-{number}"
    sock.sendall(encode(Connect(name, 4, keep_alive=0), 4))
    return LoadConnection(sock, name, 4)


def wait_settled(broker: RunningBroker) -> int:
    """Return the broker's memory once it has not changed for half a second."""
    end = time.monotonic() + SETTLE_S_MAX
    last = broker.rss_bytes()
    while time.monotonic() < end:
        time.sleep(0.5)
        now = broker.rss_bytes()
        if now == last:
            break
        last = now
    return last


def measure(name: str, count: int, *, with_subscription: bool) -> IdleCost:
    """Start the broker and the holder; return memory before and after, and what the bar says."""
    kind = find_kinds([name])[0]
    if kind.missing:
        raise ValueError(f"{name} is {kind.missing}")
    with running(kind) as broker:
        before = wait_settled(broker)
        start = time.monotonic()
        command = [sys.executable, __file__, "--hold", str(broker.port), "--connections", str(count)]
        command += ["--subscribe"] if with_subscription else []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdin is not None
            opened = int(holder.stdout.readline() or 0)
            opening_s = time.monotonic() - start
            after = wait_settled(broker)
            holder.stdin.close()
            holder.wait(OPEN_S_MAX)
    if opened != count:
        raise ValueError(f"only {opened} of {count} connections were opened")
    return IdleCost(kind.version, opened, with_subscription, before, after, opening_s)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=BAR_CONNECTIONS)
    parser.add_argument("--broker", default="timebound", help="timebound, timebound-pure, mosquitto or nats")
    parser.add_argument("--subscribe", action="store_true", help="each connection subscribes to one filter")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--hold", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    console = Console(stderr=arguments.json, highlight=False)
    files = raise_file_limit()
    if arguments.hold:
        hold_connections(arguments.hold, arguments.connections, with_subscription=arguments.subscribe)
        return 0
    if arguments.connections + SPARE_FILES > files:
        console.print(
            f"[red]error:[/red] {arguments.connections} connections need more than {files} open files"
        )
        return 2
    try:
        found = measure(arguments.broker, arguments.connections, with_subscription=arguments.subscribe)
    except (ValueError, RuntimeError) as error:
        console.print(f"[red]error:[/red] {error}")
        return 1
    if arguments.json:
        derived = {"rss_bytes_per_connection": found.rss_bytes_per_connection, "is_met": found.is_met}
        print(json.dumps(asdict(found) | derived, indent=2))
    else:
        show(found, console)
    return 0 if found.is_met or arguments.broker not in ("timebound", "timebound-pure") else 1


def show(found: IdleCost, console: Console) -> None:
    console.print(
        f"{found.broker}: {found.connections:,} idle connections, opened in {found.opening_s:.1f} s"
    )
    before, after = found.rss_bytes_before / 1e6, found.rss_bytes_after / 1e6
    console.print(f"memory before {before:.1f} MB, after {after:.1f} MB")
    console.print(f"per connection {found.rss_bytes_per_connection / 1e3:.1f} kB")
    verdict = "[green]pass[/green]" if found.is_met else "[red]FAIL[/red]"
    console.print(f"{verdict}  at most {RSS_BYTES_MAX / 1e6:.0f} MB for {BAR_CONNECTIONS:,} connections")


if __name__ == "__main__":
    sys.exit(main())
