"""Windows of deliveries and the alarms among them, computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import MS, SECOND, SPARK_TIMEOUT_S, START, dropped, row

from timebound.pipeline.jobs.windows import IN_TIME_SHARE_MIN, PAIRS_MIN, alarms, delivery_windows, with_time
from timebound.pipeline.schema import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def at(passed_s: float, number: int = 1, **values: Any) -> dict[str, Any]:
    """A row whose outcome was known so long after the start."""
    time_ns = START + int(passed_s * SECOND)
    return row(number, **{"published_ns": time_ns - 3 * MS, "time_ns": time_ns, "sent_ns": time_ns, **values})


def lost(passed_s: float, **values: Any) -> dict[str, Any]:
    time_ns = START + int(passed_s * SECOND)
    return dropped(1, published_ns=time_ns - 3 * MS, time_ns=time_ns, **values)


def test_a_window_counts_by_the_time_of_the_outcome_from_its_beginning_to_before_its_end(
    spark: SparkSession,
) -> None:
    rows = [
        at(0.0),
        at(9.999, outcome="late", penalty_micro=7),
        at(10.0, price_micro=5),
        lost(10.5, penalty_micro=3),
        at(3.0, link="u"),
        at(3.0, node="n2"),
    ]

    windows = delivery_windows(with_time(spark.createDataFrame(rows, trace_schema())))

    found = {(one["node"], one["link"], one["window"].second): one for one in windows.collect()}
    assert set(found) == {("n1", "s", 0), ("n1", "s", 10), ("n1", "u", 0), ("n2", "s", 0)}
    first, second = found["n1", "s", 0], found["n1", "s", 10]
    names = ("matched", "in_time", "late", "dropped", "earned_micro", "paid_micro", "violations")
    assert [first[name] for name in names] == [2, 1, 1, 0, 1_000_000, 7, 0]
    assert [second[name] for name in names] == [2, 1, 0, 1, 5, 3, 0]


def test_alarms_name_windows_with_exceeded_bounds_or_little_in_time(spark: SparkSession) -> None:
    few = PAIRS_MIN - 1
    enough = int(IN_TIME_SHARE_MIN * 2 * PAIRS_MIN)
    rows = [
        *[lost(1.0, link="few") for _ in range(few)],
        *[at(1.0, link="fair") for _ in range(enough)],
        *[lost(1.0, link="fair") for _ in range(2 * PAIRS_MIN - enough)],
        *[at(1.0, link="poor") for _ in range(enough - 1)],
        *[lost(1.0, link="poor") for _ in range(2 * PAIRS_MIN - enough + 1)],
        at(1.0, link="slow", promised_ns=1),
        *[lost(1.0, link="slow") for _ in range(PAIRS_MIN)],
    ]

    found = alarms(delivery_windows(with_time(spark.createDataFrame(rows, trace_schema()))))

    named = {one["link"]: (one["reason"], one["matched"]) for one in found.collect()}
    assert named == {"poor": ("in_time_share", 2 * PAIRS_MIN), "slow": ("promise_broken", PAIRS_MIN + 1)}
