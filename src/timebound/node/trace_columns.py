"""Runs of trace records, column by column: what files and journals are made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from timebound.core.trace_run import TraceKind
from timebound.node.trace_pack import MIXED, PACKED, RunPack

# Columns that each run has a number of its own for. They mostly grow, and readers select by them.
RISING: Final = ("time_ns", "message_id", "published_ns", "queued_ns", "sent_ns")
# Where the other columns come from.
FIELDS_OF_KIND: Final[dict[str, Callable[[TraceKind], Any]]] = {
    "topic": lambda kind: kind.topic,
    "publisher": lambda kind: kind.publisher,
    "subscriber": lambda kind: kind.client_id,
    "topic_filter": lambda kind: kind.subscription.topic_filter if kind.subscription else "",
    "qos": lambda kind: kind.qos,
    "size_bytes": lambda kind: kind.size_bytes,
    "allowed_ns": lambda kind: kind.allowed_ns,
    "outcome": lambda kind: kind.outcome,
    "reason": lambda kind: kind.reason,
    "price_micro": lambda kind: kind.subscription.price_micro if kind.subscription else 0,
    "penalty_micro": lambda kind: kind.subscription.penalty_micro if kind.subscription else 0,
    "hop": lambda kind: kind.hops,
    "link": lambda kind: kind.link or kind.client_id,
    "promised_ns": lambda kind: kind.promised_ns,
}


def by_run(pack: RunPack) -> tuple[dict[str, Any], list[TraceKind]]:
    """The numbers of each run, by column, and the kinds of records.

    `kind` and `kind_count` say which of them comes next and for how many records: for a run each, or
    for a record each, where a run has several.
    """
    import numpy as np  # here: a broker without a trace need not have it

    table = np.frombuffer(pack.numbers, np.int64).reshape(-1, len(PACKED))
    numbers = dict(zip(PACKED, np.ascontiguousarray(table.T), strict=True))
    ended_ns = np.where(numbers["sent_ns"] > 0, numbers["sent_ns"], numbers["time_ns"])
    numbers["queued_ns"] = ended_ns - numbers["offered_ns"]  # until it was sent, or given up
    count = numbers["kind_count"] = numbers["count"]
    if pack.mixed:
        is_mixed = numbers["kind"] == MIXED
        pieces = np.where(is_mixed, count, 1)
        numbers["kind_count"] = np.repeat(np.where(is_mixed, 1, count), pieces)
        numbers["kind"] = np.repeat(numbers["kind"], pieces)
        numbers["kind"][numbers["kind"] == MIXED] = np.frombuffer(pack.mixed, np.int32)
    return numbers, list(pack.kinds)


def let_others_run() -> None:
    """Give up the interpreter for a moment, which the broker may be waiting for.

    A thread that does not wait holds it for 5 ms, in which the broker stands still.
    """
    time.sleep(0)
