"""Job 6, audit of bounds: how long the messages of admitted flows really waited, against the promise.

Every message within an advertised contract carries the bound that its flow was told. What is held
against it is the time from its arrival until it was offered to its subscribers' queues; how fast a
subscriber's link then takes it is not promised. Messages beyond the contract carry no promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from timebound.pipeline.jobs.cube import input_ns, is_violated
from timebound.pipeline.schema import COLUMNS
from timebound.units import MILLISECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def bounds_audit(cube: DataFrame) -> DataFrame:
    """One row for each admitted flow: the smallest promise, the longest wait, and how often it was broken."""
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
    """The trace rows in which a promise was broken, with how long the message waited."""
    return rows.where(is_violated()).select(*COLUMNS, input_ns().alias("input_ns"))
