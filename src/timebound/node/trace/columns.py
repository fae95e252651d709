"""Trace records as columns, for files and journals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from timebound.core.account.trace_log import ROW_FIELDS, RUN_FIELDS, TraceBatch
from timebound.core.values.trace_columns import MessageColumns, ReceiverColumns
from timebound.node.trace.parquet.runs import Coded, Rising
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION

TRACE_METADATA: Final = {"timebound.trace.version": str(TRACE_SCHEMA_VERSION)}
# Columns with a number per run. They mostly increase, and readers select by them.
RISING: Final = ("time_ns", "message_id", "published_ns", "queued_ns", "sent_ns", "number")
# Of these, the columns that count up inside a run.
COUNTING: Final = ("message_id", "number")
# Where the other columns come from.
FIELDS_OF_MESSAGE: Final[dict[str, Callable[[MessageColumns], Any]]] = {
    "topic": attrgetter("topic"),
    "publisher": attrgetter("publisher"),
    "hop": attrgetter("hops"),
    "promised_ns": attrgetter("promised_ns"),
    "origin": attrgetter("origin"),
    "started_ns": attrgetter("started_ns"),
    "traceparent": attrgetter("traceparent"),
}
FIELDS_OF_RECEIVER: Final[dict[str, Callable[[ReceiverColumns], Any]]] = {
    "subscriber": attrgetter("client_id"),
    "topic_filter": attrgetter("topic_filter"),
    "qos": attrgetter("qos"),
    "allowed_ns": attrgetter("allowed_ns"),
    "outcome": attrgetter("outcome"),
    "reason": attrgetter("reason"),
    "price_micro": attrgetter("price_micro"),
    "penalty_micro": attrgetter("penalty_micro"),
    "link": lambda receiver: receiver.link or receiver.client_id,
}
# Numbers up to here are looked up in a table; larger ones, of huge messages, by binary search.
_TABLE_MAX: Final = 1 << 20


def trace_schema() -> pa.Schema:
    """Return the Arrow schema of trace files, from records.TRACE_FIELDS."""
    fields = [pa.field(name, getattr(pa, kind)(), nullable=False) for name, kind in TRACE_FIELDS]
    return pa.schema(fields, metadata=TRACE_METADATA)


def parquet_columns(batch: TraceBatch) -> tuple[Any, list[Coded | Rising]]:
    """Return the records per run, and the columns for Parquet files."""
    of_runs = _run_columns(batch)
    columns: dict[str, Coded | Rising] = dict(_coded_columns(batch))
    for name in RISING:
        columns[name] = Rising(of_runs[name], int(name in COUNTING))
    return of_runs["count"], [columns[name] for name, _ in TRACE_FIELDS]


def to_table(batch: TraceBatch) -> pa.Table:
    """Return the records as a table, one row each; texts stay dictionary-encoded."""
    of_runs = _run_columns(batch)
    counts = of_runs["count"]
    rows = batch.count
    # The value of the first record of each run minus its position, plus the position of each.
    starts = np.cumsum(counts) - counts
    columns = {name: pa.array(np.repeat(of_runs[name], counts)) for name in RISING if name not in COUNTING}
    for name in COUNTING:
        columns[name] = pa.array(np.repeat(of_runs[name] - starts, counts) + np.arange(rows))
    types = dict(TRACE_FIELDS)
    for name, column in _coded_columns(batch):
        let_others_run()
        codes = np.zeros(rows, np.int32) if column.codes is None else column.codes.astype(np.int32)
        if column.codes is not None and column.counts is not None:
            codes = np.repeat(codes, column.counts)
        if types[name] == "string":
            columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array(column.values, pa.string()))
        else:
            columns[name] = pa.array(np.asarray(column.values, types[name])[codes])
    coded = pa.dictionary(pa.int32(), pa.string())
    fields = [field.with_type(coded) if field.type == pa.string() else field for field in trace_schema()]
    return pa.Table.from_arrays(
        [columns[field.name] for field in fields], schema=pa.schema(fields, metadata=TRACE_METADATA)
    )


def _run_columns(batch: TraceBatch) -> dict[str, Any]:
    """Return the numbers of each run: those of RUN_FIELDS and of RISING."""
    table = np.frombuffer(batch.runs, "<i8").reshape(-1, len(RUN_FIELDS))
    columns = dict(zip(RUN_FIELDS, np.ascontiguousarray(table.T), strict=True))
    ended_ns = np.where(columns["sent_ns"] > 0, columns["sent_ns"], columns["time_ns"])
    columns["queued_ns"] = ended_ns - columns["offered_ns"]  # until it was sent or dropped
    return columns


def _coded_columns(batch: TraceBatch) -> Iterator[tuple[str, Coded]]:
    """Yield the other columns by name."""
    table = np.frombuffer(batch.rows, "<i4").reshape(-1, len(ROW_FIELDS))
    rows = dict(zip(ROW_FIELDS, np.ascontiguousarray(table.T), strict=True))
    counts = rows["repeats"] if len(table) < batch.count else None
    yield from _coded_by(rows["message"], batch.message_columns, FIELDS_OF_MESSAGE, counts)
    yield from _coded_by(rows["receiver"], batch.receiver_columns, FIELDS_OF_RECEIVER, counts)
    sizes = _different(rows["size_bytes"])
    yield "size_bytes", Coded(sizes, _codes(rows["size_bytes"], sizes, range(len(sizes))), counts)


def _coded_by(
    numbers: Any, entries: list[Any], fields: Mapping[str, Callable[[Any], Any]], counts: Any
) -> Iterator[tuple[str, Coded]]:
    """Yield columns of the fields of entries, of which each row has a number."""
    different = _different(numbers)
    used = [entries[number] for number in different]
    for name, value_of in fields.items():
        values = list(map(value_of, used))
        code_of = {value: code for code, value in enumerate(dict.fromkeys(values))}
        codes = list(map(code_of.__getitem__, values)) if len(code_of) > 1 else [0]
        yield name, Coded(list(code_of), _codes(numbers, different, codes), counts)


def _different(numbers: Any) -> Any:
    """Return the distinct numbers in ascending order."""
    largest = numbers.max()
    if numbers.min() == largest:
        return numbers[:1]
    return np.flatnonzero(np.bincount(numbers)) if largest < _TABLE_MAX else np.unique(numbers)


def _codes(numbers: Any, different: Any, codes: Sequence[int]) -> Any:
    """Return the code of each number, given those of the distinct ones; None if there is only one."""
    largest_code = max(codes)
    if largest_code == 0:
        return None
    of_different = np.array(codes, np.min_scalar_type(largest_code))
    if different[-1] >= _TABLE_MAX:
        return of_different[np.searchsorted(different, numbers)]
    table = np.empty(different[-1] + 1, of_different.dtype)
    table[different] = of_different
    return table.take(numbers)


def let_others_run() -> None:
    """Release the interpreter's lock for a moment, for which the broker may be waiting.

    A thread that does not wait holds it for 5 ms, in which the broker stalls.
    """
    time.sleep(0)
