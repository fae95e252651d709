"""What full tracing costs: throughput with a record for every pair against none, in one run.

Two brokers run side by side, one with `[trace] enabled = true`, and take turns under the same load, so
that the machine's mood is the same for both: turns are short and many, because that mood changes from
one second to the next. What counts is the median ratio of the pairs.

    python benchmarks/tracing.py [--rounds 11] [--duration 0.7] [--json] [--check]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from timebound.bench.load import run_load
from timebound.bench.options import LoadOptions
from timebound.core.scheduling import DEFAULT_SCHEDULING
from timebound.demo.brokers import Contender, running
from timebound.version import is_compiled

RATIO_MIN = 0.85  # tracing may cost at most 15 % of throughput
FILE_WIDTH = 110


@dataclass(slots=True)
class Work:
    """One load, and the received messages a second without and with a trace, round by round."""

    name: str
    options: LoadOptions
    plain: list[float] = field(default_factory=list)
    traced: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        return statistics.median(
            traced / plain for traced, plain in zip(self.traced, self.plain, strict=True)
        )


def make_works(duration_s: float) -> list[Work]:
    base = LoadOptions(duration_s=duration_s, warmup_s=0.5, size=64, mqtt_version=4)
    return [Work("1 to 1, QoS 0", base), Work("1 to 10, QoS 0", replace(base, subscribers=10))]


def measure(works: list[Work], rounds: int, console: Console) -> int:
    """Run all works in turns; gives the bytes of trace written."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tracing-")))
        config = f'[trace]\nenabled = true\npath = "{folder}"\n'
        default = DEFAULT_SCHEDULING.name
        plain = stack.enter_context(running(Contender("plain", default)))
        traced = stack.enter_context(running(Contender("traced", default, config)))
        progress = stack.enter_context(Progress(console=console, transient=True))
        task = progress.add_task("", total=rounds * len(works) * 2)
        for number in range(rounds):
            for work in works:
                turns = [(plain, work.plain), (traced, work.traced)]
                # Whoever goes first finds a cooler machine: take turns.
                for port, found in turns if number % 2 else reversed(turns):
                    progress.update(task, description=f"round {number + 1}: {work.name}")
                    found.append(run_load(replace(work.options, port=port)).received_per_s)
                    progress.advance(task)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--duration", type=float, default=0.7, help="measured seconds of each load")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a ratio is below the bar")
    arguments = parser.parse_args()
    works = make_works(arguments.duration)
    screen = Console(stderr=True)
    trace_bytes = measure(works, arguments.rounds, screen)
    if arguments.json:
        rows = [
            {"work": work.name, "plain": work.plain, "traced": work.traced, "ratio": work.ratio()}
            for work in works
        ]
        print(json.dumps({"compiled": is_compiled(), "trace_bytes": trace_bytes, "works": rows}, indent=2))
    else:
        how = "compiled" if is_compiled() else "plain Python"
        table = Table(title=f"Received a second, medians of {arguments.rounds} rounds ({how})")
        for heading in ("work", "no trace", "full trace", "ratio"):
            table.add_column(heading, justify="left" if heading == "work" else "right")
        for work in works:
            plain, traced = statistics.median(work.plain), statistics.median(work.traced)
            table.add_row(work.name, f"{plain:,.0f}", f"{traced:,.0f}", f"{work.ratio():.3f}")
        Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
    return int(arguments.check and any(work.ratio() < RATIO_MIN for work in works))


if __name__ == "__main__":
    sys.exit(main())
