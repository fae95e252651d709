"""How fast the simulator is: two-hour runs of both papers, events per second, one core.

    python benchmarks/simulation.py            all four
    python benchmarks/simulation.py 002        the small mesh only
    python benchmarks/simulation.py --json 002

Compiled it should stay below 3 s for 002 at rate 15 and 30 s for 001 at rate 5.
"""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from timebound.sim.papers.grid import Job, run_job
from timebound.version import is_compiled

RUNS = (
    ("002", "psd", 15.0, "eb", -1.0),
    ("002", "psd", 15.0, "timebound", -1.0),
    ("001", "net", 5.0, "mtep", 0.4),
    ("001", "net", 5.0, "timebound", -1.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of the simulator")
    parser.add_argument("papers", nargs="*", metavar="PAPER", help="001 or 002; without: both")
    parser.add_argument("--json", action="store_true", help="print processor time per event instead")
    given = parser.parse_args()
    papers = given.papers or sorted({run[0] for run in RUNS})
    unknown = [name for name in papers if name not in {run[0] for run in RUNS}]
    if unknown:
        parser.error(f"unknown paper {unknown[0]!r}; expected 001 or 002")
    table = Table(title=f"two simulated hours ({'compiled' if is_compiled() else 'plain Python'})")
    for name in ("paper", "rate", "strategy", "events", "CPU s", "events/s"):
        table.add_column(name, justify="right")
    costs = {}
    for paper, scenario, rate, strategy, weight in RUNS:
        if paper not in papers:
            continue
        row = run_job(Job(paper, 8 if paper == "001" else 6, scenario, rate, strategy, weight, 1))
        costs[f"simulation {paper} {strategy}"] = row.seconds * 1e6 / row.events
        speed = f"{row.events / row.seconds:,.0f}"
        table.add_row(paper, f"{rate:g}", strategy, f"{row.events:,}", f"{row.seconds:.2f}", speed)
    if given.json:
        print(json.dumps(costs))
    else:
        Console().print(table)


if __name__ == "__main__":
    main()
