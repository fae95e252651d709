"""Job 4, links: seconds per KB of each link and window, from the send times in the trace.

While a message waits for a link, the link is busy with those before it. So the time from one send to
the next, where the next was already waiting, is the duration of the first. Sends within a slot of
10 ms count as one: brokers send in batches, and a batch has only one time.

The model's μ and σ² are weighted by KB (docs/model.md, section 2). Samples are kept as counts in buckets,
which merge; before mean and variance are computed, the lowest and highest twentieth are winsorised, so
that a stalled receiver does not look like a slow link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timebound.pipeline.jobs.cube import ended_ns
from timebound.pipeline.jobs.histogram import bucket_of
from timebound.records import Outcome
from timebound.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KILOBYTE: Final = 1_024
SLOT_NS: Final = 10 * MILLISECOND
WINDOW_NS: Final = 10 * SECOND
# Share of the KB at either end that is winsorised.
TAIL: Final = 0.05
# A window whose mean differs by more than this share from that of all earlier windows has drifted.
DRIFT_SHARE: Final = 0.25
# Windows with fewer samples are listed, but never count as a drift.
SAMPLES_MIN: Final = 10
KEYS: Final = ("node", "link", "window")


def slots(rows: DataFrame, keys: tuple[str, ...] = ()) -> DataFrame:
    """Return what each link was given in each slot of time."""
    from pyspark.sql import functions as F

    sent_ns = ended_ns()
    is_sent = (F.col("outcome") != Outcome.DROPPED.value) & (F.col("sent_ns") > 0)
    sent = rows.where(is_sent).select(
        *[F.col(key) for key in keys],
        "node",
        "link",
        (sent_ns - sent_ns % F.lit(SLOT_NS)).alias("slot_ns"),
        sent_ns.alias("sent_ns"),
        (sent_ns - F.col("queued_ns")).alias("offered_ns"),
        F.col("size_bytes").cast("long").alias("bytes"),
    )
    added = sent.groupBy(*keys, "node", "link", "slot_ns").agg(
        F.min("sent_ns").alias("first_ns"),
        F.max("sent_ns").alias("last_ns"),
        F.min("offered_ns").alias("offered_ns"),  # of the message that waited longest
        F.sum("bytes").alias("bytes"),
    )
    return added.select(*keys, *["node", "link", "first_ns", "last_ns", "offered_ns", "bytes"])


def samples(slotted: DataFrame, keys: tuple[str, ...] = ()) -> DataFrame:
    """Sum, by window and bucket, the durations of slots in which the link was busy.

    `kb`, `seconds` and `squares` are sums of k, k·x and k·x² over samples of k KB at x seconds per KB.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_link = Window.partitionBy(*keys, "node", "link").orderBy("first_ns")
    followed = slotted.select(
        *keys,
        *["node", "link", "first_ns", "last_ns", "bytes"],
        F.lead("first_ns").over(by_link).alias("next_ns"),
        F.lead("offered_ns").over(by_link).alias("next_offered_ns"),
    )
    was_waited_for = (F.col("next_offered_ns") <= F.col("last_ns")) & (F.col("bytes") > 0)
    seconds = (F.col("next_ns") - F.col("first_ns")) / SECOND
    kb = F.col("bytes") / KILOBYTE
    measured = followed.where(was_waited_for & (F.col("next_ns") > F.col("first_ns"))).select(
        *keys,
        *["node", "link"],
        _window_of(F.col("first_ns")).alias("window"),
        kb.alias("kb"),
        seconds.alias("seconds"),
        # In nanoseconds, so that even the fastest link fills buckets above the first.
        bucket_of(seconds / kb * SECOND).alias("bucket"),
    )
    return measured.groupBy(*keys, *KEYS, "bucket").agg(
        F.count("*").alias("samples"),
        F.sum("kb").alias("kb"),
        F.sum("seconds").alias("seconds"),
        F.sum(F.col("seconds") * F.col("seconds") / F.col("kb")).alias("squares"),
    )


def links(sampled: DataFrame) -> DataFrame:
    """Return mean and variance of the seconds per KB of each link and window, and whether they drift."""
    merged = sampled.groupBy(*KEYS, "bucket").agg(*_sums())
    return _with_drift(_winsorised(merged))


def _sums() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.sum(name).alias(name) for name in ("samples", "kb", "seconds", "squares")]


def _winsorised(merged: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_window = Window.partitionBy(*KEYS)
    so_far = by_window.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = by_window.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    value = F.col("seconds") / F.col("kb")
    ranked = merged.select(
        *KEYS,
        *["samples", "kb", "seconds", "squares"],
        value.alias("value"),
        (F.sum("kb").over(so_far) / F.sum("kb").over(whole)).alias("upper"),
        ((F.sum("kb").over(so_far) - F.col("kb")) / F.sum("kb").over(whole)).alias("lower"),
    )
    # The bucket in which the tail ends is the last one that is not winsorised.
    is_inside = (F.col("upper") > TAIL) & (F.col("lower") < 1.0 - TAIL)
    low = F.min(F.when(is_inside, F.col("value"))).over(whole)
    high = F.max(F.when(is_inside, F.col("value"))).over(whole)
    pulled = F.when(F.col("upper") <= TAIL, low).when(F.col("lower") >= 1.0 - TAIL, high)
    clipped = ranked.select(
        *KEYS,
        *["samples", "kb"],
        F.coalesce(pulled * F.col("kb"), F.col("seconds")).alias("seconds"),
        F.coalesce(pulled * pulled * F.col("kb"), F.col("squares")).alias("squares"),
        F.col("seconds").alias("seconds_plain"),
    )
    added = clipped.groupBy(*KEYS).agg(*_sums(), F.sum("seconds_plain").alias("seconds_plain"))
    mean = F.col("seconds") / F.col("kb")
    variance = F.greatest(F.col("squares") / F.col("kb") - mean * mean, F.lit(0.0))
    return added.select(
        *KEYS,
        *["samples", "kb"],
        mean.alias("mean_s_per_kb"),
        variance.alias("variance"),
        (F.col("seconds_plain") / F.col("kb")).alias("mean_plain_s_per_kb"),
    )


def _with_drift(measured: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_link = Window.partitionBy("node", "link").orderBy("window")
    before = by_link.rowsBetween(Window.unboundedPreceding, -1)
    earlier = F.sum(F.col("mean_s_per_kb") * F.col("kb")).over(before) / F.sum("kb").over(before)
    has_enough = (F.col("samples") >= SAMPLES_MIN) & (F.sum("samples").over(before) >= SAMPLES_MIN)
    compared = measured.withColumns({"earlier_s_per_kb": earlier, "_has_enough": has_enough})
    change = F.abs(F.col("mean_s_per_kb") / F.col("earlier_s_per_kb") - 1.0)
    is_drift = F.coalesce(F.col("_has_enough") & (change > DRIFT_SHARE), F.lit(False))
    return compared.select(
        *KEYS,
        *["samples", "kb", "mean_s_per_kb", "variance", "mean_plain_s_per_kb", "earlier_s_per_kb"],
        (F.lit(KILOBYTE) / F.col("mean_s_per_kb")).alias("rate_bytes_per_s"),
        is_drift.alias("is_drift"),
    )


def _window_of(time_ns: Column) -> Column:
    from pyspark.sql import functions as F

    start_ns = time_ns - time_ns % F.lit(WINDOW_NS)
    return F.timestamp_seconds((start_ns / F.lit(SECOND)).cast("long"))
