"""Job 2, deliveries: outcomes and latencies of messages, by several views.

All tables are sums over the cube. Latency runs from the arrival of a message at the first broker until
it is handed to the link of its subscriber; percentiles are accurate to 1 %, maxima and counts are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timebound.pipeline.jobs.histogram import percentiles
from timebound.records import Outcome, Reason
from timebound.units import MILLISECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Views of deliveries; `all` has one row per node.
VIEWS: Final = ("all", "topic", "subscriber", "link", "hop")
QUANTILES: Final = {
    "latency_p50_ns": 0.5,
    "latency_p90_ns": 0.9,
    "latency_p99_ns": 0.99,
    "latency_p999_ns": 0.999,
}
KEYS: Final = ("node", "view", "name")


def deliveries(cube: DataFrame) -> DataFrame:
    """Return one row per node, view and name: pairs by outcome and reason, bytes, latency."""
    from pyspark.sql import functions as F

    viewed = _viewed(cube)
    keys = list(KEYS)
    counted = viewed.groupBy(*keys).agg(*_counts())
    delivered = viewed.where(F.col("latency_bucket").isNotNull())
    found = percentiles(
        delivered, keys, QUANTILES, bucket="latency_bucket", count="pairs", largest="latency_ns_max"
    )
    joined = counted.join(found, on=keys, how="left")
    mean_ms = F.col("latency_ns_sum") / (F.col("in_time") + F.col("late")) / MILLISECOND
    return joined.select(
        *keys,
        *["matched", "in_time", "late", "dropped", "in_time_share"],
        *[dropped_column(reason) for reason in Reason],
        "bytes_sent",
        F.when(F.col("in_time") + F.col("late") > 0, mean_ms).alias("latency_mean_ms"),
        *[(F.col(name) / MILLISECOND).alias(name.replace("_ns", "_ms")) for name in QUANTILES],
        (F.col("latency_ns_max") / MILLISECOND).alias("latency_max_ms"),
        (F.col("queued_ns_sum") / F.col("matched") / MILLISECOND).alias("queued_mean_ms"),
        (F.col("queued_ns_max") / MILLISECOND).alias("queued_max_ms"),
    )


def traffic(cube: DataFrame, flows: DataFrame) -> DataFrame:
    """Return one row per node: messages that matched anything, pairs, copies sent, bytes, and receipts.

    `flows` has the distinct messages of each flow. A message that ended after h hops was received by at
    least h + 1 brokers; their sum is the papers' message traffic, as far as a trace shows it.
    """
    from pyspark.sql import functions as F

    is_sent = F.col("outcome") != Outcome.DROPPED.value
    pairs = cube.groupBy("node").agg(
        F.sum("pairs").alias("matched"),
        F.sum(F.when(is_sent, F.col("pairs")).otherwise(0)).alias("copies_sent"),
        F.sum(F.when(is_sent, F.col("bytes")).otherwise(0)).alias("bytes_sent"),
    )
    published = flows.groupBy("node").agg(
        F.sum("messages").alias("published"), F.sum("receipts").alias("broker_receipts")
    )
    joined = pairs.join(published, on="node", how="left")
    return joined.select(*["node", "published", "matched", "copies_sent", "bytes_sent", "broker_receipts"])


def dropped_column(reason: Reason) -> str:
    return f"dropped_{reason.value}"


def _viewed(cube: DataFrame) -> DataFrame:
    """Repeat every row for each view, with its name there."""
    from pyspark.sql import functions as F

    name = {view: F.col(view).cast("string") for view in VIEWS if view != "all"}
    names = [F.struct(F.lit(view).alias("view"), name.get(view, F.lit("")).alias("name")) for view in VIEWS]
    exploded = cube.withColumn("_seen", F.explode(F.array(*names)))
    return exploded.withColumns({"view": F.col("_seen.view"), "name": F.col("_seen.name")})


def _counts() -> list[Column]:
    from pyspark.sql import functions as F

    def pairs_where(condition: Column, name: str) -> Column:
        return F.sum(F.when(condition, F.col("pairs")).otherwise(0)).alias(name)

    outcome, reason = F.col("outcome"), F.col("reason")
    is_in_time = outcome == Outcome.IN_TIME.value
    is_dropped = outcome == Outcome.DROPPED.value
    in_time = F.sum(F.when(is_in_time, F.col("pairs")).otherwise(0))
    return [
        F.sum("pairs").alias("matched"),
        pairs_where(is_in_time, "in_time"),
        pairs_where(outcome == Outcome.LATE.value, "late"),
        pairs_where(is_dropped, "dropped"),
        (in_time / F.sum("pairs")).alias("in_time_share"),
        *[pairs_where(reason == one.value, dropped_column(one)) for one in Reason],
        F.sum(F.when(is_dropped, F.lit(0)).otherwise(F.col("bytes"))).alias("bytes_sent"),
        F.sum("latency_ns_sum").alias("latency_ns_sum"),
        F.max("latency_ns_max").alias("latency_ns_max"),
        F.sum("queued_ns_sum").alias("queued_ns_sum"),
        F.max("queued_ns_max").alias("queued_ns_max"),
    ]
