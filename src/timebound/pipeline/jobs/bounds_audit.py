"""Job 6, audit of bounds: the real delays of admitted flows against their delay bounds.

Every message within an advertised contract carries the delay bound of its flow. It covers the time from
arrival until the message is offered to its subscribers' queues, but not the subscriber's link.
Messages beyond the contract have no guarantee.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from timebound.pipeline.jobs.cube import input_ns, is_violated
from timebound.pipeline.schema import COLUMNS
from timebound.units import MILLISECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def bounds_audit(cube: DataFrame) -> DataFrame:
    """Return one row per admitted flow: smallest bound, longest delay, number of violations."""
    from pyspark.sql import functions as F

    keys = ["node", "publisher", "topic"]
    promised = cube.where(F.col("is_promised"))
    added = promised.groupBy(*keys).agg(
        F.sum("pairs").alias("pairs"),
        F.min("promised_ns_min").alias("promised_ns_min"),
        F.max("promised_ns_max").alias("promised_ns_max"),
        F.max("input_ns_max").alias("input_ns_max"),
        F.sum("violations").alias("violations"),
    )
    return added.select(
        *keys,
        "pairs",
        (F.col("promised_ns_min") / MILLISECOND).alias("promised_min_ms"),
        (F.col("promised_ns_max") / MILLISECOND).alias("promised_max_ms"),
        (F.col("input_ns_max") / MILLISECOND).alias("worst_ms"),
        "violations",
        (F.col("violations") == 0).alias("is_kept"),
    )


def violations(rows: DataFrame) -> DataFrame:
    """Return the trace rows in which a bound was exceeded, with the delay of the message."""
    return rows.where(is_violated()).select(*COLUMNS, input_ns().alias("input_ns"))
