"""Trace rows as Spark sees them: their columns from `records`, of this version and of older ones.

Files written before a field existed are read with nulls in it; `normalise` puts in what follows from
the other fields, so that no job needs to know versions.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from timebound.records import TRACE_FIELD_COUNTS, TRACE_FIELDS, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# Where a row was written; folders of the trace, and columns of every row.
PLACE: Final = ("date", "node")
# All that a file of any version has; without one of them a row cannot be judged.
OLDEST_FIELDS: Final = tuple(name for name, _ in TRACE_FIELDS[: TRACE_FIELD_COUNTS[1]])
COLUMNS: Final = (*(name for name, _ in TRACE_FIELDS), *PLACE)


@cache
def trace_schema() -> StructType:
    """The Spark schema of trace rows, with date and node behind the fields of `records`."""
    from pyspark.sql import types

    kinds = {
        "int8": types.ByteType(),
        "int16": types.ShortType(),
        "int32": types.IntegerType(),
        "int64": types.LongType(),
        "string": types.StringType(),
    }
    fields = [types.StructField(name, kinds[kind]) for name, kind in TRACE_FIELDS]
    fields += [types.StructField(name, types.StringType()) for name in PLACE]
    return types.StructType(fields)


def normalise(rows: DataFrame) -> DataFrame:
    """Give rows of older files the fields of today.

    Before version 2 a row did not say when its message was sent. Delivered with QoS 0, that is when the
    outcome was known; with more, it was some time before, and stays null.
    """
    from pyspark.sql import functions as F

    is_old = F.col("promised_ns").isNull() & F.col("sent_ns").isNull()
    is_told_at_once = (F.col("outcome") != Outcome.DROPPED.value) & (F.col("qos") == 0)
    sent_ns = F.when(is_old & is_told_at_once, F.col("time_ns")).otherwise(F.col("sent_ns"))
    return rows.select(
        *[
            sent_ns.alias(name)
            if name == "sent_ns"
            else F.coalesce(F.col(name), F.lit(0)).alias(name)
            if name == "promised_ns"
            else F.col(name)
            for name in COLUMNS
        ]
    )


def missing_columns(present: list[str]) -> str:
    """What a file lacks, in words; empty if it has all that the oldest version has."""
    missing = [name for name in OLDEST_FIELDS if name not in present]
    if not missing:
        return ""
    return f"missing columns: {', '.join(missing)}; present: {', '.join(present) or 'none'}"
