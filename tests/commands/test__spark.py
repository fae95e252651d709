"""Carrying out a plan: Spark is stopped whatever happens, and failed runs are told in few words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from timebound.commands._spark import ERRORS_SHOWN, run_plan, show_errors
from timebound.pipeline.sweep import sweep
from timebound.pipeline.sweep.sweep import SweepPlan, run_here
from timebound.sim.papers.grid import RESULTS

SESSION = "timebound.pipeline.spark.session"


class StoppableSpark:
    """Stands for a session: `run_plan` only asks for its cores and stops it."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> StoppableSpark:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    spark = StoppableSpark()
    monkeypatch.setattr(f"{SESSION}.spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(f"{SESSION}.cores_of", lambda _: 2)
    return spark


def plan(rows: int) -> SweepPlan:
    job = {"paper": "002", "figure": 6, "scenario": "psd", "rate": 15.0, "strategy": "fifo", "weight": -1.0}
    more = {"reading": "literal", "minutes": 0.1}
    given = [{**job, **more, "seed": seed} for seed in range(1, rows + 1)]
    return SweepPlan(given, "timebound.sim.papers.grid:open_runs", b"", RESULTS)


def test_a_plan_gives_its_table_and_spark_is_stopped(
    session: StoppableSpark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(spark: Any, plan: SweepPlan, tasks: int, progress: Callable[[float], None]) -> pa.Table:
        assert (spark, tasks) == (session, 3)
        return run_here(plan, progress)

    monkeypatch.setattr(sweep, "run_sweep", here)

    table, seconds, cores = run_plan(plan(2), "two runs", None, None, 3)

    assert (table.num_rows, cores, session.is_stopped) == (2, 2, True)
    assert seconds > 0
    assert "2 cores" in capsys.readouterr().err


def test_spark_is_stopped_after_an_error_too(
    session: StoppableSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> pa.Table:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run_sweep", fail)

    with pytest.raises(KeyboardInterrupt):
        run_plan(plan(1), "one run", None, None, 0)

    assert session.is_stopped


def test_errors_are_counted_and_the_first_that_differ_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    errors = ["", "ValueError: [red]a", "ValueError: [red]a", *(f"OSError: {n}" for n in range(ERRORS_SHOWN))]

    show_errors(pa.table({"error": errors}))

    assert capsys.readouterr().err.splitlines() == [
        f"note: {len(errors) - 1} of {len(errors)} runs failed:",
        "  ValueError: [red]a",
        "  OSError: 0",
        "  OSError: 1",
    ]


def test_nothing_is_said_where_nothing_failed(capsys: pytest.CaptureFixture[str]) -> None:
    show_errors(pa.table({"error": ["", ""]}))

    assert capsys.readouterr().err == ""
