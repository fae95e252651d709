"""Sweeps on a real Spark: the rows, their order, failures, progress, and executors of their own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from timebound.errors import ConfigError, TimeboundError
from timebound.pipeline.sweep.sweep import SweepPlan, check_plan, resolve, run_here, run_sweep

# On a busy machine Spark alone takes a minute to start.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(240)]
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SCENARIO = ROOT / "scenarios" / "quick.toml"


@pytest.fixture(autouse=True)
def _made_runs_are_found(spark: SparkSession) -> None:
    # Here and on executors; a file that is there already is not sent again.
    spark.sparkContext.addPyFile(str(HERE / "made_runs.py"))


def rectangles(count: int, height: float = 2.5) -> SweepPlan:
    rows = [{"width": width, "height": height} for width in range(count)]
    results = (("area", "float64"), ("name", "string"), ("process", "int64"))
    return SweepPlan(rows, "made_runs:open_rectangles", b"km2", results)


def test_every_run_is_a_row_in_order_and_a_failed_one_says_why(spark: SparkSession) -> None:
    table = run_sweep(spark, rectangles(20))

    assert table["run"].to_pylist() == list(range(20))
    assert table["area"].to_pylist() == [None if width == 13 else 2.5 * width for width in range(20)]
    errors = table["error"].to_pylist()
    assert errors[13] == "ValueError: 13 is no width"
    assert [error for error in errors if error] == [errors[13]]
    assert table["name"][2].as_py() == "5 km2"
    assert all(seconds >= 0 for seconds in table["cpu_s"].to_pylist())


def test_spark_gives_the_same_table_as_this_process(spark: SparkSession) -> None:
    plan = rectangles(9)
    varying = ["cpu_s", "process"]

    assert run_sweep(spark, plan).drop(varying).equals(run_here(plan).drop(varying))


def test_runs_are_dealt_out_over_all_tasks(spark: SparkSession) -> None:
    shares: list[float] = []

    table = run_sweep(spark, rectangles(40), tasks=4, progress=shares.append)

    assert len(set(table["process"].to_pylist())) > 1
    assert shares[-1] == 1.0
    assert all(0.0 <= share <= 1.0 for share in shares)


def test_a_function_that_cannot_be_opened_stops_the_sweep(spark: SparkSession) -> None:
    plan = SweepPlan([{"width": 1}], "made_runs:open_rectangles", b"\xff\xff", (("area", "float64"),))

    with pytest.raises(TimeboundError, match=r"could not carry out the sweep: .*codec can't decode"):
        run_sweep(spark, plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (SweepPlan([], "made_runs:open_rectangles", b"", ()), "has no runs"),
        (SweepPlan([{"a": 1}], "made_runs:nothing", b"", ()), "'made_runs:nothing' cannot be found"),
        (SweepPlan([{"a": 1}], "no_such_module:f", b"", ()), "'no_such_module:f' cannot be found"),
        (SweepPlan([{"a": 1}], "made_runs", b"", ()), "'made_runs' cannot be found"),
        (SweepPlan([{"a": 1}], "made_runs:open_rectangles", b"", (("a", "int64"),)), "columns a exist twice"),
        (SweepPlan([{"a": 1}, {"a": "x"}], "made_runs:open_rectangles", b"", ()), "both texts and numbers"),
    ],
)
def test_what_cannot_run_is_refused_before_spark_starts(plan: SweepPlan, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_plan(plan)


def test_columns_take_the_type_of_all_their_values() -> None:
    plan = SweepPlan([{"a": 1, "b": "x", "c": 1}, {"a": 2, "b": "y", "c": 2.5}], "made_runs:f", b"", ())

    assert plan.parameter_columns() == (("a", "int64"), ("b", "string"), ("c", "float64"))


def test_a_function_is_found_by_its_path() -> None:
    assert resolve("made_runs:open_rectangles")(b"m2")({"width": 2, "height": 3})["name"] == "6 m2"


def test_progress_here_counts_runs() -> None:
    shares: list[float] = []

    table = run_here(rectangles(4), shares.append)

    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert isinstance(table, pa.Table)
