"""The Spark schema of trace rows, of this version and of older ones.

Files written before a field existed are read with nulls in it; `normalise` fills in what follows from
other fields, so that no job needs to know versions.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from timebound.records import TRACE_FIELD_COUNTS, TRACE_FIELDS, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# Folders of a trace, and columns of every row.
PLACE: Final = ("date", "node")
# Fields of every version; a row without one of them cannot be checked.
OLDEST_FIELDS: Final = tuple(name for name, _ in TRACE_FIELDS[: TRACE_FIELD_COUNTS[1]])
COLUMNS: Final = (*(name for name, _ in TRACE_FIELDS), *PLACE)


@cache
def trace_schema() -> StructType:
    """Return the Spark schema of trace rows: the fields of `records`, then date and node."""
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
    """Fill in the fields that rows of older files lack.

    Before version 2 a row did not tell when its message was sent. With QoS 0 that is the time of the
    outcome; with QoS 1 and 2 it was some time before, and stays null.
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
    """Describe the columns that a file lacks; empty if it has all of the oldest version."""
    missing = [name for name in OLDEST_FIELDS if name not in present]
    if not missing:
        return ""
    return f"missing columns: {', '.join(missing)}; present: {', '.join(present) or 'none'}"
