"""The same work against this broker and others, in one run, with ratios.

    python benchmarks/compare.py                    all works, three rounds, about five minutes
    python benchmarks/compare.py --quick --only qos0-1to1,latency
    python benchmarks/compare.py --pure             also this broker uncompiled

Brokers run as processes on this machine, one works while the others are idle. Works are
interleaved: every round runs every work against every broker in turn, and ratios are taken
within a round, so a machine that gets slower or faster for a while does not favour one of
them. What is shown is the median of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final

from brokers import Kind, RunningBroker, find_kinds, running
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from timebound.bench.load import run_load
from timebound.bench.options import LoadOptions, LoadResult
from timebound.bench.report import describe, format_latency, warnings
from timebound.bench.selftest import self_test

YARDSTICK: Final = "mosquitto"
OURS: Final = "timebound"
PURE: Final = "timebound-pure"
LATENCY_RATIO_MAX: Final = 1.3
TITLE: Final = (
    "Same work, same machine, medians of all rounds; in parentheses the median of the ratios to Mosquitto"
)
FILE_WIDTH: Final = 150  # of the table where no terminal says how wide it is

Show = Callable[[float], str]
Row = tuple[str, str, Show]  # value of a run, its label, how it is written


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work, and how many times the yardstick's throughput we have to reach."""

    name: str
    options: LoadOptions
    ratio_min: float = 0.0  # compiled; 0 = its latency is judged instead
    ratio_min_pure: float = 1.0
    repeats: int = 1  # in each round

    @property
    def is_latency(self) -> bool:
        return self.options.total_rate > 0


