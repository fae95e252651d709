"""Deliveries, earnings, bills and the audit of one small trace, computed by hand."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import HOUR, MS, SPARK_TIMEOUT_S, START, dropped, row

from timebound.pipeline.jobs.bounds_audit import bounds_audit, violations
from timebound.pipeline.jobs.cube import cube
from timebound.pipeline.jobs.deliveries import deliveries, traffic
from timebound.pipeline.jobs.earnings import bills, earnings
from timebound.pipeline.jobs.flows import flow_segments, flows
from timebound.pipeline.schema import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

DAY = 24 * HOUR


def late(number: int, **values: Any) -> dict[str, Any]:
    return row(number, **{"outcome": "late", "allowed_ns": MS, "penalty_micro": 250_000, **values})


ROWS = [
    row(1),
    row(2, subscriber="u", link="u", price_micro=3_000_000, size_bytes=2_048),
    row(2, price_micro=2),
    late(3, topic="t/2"),
    dropped(4, penalty_micro=7),
    dropped(5, reason="hopeless", penalty_micro=1, allowed_ns=MS, hop=2),
    # An hour and a day later, and with the outcome known 20 ms after it was sent.
    row(6, published_ns=START + HOUR, time_ns=START + HOUR + 23 * MS, qos=1),
    row(7, published_ns=START + DAY, node="n2", subscriber="u", link="u"),
    # Within a contract: waited 2 ms at the input (sent after 3, of which 1 in the queue).
    row(8, publisher="press", promised_ns=2 * MS),
    row(9, publisher="press", promised_ns=2 * MS - 1),
    row(10, publisher="press", promised_ns=0),
]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, trace_schema())


@pytest.fixture(scope="module")
def cubed(rows: DataFrame) -> DataFrame:
    return cube(rows, ("date", "node")).cache()


@pytest.fixture(scope="module")
def found(cubed: DataFrame) -> dict[tuple[str, str, str], Any]:
    """Deliveries by node, view and name."""
    return {(one["node"], one["view"], one["name"]): one for one in deliveries(cubed).collect()}


@pytest.fixture(scope="module")
def billed(cubed: DataFrame) -> dict[tuple[str, datetime.date], Any]:
    """Bills by subscriber and day."""
    return {(one["subscriber"], one["day"]): one for one in bills(cubed).collect()}


def test_deliveries_are_counted_by_outcome_and_reason_in_every_view(found: dict[Any, Any]) -> None:
    everything = found["n1", "all", ""]
    assert (everything["matched"], everything["in_time"], everything["late"]) == (10, 7, 1)
    assert (everything["dropped"], everything["dropped_queue_full"], everything["dropped_hopeless"]) == (
        2,
        1,
        1,
    )
    assert everything["dropped_quota"] == 0
    assert everything["in_time_share"] == 0.7
    assert everything["bytes_sent"] == 7 * 1_024 + 2_048
    assert found["n1", "topic", "t/2"]["late"] == 1
    assert found["n1", "topic", "t/1"]["matched"] == 9
    assert found["n1", "subscriber", "u"]["matched"] == found["n1", "link", "u"]["matched"] == 1
    assert found["n1", "hop", "2"]["dropped"] == 1
    assert found["n2", "all", ""]["matched"] == 1


def test_latency_runs_from_publication_until_it_was_sent(found: dict[Any, Any]) -> None:
    everything = found["n1", "all", ""]
    assert (everything["latency_mean_ms"], everything["latency_max_ms"]) == (3.0, 3.0)
    assert everything["latency_p50_ms"] == pytest.approx(3.0, rel=0.01)
    assert everything["latency_p999_ms"] == pytest.approx(3.0, rel=0.01)
    assert (everything["queued_mean_ms"], everything["queued_max_ms"]) == (1.0, 1.0)
    # Nothing of it was sent: there is no latency.
    assert found["n1", "hop", "2"]["latency_mean_ms"] is None
    assert found["n1", "hop", "2"]["latency_p50_ms"] is None


def test_a_message_for_two_subscribers_is_published_once(rows: DataFrame, cubed: DataFrame) -> None:
    found = flows(flow_segments(rows, cubed, ("date", "node")))

    by_node = {one["node"]: one for one in traffic(cubed, found).collect()}

    assert (by_node["n1"]["published"], by_node["n1"]["matched"], by_node["n1"]["copies_sent"]) == (9, 10, 8)
    assert by_node["n1"]["broker_receipts"] == 9 + 2
    assert by_node["n2"]["published"] == 1


def test_earnings_are_exact_by_hour_and_subscriber(cubed: DataFrame) -> None:
    found = {(one["node"], one["hour"].hour, one["subscriber"]): one for one in earnings(cubed).collect()}

    first = found["n1", 8, "s"]
    assert (first["in_time"], first["late"], first["dropped"]) == (5, 1, 2)
    assert (first["earned_micro"], first["paid_micro"]) == (4_000_002, 250_008)
    assert first["net_micro"] == 3_749_994
    assert found["n1", 9, "s"]["earned_micro"] == 1_000_000
    assert found["n1", 8, "u"]["earned_micro"] == 3_000_000


def test_bills_have_a_line_for_each_subscriber_and_day(billed: dict[Any, Any]) -> None:
    day = datetime.date(2027, 1, 15)
    assert set(billed) == {("s", day), ("u", day), ("u", day + datetime.timedelta(1))}
    assert (billed["s", day]["price_micro"], billed["s", day]["penalty_micro"]) == (5_000_002, 250_008)
    assert billed["s", day]["amount_micro"] == 4_749_994
    assert sum(one["price_micro"] for one in billed.values()) == 9_000_002


def test_a_broken_promise_is_counted_and_its_rows_are_listed(rows: DataFrame, cubed: DataFrame) -> None:
    [flow] = bounds_audit(cubed).collect()

    assert (flow["publisher"], flow["topic"], flow["pairs"]) == ("press", "t/1", 2)
    assert (flow["promised_min_ms"], flow["promised_max_ms"], flow["worst_ms"]) == (1.999999, 2.0, 2.0)
    assert (flow["violations"], flow["is_kept"]) == (1, False)
    [broken] = violations(rows).collect()
    assert (broken["message_id"], broken["input_ns"], broken["promised_ns"]) == (9, 2 * MS, 2 * MS - 1)


def test_cubes_of_parts_add_up_to_that_of_all(
    spark: SparkSession, found: dict[Any, Any], billed: dict[Any, Any]
) -> None:
    halves = [
        spark.createDataFrame(ROWS[:5], trace_schema()),
        spark.createDataFrame(ROWS[5:], trace_schema()),
    ]
    parts = cube(halves[0], ("date", "node")).unionByName(cube(halves[1], ("date", "node"))).cache()

    assert sorted(deliveries(parts).collect()) == sorted(found.values())
    assert sorted(bills(parts).collect()) == sorted(billed.values())
