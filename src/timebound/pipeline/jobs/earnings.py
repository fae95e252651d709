"""Job 3, earnings and bills: prices and penalties in whole millionths, so that sums are exact.

A pair in time earns its price; one late or dropped costs its penalty. The totals equal what the
brokers count (`$SYS/broker/account/earned` and `paid`), to the millionth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timebound.records import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AMOUNTS: Final = ("earned_micro", "paid_micro", "net_micro")
PAIRS: Final = ("in_time", "late", "dropped")


def earnings(cube: DataFrame) -> DataFrame:
    """Return one row per node, hour and subscriber."""
    keys = ["node", "hour", "subscriber"]
    return cube.groupBy(*keys).agg(*_sums()).select(*keys, *PAIRS, *AMOUNTS)


def bills(cube: DataFrame) -> DataFrame:
    """Return the invoices: one row per subscriber and day, over all nodes.

    `amount_micro` is what the subscriber owes: prices of deliveries in time less penalties of the others.
    """
    from pyspark.sql import functions as F

    dated = cube.withColumn("day", F.to_date("hour"))
    lines = dated.groupBy("subscriber", "day").agg(*_sums())
    return lines.select(
        "subscriber",
        "day",
        *PAIRS,
        F.col("earned_micro").alias("price_micro"),
        F.col("paid_micro").alias("penalty_micro"),
        F.col("net_micro").alias("amount_micro"),
    )


def _sums() -> list[Column]:
    from pyspark.sql import functions as F

    def pairs_where(outcome: Outcome, name: str) -> Column:
        return F.sum(F.when(F.col("outcome") == outcome.value, F.col("pairs")).otherwise(0)).alias(name)

    return [
        pairs_where(Outcome.IN_TIME, "in_time"),
        pairs_where(Outcome.LATE, "late"),
        pairs_where(Outcome.DROPPED, "dropped"),
        F.sum("earned_micro").alias("earned_micro"),
        F.sum("paid_micro").alias("paid_micro"),
        (F.sum("earned_micro") - F.sum("paid_micro")).alias("net_micro"),
    ]
