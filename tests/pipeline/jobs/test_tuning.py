"""Tuning on a real Spark: which interval is replayed, what of it, and which strategy comes out best."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from timebound.pipeline.jobs.tuning import (
    Interval,
    Replay,
    arrivals_per_second,
    busiest,
    link_rates,
    observed,
    tune,
)
from timebound.sim.scenario.replay import REPLAY
from timebound.units import MILLISECOND, SECOND

# On a busy machine Spark alone takes a minute to start.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(240)]
MICRO = 1_000_000
START_S = 1_000
TRACE = (
    "node string, message_id bigint, link string, subscriber string, size_bytes int, published_ns bigint, "
    "time_ns bigint, sent_ns bigint, queued_ns bigint, allowed_ns bigint, price_micro bigint, "
    "penalty_micro bigint, outcome string, reason string"
)
LINKS = "node string, link string, kb double, mean_s_per_kb double, variance double"


def pair(**values: Any) -> dict[str, Any]:
    usual = {
        "node": "n1",
        "message_id": 1,
        "link": "radio",
        "subscriber": "anna",
        "size_bytes": 1_024,
        "published_ns": START_S * SECOND,
        "queued_ns": 0,
        "allowed_ns": 0,
        "price_micro": MICRO,
        "penalty_micro": 0,
        "outcome": "in_time",
        "reason": "",
    }
    row = {**usual, **values}
    return {"time_ns": row["published_ns"] + row["queued_ns"], "sent_ns": 0, **row}


def frame(spark: SparkSession, rows: list[dict[str, Any]], schema: str = TRACE) -> DataFrame:
    return spark.createDataFrame(rows, schema)


def test_the_interval_in_which_messages_wait_longest_is_taken(spark: SparkSession) -> None:
    rows = [
        pair(published_ns=(START_S + second) * SECOND, queued_ns=wait * MILLISECOND)
        for second, wait in enumerate([900, 100, 300, 400, 500, 2])
    ]
    per_second = arrivals_per_second(frame(spark, [*rows, pair(node="n2")])).cache()

    assert busiest(per_second, rows_max=1) == [
        Interval("n1", START_S, START_S + 1),
        Interval("n2", START_S, START_S + 1),
    ]
    assert busiest(per_second, rows_max=3)[0] == Interval("n1", START_S, START_S + 3)
    assert busiest(per_second, rows_max=100)[0] == Interval("n1", START_S, START_S + 6)


def test_pairs_arrive_when_they_were_queued_with_what_time_was_left(spark: SparkSession) -> None:
    published_ns = START_S * SECOND + 100 * MILLISECOND
    # Read 200 ms after it was published, waited 300 ms, and was acknowledged much later.
    waited = pair(
        published_ns=published_ns,
        sent_ns=published_ns + 500 * MILLISECOND,
        time_ns=published_ns + 900 * MILLISECOND,
        queued_ns=300 * MILLISECOND,
        allowed_ns=SECOND,
    )
    # Nothing limits it but its receiver, who went away 400 ms after it was queued.
    left = pair(
        published_ns=published_ns + 300 * MILLISECOND,
        queued_ns=400 * MILLISECOND,
        outcome="dropped",
        reason="disconnected",
    )
    # A newer message took its place after 200 ms, when it still had 600.
    replaced = pair(
        published_ns=published_ns + 400 * MILLISECOND,
        queued_ns=200 * MILLISECOND,
        allowed_ns=800 * MILLISECOND,
        outcome="dropped",
        reason="replaced",
    )
    rows = [waited, left, replaced, pair(published_ns=published_ns + 5 * SECOND), pair(node="n2")]

    found, gone, old = observed(frame(spark, rows), Interval("n1", START_S, START_S + 1)).collect()

    assert (gone["arrival_ns"], gone["allowed_ns"]) == (400 * MILLISECOND, 400 * MILLISECOND)
    assert (old["arrival_ns"], old["allowed_ns"]) == (500 * MILLISECOND, 200 * MILLISECOND)
    assert (found["arrival_ns"], found["allowed_ns"], found["until_ns"]) == (
        300 * MILLISECOND,
        800 * MILLISECOND,
        1_100 * MILLISECOND,
    )


def test_rates_of_windows_are_merged_by_what_they_carried(spark: SparkSession) -> None:
    windows = [("n1", "radio", 1.0, 0.010, 0.0), ("n1", "radio", 3.0, 0.030, 0.0)]
    rows = [
        dict(zip(["node", "link", "kb", "mean_s_per_kb", "variance"], row, strict=True)) for row in windows
    ]

    rates = link_rates(frame(spark, rows, LINKS))

    mean, deviation = rates["n1"]["radio"]
    assert mean == pytest.approx(25.0)
    assert deviation == pytest.approx(75**0.5)


def test_the_strategy_that_earns_most_is_best_and_stands_beside_what_was(spark: SparkSession) -> None:
    # One KB takes a second; of three at once FIFO loses the last, which is urgent and worth most.
    urgent = {"allowed_ns": 2_500 * MILLISECOND, "price_micro": 5 * MICRO, "penalty_micro": 2 * MICRO}
    rows = [
        pair(message_id=1, allowed_ns=10 * SECOND),
        pair(message_id=2, allowed_ns=10 * SECOND, queued_ns=SECOND),
        pair(message_id=3, queued_ns=2 * SECOND, outcome="dropped", **urgent),
        pair(message_id=4, published_ns=(START_S + 8) * SECOND, link="wire"),
    ]
    links = [{"node": "n1", "link": "radio", "kb": 3.0, "mean_s_per_kb": 1.0, "variance": 0.0}]
    replay = Replay(REPLAY[0], REPLAY[1], (("fifo", -1.0), ("eb", -1.0), ("mtep", 0.5)))

    found = tune(spark, frame(spark, rows), frame(spark, links, LINKS), replay).collect()

    earned = {(row["strategy"], row["weight"]): row["earning"] for row in found}
    assert earned == {("fifo", None): 1.0, ("eb", None): 8.0, ("mtep", 0.5): 8.0}
    assert [row["strategy"] for row in found if row["is_best"]] == ["eb"]
    assert {(row["rows"], row["observed_earning"], row["observed_in_time_share"]) for row in found} == {
        (4, 1.0, 0.75)
    }


def test_nothing_observed_gives_an_empty_table(spark: SparkSession) -> None:
    assert tune(spark, frame(spark, []), frame(spark, [], LINKS), Replay(*REPLAY)).collect() == []
