"""Each way in which a row can be wrong is found, and rows that are right pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import MS, SPARK_TIMEOUT_S, START, dropped, row

from timebound.pipeline.jobs.quality import bad, good, with_faults
from timebound.pipeline.schema import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

BAD: list[tuple[dict[str, Any], str]] = [
    (row(topic=None), "topic is missing"),
    (row(price_micro=None), "price_micro is missing"),
    (row(outcome=None), "outcome is missing"),
    (row(size_bytes=-1), "size_bytes is negative"),
    (row(penalty_micro=-5), "penalty_micro is negative"),
    (row(hop=-1), "hop is negative"),
    (row(qos=3), "qos is not 0, 1 or 2"),
    (row(outcome="lost"), "outcome is unknown"),
    (dropped(reason=""), "dropped without a reason"),
    (dropped(reason="bad luck"), "reason is unknown"),
    (row(reason="quota"), "delivered with a reason to drop it"),
    (row(time_ns=START, published_ns=START + 1), "it ended before it was published"),
    (row(sent_ns=START, published_ns=START + 1), "it was sent before it was published"),
    (row(outcome="late"), "late without a limit"),
    (row(outcome="late", allowed_ns=3 * MS), "late within its limit"),
    (row(allowed_ns=3 * MS - 1), "in time beyond its limit"),
]
GOOD = [
    row(),
    row(allowed_ns=3 * MS),
    row(outcome="late", allowed_ns=3 * MS - 1),
    # Acknowledged before the link was expected to be free: late by when it should have left.
    row(
        outcome="late",
        qos=1,
        allowed_ns=2 * MS,
        time_ns=START + 1,
        published_ns=START,
        sent_ns=START + 4 * MS,
    ),
    row(qos=1, allowed_ns=3 * MS, time_ns=START + 60_000 * MS),
    dropped(),
    dropped(reason="hopeless", allowed_ns=MS),
    row(sent_ns=None, qos=2),
]


def test_bad_rows_are_told_apart_with_their_fault(spark: SparkSession) -> None:
    rows = [one | {"message_id": number} for number, (one, _) in enumerate(BAD)]
    rows += [one | {"message_id": len(BAD) + number} for number, one in enumerate(GOOD)]

    judged = with_faults(spark.createDataFrame(rows, trace_schema()))

    refused = {one["message_id"]: one["fault"] for one in bad(judged).collect()}
    assert refused == {number: fault for number, (_, fault) in enumerate(BAD)}
    kept = {one["message_id"] for one in good(judged).collect()}
    assert kept == {len(BAD) + number for number in range(len(GOOD))}
