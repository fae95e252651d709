"""The audit of delay bounds: which were kept, and the rows in which one was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipeline.traces import MS, SPARK_TIMEOUT_S, row

from timebound.pipeline.jobs.bounds_audit import bounds_audit, violations
from timebound.pipeline.jobs.cube import cube
from timebound.pipeline.schema import COLUMNS, trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def test_a_bound_that_was_exceeded_is_counted_and_its_rows_are_listed(
    rows: DataFrame, cubed: DataFrame
) -> None:
    [flow] = bounds_audit(cubed).collect()

    assert (flow["publisher"], flow["topic"], flow["pairs"]) == ("press", "t/1", 2)
    assert (flow["promised_min_ms"], flow["promised_max_ms"], flow["worst_ms"]) == (1.999999, 2.0, 2.0)
    assert (flow["violations"], flow["is_kept"]) == (1, False)
    [broken] = violations(rows).collect()
    assert (broken["message_id"], broken["input_ns"], broken["promised_ns"]) == (9, 2 * MS, 2 * MS - 1)


def test_a_bound_that_is_just_reached_is_kept(spark: SparkSession) -> None:
    # Sent 3 ms after publication, of which 1 in the queue: 2 ms at the input.
    exact = [row(1, promised_ns=2 * MS), row(2, promised_ns=5 * MS), row(3, promised_ns=0)]
    rows = spark.createDataFrame(exact, trace_schema())

    [flow] = bounds_audit(cube(rows, ("date", "node"))).collect()

    assert (flow["pairs"], flow["violations"], flow["is_kept"]) == (2, 0, True)
    assert (flow["promised_min_ms"], flow["promised_max_ms"], flow["worst_ms"]) == (2.0, 5.0, 2.0)
    listed = violations(rows)
    assert listed.columns == [*COLUMNS, "input_ns"]
    assert listed.count() == 0
