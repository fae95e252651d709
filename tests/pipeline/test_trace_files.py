"""Trace files as a broker writes them: Spark reads every way in which they may be encoded."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.pipeline.traces import SPARK_TIMEOUT_S, START

from timebound.core.account.account import Account
from timebound.core.account.trace_log import TraceBatch
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.node.trace.writer import TraceLimits, TraceWriter
from timebound.pipeline.io import read_trace, trace_files

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

LIMITS = TraceLimits(file_bytes_max=1 << 30, file_age_max_s=3_600.0, disk_bytes_max=1 << 40)


def batch_of(subscribers: int, rows_of_run: int) -> TraceBatch:
    """A message after the other to all subscribers, so many read at once."""
    account = Account()
    account.is_tracing = True
    subscriptions = [
        Subscription(client_id=f"s{number}", topic_filter=f"t/{number}") for number in range(subscribers)
    ]
    for batch in range(3):
        published_ns = START + batch * 1_000_003
        messages = [
            Message("t", b"x", 0, False, published_ns, "p", sequence=batch * rows_of_run + number)
            for number in range(rows_of_run)
        ]
        for wanted in subscriptions:
            copies = [
                Delivery(one, 0, False, subscription=wanted, offered_ns=published_ns + 1) for one in messages
            ]
            for copy in copies:
                copy.sent_ns = published_ns + 2
            account.delivered_now(wanted.client_id, copies, 0, published_ns + 2)
    return account.trace.take()


@pytest.mark.parametrize(("subscribers", "rows_of_run"), [(1, 70), (300, 1), (300, 70)])
def test_spark_reads_what_the_runs_stand_for(
    spark: SparkSession, tmp_path: Path, subscribers: int, rows_of_run: int
) -> None:
    writer = TraceWriter(tmp_path, "n", LIMITS)
    writer.write(batch_of(subscribers, rows_of_run))
    writer.close()

    [files] = trace_files(tmp_path).values()
    frame = read_trace(spark, tmp_path, files)
    found = frame.select("message_id", "time_ns", "published_ns", "subscriber", "qos", "hop").collect()

    assert [tuple(row) for row in found] == [
        (batch * rows_of_run + number, published_ns + 2, published_ns, f"s{subscriber}", 0, 0)
        for batch in range(3)
        for published_ns in [START + batch * 1_000_003]
        for subscriber in range(subscribers)
        for number in range(rows_of_run)
    ]
    last_ns = START + 2 * 1_000_003 + 2
    assert frame.where(F.col("time_ns") >= last_ns).count() == subscribers * rows_of_run
    assert frame.where(F.col("time_ns") > last_ns).count() == 0
