"""Flows of a made trace: rates, bursts, and what to advertise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import MS, SECOND, SPARK_TIMEOUT_S, START, row

from timebound.pipeline.jobs.cube import cube
from timebound.pipeline.jobs.flows import envelopes, flow_segments, flows
from timebound.pipeline.schema import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def test_rates_and_bursts_by_publisher_and_topic(spark: SparkSession) -> None:
    def at(publisher: str, number: int, passed_ns: int, **values: Any) -> dict[str, Any]:
        return row(number, publisher=publisher, published_ns=START + passed_ns, **values)

    # Every 100 ms, for two subscribers; and five at once every second, the same message id for each.
    steady = [at("a", n, n * 100 * MS, subscriber=who) for n in range(101) for who in ("s", "u")]
    bursts = [at("b", 1_000 + 5 * n + i, n * SECOND, size_bytes=500) for n in range(11) for i in range(5)]
    once = [at("c", 5_000, 0)]
    # The same flow at another broker, a day later: another flow, since brokers admit on their own.
    other = [at("a", 1, 0, node="n2", date="2027-01-16")]
    frame = spark.createDataFrame(steady + bursts + once + other, trace_schema())

    segments = flow_segments(frame, cube(frame, ("date", "node")), ("date", "node"))
    found = flows(segments).cache()

    by_flow = {(one["node"], one["publisher"]): one for one in found.collect()}
    assert set(by_flow) == {("n1", "a"), ("n1", "b"), ("n1", "c"), ("n2", "a")}
    a, b, c = (by_flow["n1", name] for name in "abc")
    assert (a["messages"], a["pairs"], a["size_bytes_max"]) == (101, 202, 1_024)
    assert a["mean_rate_per_s"] == pytest.approx(10.0)
    # The first rate listed with a fifth of room above the mean.
    assert (a["rate_per_s"], a["burst"]) == (pytest.approx(13.335, rel=1e-3), 1)
    assert b["mean_rate_per_s"] == pytest.approx(5.4)
    assert (b["rate_per_s"], b["burst"]) == (pytest.approx(7.499, rel=1e-3), 5)
    assert (c["mean_rate_per_s"], c["burst"]) == (None, 1)
    curve = {
        (one["publisher"], round(one["rate_per_s"], 2)): one["burst"] for one in envelopes(found).collect()
    }
    # 5.62 a second is just above the mean: each second 0.62 of the five before is made up for.
    assert curve["b", 5.62] == 5
    assert curve["b", 1_000.0] == 5
    assert curve["a", 10.0] == 1
    assert ("a", 13.34) not in curve
    assert ("a", 7.5) not in curve
