"""Job 1, quality: which trace rows are valid, and what is wrong with the others.

A row has the first fault that applies, or none. Rows with a fault go to quarantine unchanged and are
counted; no other job sees them. Every rule is about one row: rows that seem to contradict each other,
such as two outcomes of one pair, can be legitimate (a retained message).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timebound.pipeline.schema import COLUMNS, OLDEST_FIELDS
from timebound.records import Outcome, Reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAULT: Final = "fault"
QOS_MAX: Final = 2
_NOT_NEGATIVE: Final = (
    "message_id",
    "size_bytes",
    "published_ns",
    "queued_ns",
    "allowed_ns",
    "price_micro",
    "penalty_micro",
    "hop",
)


def with_faults(rows: DataFrame) -> DataFrame:
    """Add the column `fault`: null for a row that can be used."""
    from pyspark.sql import functions as F

    fault = F.coalesce(*[F.when(condition, F.lit(text)) for text, condition in _rules()])
    return rows.select(*COLUMNS, fault.alias(FAULT))


def good(judged: DataFrame) -> DataFrame:
    """Return the valid rows."""
    from pyspark.sql import functions as F

    return judged.where(F.col(FAULT).isNull()).select(*COLUMNS)


def bad(judged: DataFrame) -> DataFrame:
    """Return the rows with a fault."""
    from pyspark.sql import functions as F

    return judged.where(F.col(FAULT).isNotNull()).select(*COLUMNS, FAULT)


def _rules() -> list[tuple[str, Column]]:
    """Return the faults in order; later rules rely on columns that earlier ones have checked."""
    from pyspark.sql import functions as F

    outcome, reason = F.col("outcome"), F.col("reason")
    is_dropped = outcome == Outcome.DROPPED.value
    limited = F.col("allowed_ns") > 0
    sent_after_ns = F.col("sent_ns") - F.col("published_ns")
    known_after_ns = F.col("time_ns") - F.col("published_ns")
    # An acknowledgement may come before the link was expected to be free: the later time counts.
    ended_after_ns = F.greatest(known_after_ns, sent_after_ns)
    rules = [(f"{name} is missing", F.col(name).isNull()) for name in OLDEST_FIELDS]
    rules += [(f"{name} is negative", F.col(name) < 0) for name in _NOT_NEGATIVE]
    rules += [
        ("qos is not 0, 1 or 2", ~F.col("qos").between(0, QOS_MAX)),
        ("outcome is unknown", ~outcome.isin([one.value for one in Outcome])),
        ("dropped without a reason", is_dropped & (reason == "")),
        ("reason is unknown", ~reason.isin(["", *[one.value for one in Reason]])),
        ("delivered with a reason to drop it", ~is_dropped & (reason != "")),
        ("it ended before it was published", known_after_ns < 0),
        ("it was sent before it was published", (F.col("sent_ns") > 0) & (sent_after_ns < 0)),
        ("late without a limit", (outcome == Outcome.LATE.value) & ~limited),
        (
            "late within its limit",
            (outcome == Outcome.LATE.value) & (ended_after_ns <= F.col("allowed_ns")),
        ),
        (
            "in time beyond its limit",
            (outcome == Outcome.IN_TIME.value) & limited & (sent_after_ns > F.col("allowed_ns")),
        ),
    ]
    return rules
