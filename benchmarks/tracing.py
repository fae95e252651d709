"""What full tracing costs: throughput with a record for every pair against none, in one run.

Three brokers take turns under the same load: without a trace, with `[trace] enabled = true`, and without
again, which shows how far two that are alike differ here. The speed of a shared machine changes by half
from one second to the next, so turns are short and many, connections stay open from one to the next, and
what counts is the median of the ratios within a round, with the middle half of them beside it. Two processes
of the same program also differ by some percent for as long as they live, by where their memory happens
to lie: every few rounds all begin anew.

Who does not have the turn is stopped (SIGSTOP), so that the process that writes a trace does not work in
another's time; a turn is as long as it waits between two pieces of work (`COLLECT_S`), so that each turn
bears just one of them. Nothing of a turn is left out.

Processor time a message of the broker, and of the process that writes its trace, is steadier than
throughput; where a processor is to spare that process does not cost throughput. Last comes what the
account of a delivery takes by itself: without a trace, a flag that is looked at is all there is of one.

    python benchmarks/tracing.py [--starts 5] [--rounds 4] [--turn 0.5] [--json] [--check]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from timebound.bench.load import LoadRun
from timebound.bench.options import LoadOptions
from timebound.core.account.account import Account
from timebound.core.link.scheduling import DEFAULT_SCHEDULING
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.core.values.trace_columns import TraceHint
from timebound.demo.brokers import Contender, running
from timebound.node.trace.pack import TracePacks
from timebound.node.trace.writer import COLLECT_S
from timebound.version import is_compiled

RATIO_MIN = 0.85  # tracing may cost at most 15 % of throughput
FILE_WIDTH = 150
# The account alone: a batch as the broker hands them on, and how often; the least counts.
BATCH = 32
BATCHES = 500
TRIES = 40
PLAIN, TRACED, PLAIN_AGAIN = SIDES = ("no trace", "full trace", "no trace again")


@dataclass(slots=True)
class Side:
    """What one broker did with one load, turn by turn."""

    received_per_s: list[float] = field(default_factory=list)
    cpu_ns: list[float] = field(default_factory=list)  # a message received


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some ratios, and the middle half of them."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: list[float], others: list[float]) -> Spread:
        ratios = [value / other for value, other in zip(values, others, strict=True)]
        return cls(*statistics.quantiles(ratios, n=4, method="inclusive"))

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(slots=True)
class Work:
    """One load, and what each broker did with it."""

    name: str
    options: LoadOptions
    sides: dict[str, Side] = field(default_factory=lambda: {name: Side() for name in SIDES})

    def ratio(self, side: str = TRACED) -> Spread:
        return Spread.of(self.sides[side].received_per_s, self.sides[PLAIN].received_per_s)

    def cpu_ratio(self) -> Spread:
        return Spread.of(self.sides[TRACED].cpu_ns, self.sides[PLAIN].cpu_ns)


class SteadyLoad(LoadRun):
    """A load that goes on from one turn to the next."""

    def open(self) -> None:
        self._connect_subscribers()
        self._connect_publishers()
        self._start_publishers()

    def run_turn(self, duration_s: float) -> tuple[int, float]:
        """Send and receive for so long; gives what was received, and how long it was in the end."""
        before = self._snapshot()
        self._run_until(before.time_ns + int(duration_s * 1e9), before.time_ns)
        after = self._snapshot()
        return after.received - before.received, (after.time_ns - before.time_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker that works only when it is let."""

    name: str
    port: int
    process_ids: list[int]  # the broker itself first

    def cpu_ns(self) -> int:
        """Processor time of all its threads: of the clocks that clock_getcpuclockid(3) names."""
        return sum(time.clock_gettime_ns(~process_id << 3 | 2) for process_id in self.process_ids)

    def signal(self, number: int) -> None:
        for process_id in self.process_ids:
            os.kill(process_id, number)

    @contextlib.contextmanager
    def has_turn(self) -> Iterator[None]:
        self.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.signal(signal.SIGSTOP)


@contextlib.contextmanager
def started(name: str, config: str) -> Iterator[Broker]:
    """Start a broker and stop it in its tracks; in the end it may go on, to write what it has."""
    before = _children(os.getpid())
    with running(Contender(name, DEFAULT_SCHEDULING.name, config)) as port:
        [process_id] = _children(os.getpid()) - before
        broker = Broker(name, port, [process_id, *_children(process_id)])
        broker.signal(signal.SIGSTOP)
        try:
            yield broker
        finally:
            broker.signal(signal.SIGCONT)


def _children(process_id: int) -> set[int]:
    tasks = Path(f"/proc/{process_id}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def make_works() -> list[Work]:
    base = LoadOptions(size=64, mqtt_version=4)
    return [
        Work("1 to 1, QoS 0", base),
        Work("1 to 10, QoS 0", replace(base, subscribers=10)),
        # No two records that follow each other have their topic or their subscription in common.
        Work("1 to 1, 1,000 topics in turn", replace(base, topics=1_000)),
    ]


def measure(works: list[Work], starts: int, rounds: int, turn_s: float, console: Console) -> int:
    """Run all works in turns, with new brokers so many times; gives the bytes of trace written."""
    trace_bytes = 0
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=starts * rounds * len(works))
        for start in range(starts):
            with contextlib.ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tracing-")))
                config = f'[trace]\nenabled = true\npath = "{folder}"\n'
                names = SIDES if start % 2 else SIDES[::-1]
                brokers = [
                    stack.enter_context(started(name, config if name == TRACED else "")) for name in names
                ]
                for work in works:
                    progress.update(task, description=work.name)
                    with loaded(brokers, work.options) as loads:
                        # One round more, to get under way.
                        for number in range(-1, rounds):
                            run_round(work, loads, number, turn_s)
                            progress.advance(task, int(number >= 0))
                trace_bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return trace_bytes


