"""The papers' grids: on Spark or in processes the rows are the same."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from pyspark.sql import SparkSession

from timebound.commands._paper_grid import run_grid
from timebound.pipeline.sweep.sweep import SweepPlan, run_sweep
from timebound.sim.papers import grid
from timebound.sim.papers.grid import RESULTS, GridRow, Job, jobs, row_of

# On a busy machine Spark alone takes a minute to start.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(240)]


def wanted(**narrowed: tuple[str, ...]) -> list[Job]:
    return jobs("002", figures=(6,), rates=(5.0, 15.0), seeds=(1, 2), minutes=0.5, **narrowed)


def without_seconds(rows: list[GridRow]) -> list[GridRow]:
    """What a seed determines."""
    return [replace(row, seconds=0.0) for row in rows]


def test_spark_and_processes_give_the_same_rows(spark: SparkSession) -> None:
    few = wanted(strategies=("eb", "timebound"))
    rows, wall_s, cores = run_grid(grid, few, "paper", workers=1, master=None, remote=None)

    table = run_sweep(
        spark, SweepPlan([asdict(job) for job in few], f"{grid.__name__}:open_runs", b"", RESULTS)
    )

    assert without_seconds([row_of(row) for row in table.to_pylist()]) == without_seconds(rows)
    assert wall_s > 0
    assert cores == 1
