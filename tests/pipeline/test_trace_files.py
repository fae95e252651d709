"""Trace files as a broker writes them, run by run: Spark reads every way in which they may be encoded."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.pipeline.traces import SPARK_TIMEOUT_S, START

from timebound.core.message import Delivery, Message
from timebound.core.subscription import Subscription
from timebound.core.trace_run import TraceKind, TraceRun
from timebound.node.trace import TraceLimits, TraceWriter
from timebound.pipeline.io import read_trace, trace_files

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

LIMITS = TraceLimits(file_bytes_max=1 << 30, file_age_max_s=3_600.0, disk_bytes_max=1 << 40)


def runs_of(subscribers: int, rows_of_run: int) -> list[TraceRun]:
    """A message after the other to all subscribers, so many read at once."""
    kinds = []
    for number in range(subscribers):
        wanted = Subscription(f"s{number}", f"t/{number}")
        delivery = Delivery(Message("t", b"x", 0, False, START, "p"), 0, False, subscription=wanted)
        kinds.append(TraceKind(wanted.client_id, delivery, wanted, "in_time", ""))
    return [
        TraceRun(kind, time_ns + 2, time_ns, time_ns + 1, time_ns + 2, batch * rows_of_run, rows_of_run)
        for batch in range(3)
        for time_ns in [START + batch * 1_000_003]
        for kind in kinds
    ]


@pytest.mark.parametrize(("subscribers", "rows_of_run"), [(1, 70), (300, 1), (300, 70)])
def test_spark_reads_what_the_runs_stand_for(
    spark: SparkSession, tmp_path: Path, subscribers: int, rows_of_run: int
) -> None:
    runs = runs_of(subscribers, rows_of_run)
    writer = TraceWriter(tmp_path, "n", LIMITS)
    writer.write(runs)
    writer.close()

    [files] = trace_files(tmp_path).values()
    frame = read_trace(spark, tmp_path, files)
    found = frame.select("message_id", "time_ns", "published_ns", "subscriber", "qos", "hop").collect()

    assert [tuple(row) for row in found] == [
        (run.message_id + number, run.time_ns, run.published_ns, run.kind.client_id, 0, 0)
        for run in runs
        for number in range(run.count)
    ]
    last_ns = runs[-1].time_ns
    assert frame.where(F.col("time_ns") >= last_ns).count() == subscribers * rows_of_run
    assert frame.where(F.col("time_ns") > last_ns).count() == 0