@contextlib.contextmanager
def loaded(brokers: list[Broker], options: LoadOptions) -> Iterator[list[tuple[Broker, SteadyLoad]]]:
    """Give every broker the same load, which waits as the brokers do."""
    gc.disable()  # the loads make no cycles; a collection would only add a pause
    loads = [(broker, SteadyLoad(replace(options, port=broker.port))) for broker in brokers]
    try:
        for broker, load in loads:
            with broker.has_turn():
                load.open()
        yield loads
    finally:
        for broker, load in loads:
            with broker.has_turn():
                load.close()
        gc.enable()


def run_round(work: Work, loads: list[tuple[Broker, SteadyLoad]], number: int, turn_s: float) -> None:
    # Whoever goes first finds another machine than who goes last: in turns, forwards and backwards.
    for broker, load in loads if number % 2 else reversed(loads):
        with broker.has_turn():
            cpu_ns = broker.cpu_ns()
            received, measured_s = load.run_turn(turn_s)
            cpu_ns = broker.cpu_ns() - cpu_ns
        if number < 0:
            continue
        side = work.sides[broker.name]
        side.received_per_s.append(received / measured_s)
        side.cpu_ns.append(cpu_ns / max(received, 1))


def account_ns(*, is_tracing: bool, topics: int = 1) -> float:
    """Processor time that the account takes for one delivery of a batch, records packed if there are any."""
    subscription = Subscription(client_id="reader", topic_filter="#")
    hints = [TraceHint() for _ in range(topics)]
    deliveries = []
    for number in range(BATCH):
        topic = number % topics
        message = Message(f"topic/{topic:02}", bytes(64), 0, False, 1, "publisher", sequence=number)
        message.trace_hint = hints[topic]
        deliveries.append(Delivery(message, 0, False, subscription=subscription))
    account = Account()
    account.is_tracing = is_tracing
    least_ns = math.inf
    for _ in range(TRIES):
        packs = TracePacks()
        before_ns = time.thread_time_ns()
        for _ in range(BATCHES):
            account.delivered_now("reader", deliveries, 0, 2)
            if is_tracing:
                packs.add(account.trace.take())
        least_ns = min(least_ns, time.thread_time_ns() - before_ns)
    return least_ns / BATCHES / BATCH


def table_of(works: list[Work], rounds: int) -> Table:
    how = "compiled" if is_compiled() else "plain Python"
    table = Table(title=f"Medians of {rounds} rounds, ratios with their middle half ({how})")
    headings = (
        "work",
        "no trace /s",
        "full trace /s",
        "ratio",
        "no trace again",
        "CPU ns",
        "traced",
        "ratio ",
    )
    for heading in headings:
        table.add_column(heading.strip(), justify="left" if heading == "work" else "right")
    for work in works:
        plain, traced = work.sides[PLAIN], work.sides[TRACED]
        table.add_row(
            work.name,
            f"{statistics.median(plain.received_per_s):,.0f}",
            f"{statistics.median(traced.received_per_s):,.0f}",
            str(work.ratio()),
            str(work.ratio(PLAIN_AGAIN)),
            f"{statistics.median(plain.cpu_ns):,.0f}",
            f"{statistics.median(traced.cpu_ns):,.0f}",
            str(work.cpu_ratio()),
        )
    return table


def as_json(work: Work) -> dict[str, Any]:
    return {
        "work": work.name,
        "ratio": work.ratio().median,
        "ratio_no_trace_again": work.ratio(PLAIN_AGAIN).median,
        "cpu_ratio": work.cpu_ratio().median,
        "received_per_s": {name: side.received_per_s for name, side in work.sides.items()},
        "cpu_ns": {name: side.cpu_ns for name, side in work.sides.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=5, help="how often brokers are started")
    parser.add_argument("--rounds", type=int, default=4, help="for each start; eight in all at least")
    parser.add_argument("--turn", type=float, default=COLLECT_S, help="seconds of each broker in a round")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a ratio is below the bar")
    arguments = parser.parse_args()
    works = make_works()
    console = Console(stderr=True)
    trace_bytes = measure(works, arguments.starts, arguments.rounds, arguments.turn, console)
    plain_ns, traced_ns = account_ns(is_tracing=False), account_ns(is_tracing=True)
    in_turn_ns = account_ns(is_tracing=True, topics=BATCH)
    if arguments.json:
        found = {
            "compiled": is_compiled(),
            "account_ns": {PLAIN: plain_ns, TRACED: traced_ns, "topics in turn": in_turn_ns},
            "trace_bytes": trace_bytes,
            "works": [as_json(work) for work in works],
        }
        print(json.dumps(found, indent=2))
    else:
        width = None if sys.stdout.isatty() else FILE_WIDTH
        console = Console(width=width)
        console.print(table_of(works, arguments.starts * arguments.rounds))
        console.print(
            f"account of a delivery: {plain_ns:.1f} ns without a trace, {traced_ns:.1f} ns with one, "
            f"{in_turn_ns:.1f} ns where topics take turns"
        )
    return int(arguments.check and any(work.ratio().median < RATIO_MIN for work in works))


if __name__ == "__main__":
    sys.exit(main())
