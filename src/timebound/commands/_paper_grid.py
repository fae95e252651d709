"""Run the grid of a paper as a sweep on Spark, or in processes where Spark is not installed."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timebound.commands._screen import progress_bar, screen
from timebound.commands._spark import run_plan, show_errors
from timebound.errors import TimeboundError
from timebound.packages import missing

if TYPE_CHECKING:
    from timebound.pipeline.sweep.results import Figure, Printed
    from timebound.sim.papers.grid import GridRow

MEASURES: Final = ("delivery_rate", "earning", "traffic")
# Runs of the papers take seconds each, so a task may be one run: the bar moves, and no core waits long.
TASKS_MAX: Final = 256
# What both papers simulate in each run.
MINUTES: Final = 120.0


def run_grid(
    grid: Any, wanted: list[Any], title: str, workers: int | None, master: str | None, remote: str | None
) -> tuple[list[Any], float, int]:
    """Carry out runs of a module of runs; return their rows in order, the seconds and the cores.

    The module has `run_all` for processes, and `open_runs`, `RESULTS` and `row_of` for Spark.

    Raises:
        TimeboundError: no run succeeded, or a master was named and pyspark is missing.
    """
    if workers is None and (master or remote or not missing("pyspark")):
        return _run_on_spark(grid, wanted, title, master, remote)
    if workers is None:
        screen.print("pyspark is not installed: running in processes on this machine", style="dim")
    started_s = time.monotonic()
    rows = []
    with progress_bar(screen) as bar:
        task = bar.add_task(title, total=len(wanted))
        for row in grid.run_all(wanted, workers or 0):
            rows.append(row)
            bar.advance(task)
    return rows, time.monotonic() - started_s, workers or os.cpu_count() or 1


def write_paper(
    folder: Path, number: str, rows: list[GridRow], minutes: float, wall_s: float, cores: int
) -> None:
    """Write the rows with their figures and the printed values, for a report."""
    import pyarrow as pa

    from timebound.pipeline.sweep.results import SweepInfo, write_results

    names = [one.name for one in fields(rows[0])]
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    table = pa.table({"run": range(len(rows)), **columns, "error": [""] * len(rows)})
    keys = ("figure", "scenario", "rate", "strategy", "weight", "reading")
    figures, printed = _figures(rows)
    cpu_s = sum(row.seconds for row in rows)
    notes = (
        [f"Each run simulates {minutes:g} minutes; the paper has {MINUTES:g}."] if minutes != MINUTES else []
    )
    if rows[0].reading != "literal":
        notes.append(f"Where the paper leaves something open, it is read as {rows[0].reading}.")
    info = SweepInfo(
        f"Paper {number}: the published experiments, repeated",
        keys,
        MEASURES,
        runs=len(rows),
        failed=0,
        wall_s=wall_s,
        cpu_s=cpu_s,
        cores=cores,
        note=" ".join(notes),
        figures=figures,
        printed=printed,
    )
    write_results(folder, table, info)


def _run_on_spark(
    grid: Any, wanted: list[Any], title: str, master: str | None, remote: str | None
) -> tuple[list[Any], float, int]:
    from timebound.pipeline.sweep.sweep import SweepPlan

    plan = SweepPlan([asdict(job) for job in wanted], f"{grid.__name__}:open_runs", b"", grid.RESULTS)
    table, wall_s, cores = run_plan(plan, title, master, remote, min(len(wanted), TASKS_MAX))
    show_errors(table)
    rows = [grid.row_of(values) for values in table.to_pylist() if not values["error"]]
    if not rows:
        raise TimeboundError("no run succeeded; the errors are above")
    return rows, wall_s, cores


def _figures(rows: list[GridRow]) -> tuple[tuple[Figure, ...], tuple[Printed, ...]]:
    """Return a figure for each one that was run, and the values that the paper prints."""
    from timebound.pipeline.sweep.results import Figure, Printed
    from timebound.sim.papers.grid import MEASURES_OF_FIGURE
    from timebound.sim.papers.published import compare, summarise

    figures = []
    titles = {}
    for figure, scenario in dict.fromkeys((row.figure, row.scenario) for row in rows):
        by_weight = len({row.weight for row in rows if row.figure == figure and row.weight >= 0}) > 1
        title = f"Figure {figure}, {scenario.upper()}"
        titles[(figure, scenario)] = title
        figures.append(
            Figure(
                title,
                "weight" if by_weight else "rate",
                "mix" if by_weight else "messages per minute and publisher",
                ("strategy",),
                MEASURES_OF_FIGURE[(figure, scenario)],
                {"figure": figure, "scenario": scenario},
            )
        )
    printed = []
    for one, found in compare(summarise(rows)):
        what = f"{one.measure.replace('_', ' ')} of {one.strategy}" + (
            f" over that of {one.versus}" if one.versus else ""
        )
        title = titles[(one.figure, one.scenario)]
        printed.append(
            Printed(title, what, one.measure, one.strategy, one.versus, one.rate, one.value, found)
        )
    return tuple(figures), tuple(printed)
