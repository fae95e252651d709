"""Job 5, flows: rate and burstiness of each publisher on each topic.

Arrivals of a flow are sorted and summarised as segments (`envelope.py`), one per day and broker. The
merged segments give the mean rate, and for every rate above it the smallest burst with which the flow
could be advertised. The weight that this needs is decided by the broker's own admission: the caller
passes `advise`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from timebound.pipeline.jobs import envelope
from timebound.units import SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS: Final = ("node", "publisher", "topic")
# Advertise a flow with some margin above its mean rate; without it the burst is unbounded.
ROOM: Final = 1.2
# A sum of fractions may lie this much above a whole number of messages.
ROUNDING: Final = 1e-6
# Admission is asked about the busiest flows only: with more, it would take longer than all other jobs.
ADVISED_MAX: Final = 200
ADVICE_FIELDS: Final = (
    "node string, publisher string, topic string, rate_per_s double, burst long, size_bytes long, "
    "weight long, bound_ms double, is_admitted boolean, reason string"
)
# Rows of `flows` as dictionaries in, rows of ADVICE_FIELDS out.
Advise = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def flow_segments(rows: DataFrame, cube: DataFrame, keys: tuple[str, ...] = ()) -> DataFrame:
    """Return one segment per flow and value of `keys`; `cube` is that of the same rows and keys."""
    from pyspark.sql import functions as F

    places = list(dict.fromkeys((*keys, *KEYS)))
    # Sorting by one number takes a fraction of sorting by three texts. A collision among a million flows
    # has a probability of 3e-8.
    flow = F.xxhash64(*places)
    arrivals = rows.select(flow.alias("flow"), "published_ns", "message_id", "hop")
    names = cube.groupBy(*places).agg(*_sizes())
    ordered = arrivals.repartition("flow").sortWithinPartitions(
        "flow", "published_ns", "message_id", F.col("hop").desc()
    )
    found = ordered.mapInArrow(envelope.segments, envelope.SEGMENT_FIELDS)
    named = names.withColumn("flow", flow).join(found, on="flow", how="inner")
    return named.select(*places, "size_bytes_max", "pairs", "bytes", *_SUMMED)


def flows(segments: DataFrame) -> DataFrame:
    """Return one row per flow: messages, mean rate, and a rate with margin and the burst it needs."""
    from pyspark.sql import functions as F

    merged = _merged(segments)
    passed_s = (F.col("last_ns") - F.col("first_ns")) / SECOND
    mean = F.when(passed_s > 0, (F.col("messages") - 1) / passed_s)
    rated = merged.withColumns({"mean_rate_per_s": mean, "curve": _curve()})
    wanted = F.coalesce(F.col("mean_rate_per_s") * ROOM, F.lit(0.0))
    fitting = F.filter("curve", lambda point: point["rate_per_s"] >= wanted)
    # A flow faster than all listed rates gets the last of them: no burst makes it fit.
    chosen = F.coalesce(F.get(fitting, F.lit(0)), F.element_at("curve", -1))
    return rated.withColumn("chosen", chosen).select(
        *KEYS,
        *["messages", "receipts", "pairs", "bytes", "size_bytes_max"],
        F.timestamp_micros((F.col("first_ns") / 1_000).cast("long")).alias("first"),
        F.timestamp_micros((F.col("last_ns") / 1_000).cast("long")).alias("last"),
        "mean_rate_per_s",
        F.col("chosen.rate_per_s").alias("rate_per_s"),
        F.col("chosen.burst").alias("burst"),
        "curve",
    )


def envelopes(found: DataFrame) -> DataFrame:
    """Return the smallest burst for each flow and rate above its mean, until it is one message."""
    from pyspark.sql import functions as F

    before = F.get(F.col("curve"), F.col("step") - 1)
    stepped = found.select(*KEYS, "mean_rate_per_s", "curve", F.posexplode("curve").alias("step", "point"))
    is_above = F.col("point.rate_per_s") >= F.coalesce(F.col("mean_rate_per_s"), F.lit(0.0))
    is_needed = (F.col("step") == 0) | (before["burst"] > 1)
    kept = stepped.where(is_above & is_needed)
    return kept.select(
        *KEYS, F.col("point.rate_per_s").alias("rate_per_s"), F.col("point.burst").alias("burst")
    )


_SUMMED: Final = ("first_ns", "last_ns", "messages", "receipts", "prefix", "suffix", "best")


def _merged(segments: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    flow = F.xxhash64(*KEYS)
    names = segments.groupBy(*KEYS).agg(*_sizes())
    ordered = segments.select(flow.alias("flow"), *_SUMMED).repartition("flow")
    found = ordered.sortWithinPartitions("flow", "first_ns").mapInArrow(
        envelope.merged, envelope.SEGMENT_FIELDS
    )
    return names.withColumn("flow", flow).join(found, on="flow", how="inner").drop("flow")


def _sizes() -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.max("size_bytes_max").alias("size_bytes_max"),
        F.sum("pairs").alias("pairs"),
        F.sum("bytes").alias("bytes"),
    ]


def _curve() -> Column:
    """Return the bursts for all rates, as whole messages."""
    from pyspark.sql import functions as F

    rates = F.array(*[F.lit(float(rate)) for rate in envelope.RATES])
    bursts = F.transform("best", lambda best: F.ceil(best - ROUNDING))
    return F.arrays_zip(rates.alias("rate_per_s"), bursts.alias("burst"))
