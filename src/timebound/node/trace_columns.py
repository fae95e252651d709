"""Runs of trace records, column by column: what files and journals are made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from timebound.core.trace_run import TraceKind, TraceRun

# Runs looked at, or a column made, before the broker gets its turn: a thread that does not wait holds
# the interpreter for 5 ms, and the broker would stand still.
SLICE_RUNS: Final = 500
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


def by_run(runs: list[TraceRun]) -> tuple[dict[str, Any], list[TraceKind]]:
    """The numbers of each run, by column, `kind` being an index into the kinds that come second."""
    import numpy as np  # here: a broker without a trace need not have it

    lists: dict[str, list[int]] = {name: [] for name in ("count", "kind", "offered_ns", *RISING)}
    for start in range(0, len(runs), SLICE_RUNS):
        part = runs[start : start + SLICE_RUNS]
        lists["count"] += [run.count for run in part]
        lists["kind"] += [id(run.kind) for run in part]
        lists["time_ns"] += [run.time_ns for run in part]
        lists["message_id"] += [run.message_id for run in part]
        lists["published_ns"] += [run.published_ns for run in part]
        lists["offered_ns"] += [run.offered_ns for run in part]
        lists["sent_ns"] += [run.sent_ns for run in part]
        let_others_run()
    numbers = {name: np.array(values, np.int64) for name, values in lists.items()}
    ended_ns = np.where(numbers["sent_ns"] > 0, numbers["sent_ns"], numbers["time_ns"])
    numbers["queued_ns"] = ended_ns - numbers["offered_ns"]  # until it was sent, or given up
    # By identity: equal ones that follow each other are the same object.
    _, firsts, numbers["kind"] = np.unique(numbers["kind"], return_index=True, return_inverse=True)
    return numbers, [runs[index].kind for index in firsts]


def let_others_run() -> None:
    """Give up the interpreter for a moment, which the broker may be waiting for."""
    time.sleep(0)