@dataclass(frozen=True, slots=True)
class Run:
    """What one broker did with one work in one round."""

    result: LoadResult
    cpu_s: float  # of the broker, from the first connection to the last

    @property
    def cpu_us_per_message(self) -> float:
        handled = self.result.sent + self.result.received
        return self.cpu_s * 1e6 / handled if handled else 0.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise and whether it was kept."""

    text: str
    ratio: float
    is_met: bool


def make_works(*, mqtt_version: int, duration_s: float, warmup_s: float, window: int) -> list[Work]:
    base = LoadOptions(
        mqtt_version=mqtt_version, duration_s=duration_s, warmup_s=warmup_s, window=window, size=64
    )
    four = replace(base, publishers=4, subscribers=4, topics=4)
    return [
        Work("qos0-1to1", base, 4.0),
        Work("qos0-4to4", four, 4.0),
        Work("qos0-1to10", replace(base, subscribers=10), 4.0),
        Work("qos1-1to1", replace(base, qos=1), 2.0),
        Work("qos1-4to4", replace(four, qos=1), 2.0),
        # The far end of a latency is what a busy machine disturbs most: more and shorter runs.
        Work("latency", replace(base, rate=1000.0, duration_s=duration_s / 2), repeats=4),
    ]


class Comparison:
    """All runs, by work and broker, and what follows from them."""

    def __init__(self, works: list[Work], kinds: list[Kind]) -> None:
        self.works = works
        self.kinds = kinds
        self.runs: dict[tuple[str, str], list[Run]] = {}
        self.ceilings: dict[str, LoadResult] = {}
        self.failed: list[str] = []  # brokers that did not start
        self.memory: dict[str, tuple[int, int]] = {}  # RSS idle before the first work, and its maximum

    def add(self, work: Work, broker: RunningBroker) -> None:
        before_s = broker.cpu_s()
        result = run_load(replace(work.options, port=broker.port))
        self.runs.setdefault((work.name, broker.kind.name), []).append(Run(result, broker.cpu_s() - before_s))

    def median(self, work: Work, kind: str, value: str) -> float:
        return statistics.median(measure(run, value) for run in self.runs[work.name, kind])

    def ratio(self, work: Work, kind: str, value: str) -> float:
        """Return the median over the rounds of this broker's value against the yardstick's."""
        pairs = zip(self.runs[work.name, kind], self.runs[work.name, YARDSTICK], strict=True)
        return statistics.median(
            measure(ours, value) / max(measure(theirs, value), 1e-9) for ours, theirs in pairs
        )

    def bars(self) -> list[Bar]:
        """Return every promise that this run can judge."""
        names = [kind.name for kind in self.kinds]
        if YARDSTICK not in names:
            return []
        found = []
        for kind in self.kinds:
            if kind.name not in (OURS, PURE):
                continue
            for work in self.works:
                if not work.is_latency:
                    found.append(self._throughput_bar(work, kind))
                elif kind.is_compiled:
                    found += [self._latency_bar(work, kind, value) for value in ("median_ns", "p99_ns")]
        return found

    def _throughput_bar(self, work: Work, kind: Kind) -> Bar:
        least = work.ratio_min if kind.is_compiled else work.ratio_min_pure
        ratio = self.ratio(work, kind.name, "received_per_s")
        how = "compiled" if kind.is_compiled else "uncompiled"
        return Bar(f"{work.name}, {how}: at least {least:g}x Mosquitto", ratio, ratio >= least)

    def _latency_bar(self, work: Work, kind: Kind, value: str) -> Bar:
        ratio = self.ratio(work, kind.name, value)
        what = "median" if value == "median_ns" else "99th percentile"
        text = f"{work.name} {what}, compiled: at most {LATENCY_RATIO_MAX:g}x Mosquitto"
        return Bar(text, ratio, ratio <= LATENCY_RATIO_MAX)


def measure(run: Run, value: str) -> float:
    """Return one value of a run by name."""
    if value == "received_per_s":
        return run.result.received_per_s
    if value == "loss":
        return run.result.loss
    if value == "cpu_us_per_message":
        return run.cpu_us_per_message
    if run.result.latency is None:
        return float("inf")  # nothing arrived
    return float(getattr(run.result.latency, value))


def run_all(comparison: Comparison, *, rounds: int, window: int, console: Console) -> None:
    """Start every broker, run all works in rounds, and stop the brokers."""
    with contextlib.ExitStack() as stack:
        brokers = start_all(comparison, stack, window, console)
        idle = {broker.kind.name: broker.rss_bytes() for broker in brokers}
        progress = stack.enter_context(Progress(console=console, transient=True))
        turns = [
            (number, number + repeat, work)
            for number in range(rounds)
            for work in comparison.works
            for repeat in range(work.repeats)
        ]
        steps = len(comparison.works) + len(turns) * len(brokers)
        task = progress.add_task("", total=steps)
        for work in comparison.works:
            progress.update(task, description=f"generator alone: {work.name}")
            comparison.ceilings[work.name] = self_test(work.options)
            progress.advance(task)
        for number, first, work in turns:
            # Whoever goes first finds a cooler machine: take turns.
            for broker in rotate(brokers, first):
                label = f"round {number + 1}/{rounds}: {work.name} on {broker.kind.name}"
                progress.update(task, description=label)
                comparison.add(work, broker)
                progress.advance(task)
        for broker in brokers:
            comparison.memory[broker.kind.name] = (idle[broker.kind.name], broker.rss_bytes_max())


def start_all(
    comparison: Comparison, stack: contextlib.ExitStack, window: int, console: Console
) -> list[RunningBroker]:
    """Start the brokers; one that does not start is named and left out."""
    brokers = []
    for kind in list(comparison.kinds):
        try:
            brokers.append(stack.enter_context(running(kind, window=window)))
        except RuntimeError as error:
            console.print(f"[red]{kind.name} is left out:[/red] {error}")
            comparison.kinds.remove(kind)
            comparison.failed.append(kind.name)
    return brokers


def rotate(brokers: list[RunningBroker], by: int) -> list[RunningBroker]:
    by %= max(1, len(brokers))
    return brokers[by:] + brokers[:by]


def comparison_table(comparison: Comparison) -> Table:
    table = Table(title=TITLE, title_justify="left")
    table.add_column("work", no_wrap=True)
    table.add_column("value", no_wrap=True)
    for kind in comparison.kinds:
        table.add_column(kind.name, justify="right")
    table.add_column("generator alone", justify="right")
    for work in comparison.works:
        for value, label, show in rows_of(work):
            cells = [cell(comparison, work, kind.name, value, show) for kind in comparison.kinds]
            ceiling = Run(comparison.ceilings[work.name], 0.0)
            alone = "" if value in ("loss", "cpu_us_per_message") else show(measure(ceiling, value))
            table.add_row(work.name if value in ("received_per_s", "median_ns") else "", label, *cells, alone)
        table.add_section()
    for index, label in enumerate(("memory idle", "memory at most")):
        cells = [f"{comparison.memory[kind.name][index] / 1e6:.1f} MB" for kind in comparison.kinds]
        table.add_row("all" if index == 0 else "", label, *cells, "")
    return table


def rows_of(work: Work) -> list[Row]:
    cost: Row = ("cpu_us_per_message", "broker CPU", "{:.2f} µs/msg".format)
    if work.is_latency:
        return [
            ("median_ns", "median", format_value_ns),
            ("p99_ns", "99 %", format_value_ns),
            ("p999_ns", "99.9 %", format_value_ns),
            cost,
        ]
    return [
        ("received_per_s", "received/s", "{:,.0f}".format),
        ("loss", "loss", "{:.2%}".format),
        cost,
    ]


def format_value_ns(value: float) -> str:
    return "nothing arrived" if value == float("inf") else format_latency(int(value))


def cell(comparison: Comparison, work: Work, kind: str, value: str, show: Show) -> str:
    text = show(comparison.median(work, kind, value))
    if kind == YARDSTICK or value == "loss" or (work.name, YARDSTICK) not in comparison.runs:
        return text
    return f"{text} ({comparison.ratio(work, kind, value):.2f}x)"


def print_all(comparison: Comparison, console: Console) -> None:
    """Print machine, brokers, table, bars, and what to be careful about."""
    console.print(f"{os.cpu_count()} processors; load average {os.getloadavg()[0]:.1f}")
    for kind in comparison.kinds:
        console.print(f"{kind.name}: {kind.version}")
    for work in comparison.works:
        console.print(f"{work.name}: {describe(work.options)}")
    console.print(comparison_table(comparison))
    for bar in comparison.bars():
        verdict = "[green]pass[/green]" if bar.is_met else "[red]FAIL[/red]"
        console.print(f"{verdict}  {bar.text}: {bar.ratio:.2f}x")
    for (work_name, kind_name), runs in comparison.runs.items():
        for warning in sorted({each for run in runs for each in warnings(run.result)}):
            console.print(f"[yellow]note[/yellow]  {work_name} on {kind_name}: {warning}")


def as_values(comparison: Comparison) -> dict[str, object]:
    """Return everything as plain values for JSON."""
    works = []
    for work in comparison.works:
        for kind in comparison.kinds:
            values = {
                value: comparison.median(work, kind.name, value)
                for value in (
                    "received_per_s",
                    "loss",
                    "cpu_us_per_message",
                    "median_ns",
                    "p99_ns",
                    "p999_ns",
                )
            }
            ratios = {}
            if (work.name, YARDSTICK) in comparison.runs:
                names = ("received_per_s", "cpu_us_per_message", "median_ns", "p99_ns")
                ratios = {name: comparison.ratio(work, kind.name, name) for name in names}
            works.append(
                {"work": work.name, "broker": kind.name, **values, f"ratio_to_{YARDSTICK}": ratios}
                | {
                    "received_per_s_by_round": [
                        run.result.received_per_s for run in comparison.runs[work.name, kind.name]
                    ]
                }
            )
    return {
        "processors": os.cpu_count(),
        "brokers": [asdict(kind) for kind in comparison.kinds],
        "generator_alone": {name: result.received_per_s for name, result in comparison.ceilings.items()},
        "runs": works,
        "memory_bytes": {
            name: {"idle": idle, "max": most} for name, (idle, most) in comparison.memory.items()
        },
        "bars": [asdict(bar) for bar in comparison.bars()],
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: an impression, not a result")
    parser.add_argument("--only", default="", help="works, with commas: qos0-1to1,latency")
    parser.add_argument("--brokers", default="timebound,mosquitto,nats", help="with commas")
    parser.add_argument("--pure", action="store_true", help="also run this broker uncompiled")
    parser.add_argument("--rounds", type=int, default=0, help="default 3, or 1 with --quick")
    parser.add_argument("--duration", type=float, default=0.0, help="measured seconds; default 3, or 1")
    parser.add_argument(
        "--mqtt", choices=("3.1.1", "5"), default="3.1.1", help="default 3.1.1, which all speak"
    )
    parser.add_argument("--window", type=int, default=1000, help="messages in flight, QoS 1; default 1000")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is not met")
    return parser.parse_args()


def chosen_works(arguments: argparse.Namespace) -> list[Work]:
    works = make_works(
        mqtt_version=5 if arguments.mqtt == "5" else 4,
        duration_s=arguments.duration or (1.0 if arguments.quick else 3.0),
        warmup_s=0.3 if arguments.quick else 1.0,
        window=arguments.window,
    )
    only = [name for name in arguments.only.split(",") if name]
    unknown = [name for name in only if name not in [work.name for work in works]]
    if unknown:
        raise ValueError(f"work {unknown[0]!r} is unknown ({', '.join(work.name for work in works)})")
    return [work for work in works if not only or work.name in only]


def chosen_kinds(arguments: argparse.Namespace, console: Console) -> list[Kind]:
    names = [name for name in arguments.brokers.split(",") if name]
    if arguments.pure and PURE not in names:
        names.insert(1, PURE)
    version = 5 if arguments.mqtt == "5" else 4
    kept = []
    for kind in find_kinds(names):
        reason = kind.missing or (
            "" if version in kind.mqtt_versions else f"does not speak MQTT {arguments.mqtt}"
        )
        if reason:
            console.print(f"[yellow]{kind.name} is left out: {reason}[/yellow]")
        else:
            kept.append(kind)
    return kept


def main() -> int:
    arguments = parse_arguments()
    console = Console(stderr=arguments.json, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=arguments.json, highlight=False, width=FILE_WIDTH)
    try:
        comparison = Comparison(chosen_works(arguments), chosen_kinds(arguments, console))
    except ValueError as error:
        console.print(f"[red]error:[/red] {error}")
        return 2
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    run_all(comparison, rounds=rounds, window=arguments.window, console=console)
    if arguments.json:
        print(json.dumps(as_values(comparison), indent=2))
    else:
        print_all(comparison, console)
    is_bar_missed = arguments.check and not all(bar.is_met for bar in comparison.bars())
    return int(is_bar_missed or bool(comparison.failed))


if __name__ == "__main__":
    sys.exit(main())
