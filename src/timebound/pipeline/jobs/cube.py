"""The cube: everything that can be summed over trace rows, in one pass.

Deliveries, earnings and the audit of bounds are sums over rows by different keys. Reading a trace
costs more than anything after it, so rows are summed once by all of these keys together, and the
jobs sum over the cube, which is usually some thousand times smaller. It has sums, counts and maxima
only, so cubes of days and brokers are merged by summing again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timebound.pipeline.jobs.histogram import bucket_of
from timebound.records import Outcome
from timebound.units import HOUR, SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DIMENSIONS: Final = (
    "hour",  # of the outcome
    "publisher",
    "topic",
    "subscriber",
    "link",
    "hop",
    "outcome",
    "reason",
    "latency_bucket",  # null = not sent
    "is_promised",
)


def latency_ns() -> Column:
    """Return the time from publication until sending; where that is unknown, until the outcome."""
    from pyspark.sql import functions as F

    is_delivered = F.col("outcome") != Outcome.DROPPED.value
    return F.when(is_delivered, ended_ns() - F.col("published_ns"))


def ended_ns() -> Column:
    """Return when it was sent; where that is unknown or it was not, when its outcome was known."""
    from pyspark.sql import functions as F

    return F.when(F.col("sent_ns") > 0, F.col("sent_ns")).otherwise(F.col("time_ns"))


def input_ns() -> Column:
    """Return the time from arrival until it was offered to subscribers' queues, which a bound covers."""
    from pyspark.sql import functions as F

    return ended_ns() - F.col("queued_ns") - F.col("published_ns")


def is_violated() -> Column:
    """Whether the delay of a message at the input exceeded its bound."""
    from pyspark.sql import functions as F

    return (F.col("promised_ns") > 0) & (input_ns() > F.col("promised_ns"))


def cube(rows: DataFrame, keys: tuple[str, ...] = ()) -> DataFrame:
    """Sum rows by `keys` and all dimensions."""
    from pyspark.sql import functions as F

    hour_ns = F.col("time_ns") - F.col("time_ns") % F.lit(HOUR)
    prepared = rows.select(
        *[F.col(key) for key in keys],
        F.timestamp_seconds((hour_ns / F.lit(SECOND)).cast("long")).alias("hour"),
        *[F.col(name) for name in DIMENSIONS[1:8]],
        bucket_of(latency_ns()).alias("latency_bucket"),
        (F.col("promised_ns") > 0).alias("is_promised"),
        *_measured(),
    )
    return prepared.groupBy(*keys, *DIMENSIONS).agg(*_added_up())


def _measured() -> list[Column]:
    """Return the measures of one row."""
    from pyspark.sql import functions as F

    is_in_time = F.col("outcome") == Outcome.IN_TIME.value
    promised_ns = F.when(F.col("promised_ns") > 0, F.col("promised_ns"))
    return [
        F.lit(1).cast("long").alias("pairs"),
        F.col("size_bytes").cast("long").alias("bytes"),
        latency_ns().alias("latency_ns"),
        F.col("queued_ns"),
        F.when(is_in_time, F.col("price_micro")).otherwise(F.lit(0)).alias("earned_micro"),
        F.when(is_in_time, F.lit(0)).otherwise(F.col("penalty_micro")).alias("paid_micro"),
        promised_ns.alias("promised_ns"),
        F.when(F.col("promised_ns") > 0, input_ns()).alias("input_ns"),
        is_violated().cast("long").alias("violations"),
    ]


def _added_up() -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.sum("pairs").alias("pairs"),
        F.sum("bytes").alias("bytes"),
        F.coalesce(F.sum("latency_ns"), F.lit(0)).alias("latency_ns_sum"),
        F.max("latency_ns").alias("latency_ns_max"),
        F.sum("queued_ns").alias("queued_ns_sum"),
        F.max("queued_ns").alias("queued_ns_max"),
        F.sum("earned_micro").alias("earned_micro"),
        F.sum("paid_micro").alias("paid_micro"),
        F.max("bytes").alias("size_bytes_max"),
        F.min("promised_ns").alias("promised_ns_min"),
        F.max("promised_ns").alias("promised_ns_max"),
        F.max("input_ns").alias("input_ns_max"),
        F.sum("violations").alias("violations"),
    ]
