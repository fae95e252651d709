"""Shared parts of the commands that use Spark: where it runs, and how a plan is carried out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from timebound.commands._screen import progress_bar, screen

if TYPE_CHECKING:
    import pyarrow as pa

    from timebound.pipeline.sweep.sweep import SweepPlan

# Errors that differ, shown at the end; all of them stand in the table.
ERRORS_SHOWN: Final = 3

Master = Annotated[
    str | None, typer.Option(help="Spark master, such as spark://host:7077; this machine by default.")
]
Remote = Annotated[str | None, typer.Option(help="Spark Connect server, such as sc://host.")]


def run_plan(
    plan: SweepPlan, title: str, master: str | None, remote: str | None, tasks: int
) -> tuple[pa.Table, float, int]:
    """Start Spark and carry out a plan, with a progress bar; return the table, the seconds and the cores."""
    from timebound.pipeline.spark.session import Scale, cores_of, spark_session
    from timebound.pipeline.sweep.sweep import run_sweep

    started_s = time.monotonic()
    with screen.status("starting Spark"):
        spark = spark_session(master, remote, app=f"timebound {title}", scale=Scale.FEW_ROWS)
    cores = cores_of(spark)
    screen.print(f"Spark started in {time.monotonic() - started_s:.1f} s, {cores} cores", style="dim")
    count = len(plan.rows)
    started_s = time.monotonic()
    try:
        with progress_bar(screen) as bar:
            task = bar.add_task(title, total=count)
            table = run_sweep(
                spark,
                plan,
                tasks=tasks,
                progress=lambda share: bar.update(task, completed=int(share * count)),
            )
        return table, time.monotonic() - started_s, cores
    finally:
        spark.stop()


def show_errors(table: pa.Table) -> None:
    """Print how many runs failed, and the first errors."""
    errors = [error for error in table["error"].to_pylist() if error]
    if errors:
        screen.print(f"[yellow]note:[/yellow] {len(errors)} of {table.num_rows} runs failed:")
    for error in list(dict.fromkeys(errors))[:ERRORS_SHOWN]:
        screen.print(f"  {error}", markup=False)
