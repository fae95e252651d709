"""Deliveries by windows of time, over tables and over streams.

The same function sums a table and a stream; a stream requires a watermark on `time`, which limits how
long it waits for late rows. Alarms are the windows that need attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timebound.pipeline.jobs.cube import is_violated
from timebound.records import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW: Final = "10 seconds"
# How late rows may arrive: traces are handed over twice a second.
LATENESS: Final = "30 seconds"
# Fewer messages than this raise no alarm.
PAIRS_MIN: Final = 20
IN_TIME_SHARE_MIN: Final = 0.9
KEYS: Final = ("window", "node", "link")


def with_time(rows: DataFrame) -> DataFrame:
    """Add `time`, the time of the outcome, for windows and watermarks."""
    from pyspark.sql import functions as F

    return rows.withColumn("time", F.timestamp_micros((F.col("time_ns") / 1_000).cast("long")))


def delivery_windows(timed: DataFrame) -> DataFrame:
    """Return one row per window, node and link."""
    from pyspark.sql import functions as F

    def pairs_where(condition: Column, name: str) -> Column:
        return F.sum(condition.cast("long")).alias(name)

    outcome = F.col("outcome")
    is_in_time = outcome == Outcome.IN_TIME.value
    added = timed.groupBy(F.window("time", WINDOW).alias("span"), "node", "link").agg(
        F.count("*").alias("matched"),
        pairs_where(is_in_time, "in_time"),
        pairs_where(outcome == Outcome.LATE.value, "late"),
        pairs_where(outcome == Outcome.DROPPED.value, "dropped"),
        F.sum(F.when(is_in_time, F.col("price_micro")).otherwise(0)).alias("earned_micro"),
        F.sum(F.when(is_in_time, 0).otherwise(F.col("penalty_micro"))).alias("paid_micro"),
        pairs_where(is_violated(), "violations"),
    )
    return added.select(
        F.col("span.start").alias("window"),
        *["node", "link", "matched", "in_time", "late", "dropped"],
        *["earned_micro", "paid_micro", "violations"],
    )


def alarms(windows: DataFrame) -> DataFrame:
    """Return windows with too few deliveries in time or an exceeded bound, with the reason."""
    from pyspark.sql import functions as F

    share = F.col("in_time") / F.col("matched")
    is_poor = (F.col("matched") >= PAIRS_MIN) & (share < IN_TIME_SHARE_MIN)
    reason = F.when(F.col("violations") > 0, F.lit("promise_broken")).when(is_poor, F.lit("in_time_share"))
    judged = windows.select(*KEYS, "matched", "in_time", "violations", reason.alias("reason"))
    return judged.where(F.col("reason").isNotNull())
