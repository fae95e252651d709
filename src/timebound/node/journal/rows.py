"""Rows of journals: made from messages or trace records, and selected for readers.

Offsets are dense, so they are not stored; readers get them with the rows. Selection by topic and by
comparisons is done inside Arrow, column by column; only a content filter evaluates rows one by one, in
slices, so that the broker is not delayed.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timebound.core.account.trace_log import TraceBatch
from timebound.core.predicate.predicate import Attributes, Predicate
from timebound.node.journal.columns import QOS_MASK, RETAIN_BIT, Pack
from timebound.node.trace.columns import to_table, trace_schema
from timebound.records import JOURNAL_FIELDS
from timebound.topics import matches

_PROPERTIES: Final = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
_NO_ENTRIES: Final = pa.array([], _PROPERTIES.value_type)
_TYPES: Final = {"bool": pa.bool_(), "list<struct<name: string, value: string>>": _PROPERTIES}
# Rows that a content filter evaluates before the broker gets its turn.
SLICE_ROWS: Final = 200
# Comparisons in requests, by name.
_COMPARISONS: Final = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a name in `records`."""
    known = _TYPES.get(name)
    return known if known is not None else pa.type_for_alias(name)


_MESSAGE_SCHEMA: Final = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in JOURNAL_FIELDS])


def message_schema() -> pa.Schema:
    """Return the schema of stored messages."""
    return _MESSAGE_SCHEMA


def record_schema() -> pa.Schema:
    """Return the schema of stored trace records."""
    return pa.schema([pa.field(field.name, field.type) for field in trace_schema()])


def served_schema(stored: pa.Schema) -> pa.Schema:
    """Return the schema for readers: the offset, the stored columns, and the gap."""
    fields = [pa.field("offset", pa.int64(), nullable=False), *stored, pa.field("gap", pa.int64())]
    return pa.schema(fields)


def encode_pack(pack: Pack) -> pa.RecordBatch:
    """Encode rows for storage; most of the work is done inside Arrow and numpy."""
    pack.join()
    rows = pack.rows
    kinds = _repeated(np.array(pack.kinds, np.uint8), pack.kind_rows, rows)
    arrays = [
        _spread(pack.topics, pack.topic_rows, rows),
        _encode_payloads(pack),
        _spread(pack.publishers, pack.publisher_rows, rows),
        pa.array((kinds & QOS_MASK).view(np.int8)),
        pa.array((kinds & RETAIN_BIT) > 0),
        pa.array(_repeated(np.array(pack.published_ns, np.int64), pack.published_rows, rows)),
        _encode_properties(pack),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_MESSAGE_SCHEMA)


def _repeated(values: Any, first_rows: list[int], rows: int) -> Any:
    """Return numbers for all rows, from those where they change."""
    if len(values) == rows:
        return values
    ends = np.array([*first_rows, rows])
    return np.repeat(values, ends[1:] - ends[:-1])


def _spread(texts: list[str], first_rows: list[int], rows: int) -> pa.Array:
    """Return texts for all rows, from those where they change."""
    if len(texts) == rows:
        return pa.array(texts, pa.string())
    if len(texts) == 1:
        whole = texts[0].encode()
        ends = np.arange(rows + 1, dtype=np.int32) * len(whole)
        return _of_bytes(pa.string(), ends, whole * rows)
    indices = _repeated(np.arange(len(texts), dtype=np.int32), first_rows, rows)
    return pa.array(texts, pa.string()).take(pa.array(indices))


def _encode_payloads(pack: Pack) -> pa.Array:
    ends = np.empty(pack.rows + 1, np.int32)
    ends[0] = 0
    np.cumsum(_repeated(np.array(pack.sizes, np.int32), pack.size_rows, pack.rows), out=ends[1:])
    return _of_bytes(pa.binary(), ends, pack.blobs[0] if len(pack.blobs) == 1 else b"".join(pack.blobs))


def _of_bytes(kind: pa.DataType, ends: Any, whole: bytes) -> pa.Array:
    """Return values that are contiguous in memory, given their ends."""
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(whole)])


def _encode_properties(pack: Pack) -> pa.Array:
    ends = np.zeros(pack.rows + 1, np.int32)
    if not pack.properties:
        return pa.ListArray.from_arrays(pa.array(ends), _NO_ENTRIES, type=_PROPERTIES)
    names: list[str] = []
    values: list[str] = []
    for row in range(pack.rows):
        for name, value in pack.properties.get(row, ()):
            names.append(name)
            values.append(value)
        ends[row + 1] = len(names)
    texts = [pa.array(names, pa.string()), pa.array(values, pa.string())]
    entries = pa.StructArray.from_arrays(texts, fields=list(_PROPERTIES.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), entries, type=_PROPERTIES)


def encode_records(batch: TraceBatch) -> pa.RecordBatch:
    table = to_table(batch).cast(record_schema()).combine_chunks()
    return table.to_batches()[0]


def serve_rows(first: int, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return stored rows in the schema for readers; fields of newer versions are null."""
    count = batch.num_rows
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(count, field.type)
        for field in schema
    ]
    columns[0] = pa.array(np.arange(first, first + count, dtype=np.int64))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def gap_row(first: int, count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return the row that stands for removed rows."""
    columns = [pa.nulls(1, field.type) for field in schema]
    columns[0] = pa.array([first], pa.int64())
    columns[-1] = pa.array([count], pa.int64())
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Selection:
    """A selection of rows: by topic filter, content filter and comparisons."""

    def __init__(
        self, topic_filter: str, predicate: Predicate | None, comparisons: list[tuple[str, str, Any]]
    ) -> None:
        """`topic_filter` may be empty; a comparison is a column, one of `= < <= > >=`, and a value."""
        self._topic_filter = topic_filter
        self._predicate = predicate
        self._comparisons = comparisons
        self._topics: dict[str, bool] = {}

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected rows of a batch; called for each batch in order."""
        for name, comparison, value in self._comparisons:
            column = batch.column(name)
            wanted = _COMPARISONS[comparison](column, pa.scalar(value, column.type))
            batch = batch.filter(wanted)  # rows whose comparison is null are excluded
        if self._topic_filter and batch.num_rows:
            batch = batch.filter(pc.is_in(batch.column("topic"), value_set=self._wanted_topics(batch)))
        if self._predicate is not None and batch.num_rows:
            batch = batch.filter(pa.array(self._matching(self._predicate, batch), pa.bool_()))
        return batch

    def _wanted_topics(self, batch: pa.RecordBatch) -> pa.Array:
        topics = pc.unique(batch.column("topic")).to_pylist()
        for topic in topics:
            if topic not in self._topics:
                self._topics[topic] = matches(self._topic_filter, topic)
        wanted = [topic for topic in topics if self._topics[topic]]
        if len(self._topics) > 10 * SLICE_ROWS:
            self._topics.clear()
        return pa.array(wanted, pa.string())

    def _matching(self, predicate: Predicate, batch: pa.RecordBatch) -> list[bool]:
        found: list[bool] = []
        for start in range(0, batch.num_rows, SLICE_ROWS):
            part = batch.slice(start, SLICE_ROWS)
            rows = zip(
                part.column("properties").to_pylist(),
                part.column("payload").to_pylist(),
                part.column("topic").to_pylist(),
                strict=True,
            )
            for properties, payload, topic in rows:
                pairs = tuple((entry["name"], entry["value"]) for entry in properties)
                found.append(predicate.matches(Attributes(pairs, payload, topic)))
            time.sleep(0)  # lets the broker run
        return found


def check_comparison(schema: pa.Schema, name: str, comparison: str, value: Any) -> None:
    """Check a comparison.

    Raises:
        ValueError: the column or the operator is unknown, or the value has a wrong type.
    """
    if name not in schema.names:
        raise ValueError(f"unknown column {name!r}; expected one of {', '.join(schema.names)}")
    if comparison not in _COMPARISONS:
        raise ValueError(f"unknown comparison {comparison!r}; expected one of {' '.join(_COMPARISONS)}")
    try:
        pa.scalar(value, schema.field(name).type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"column {name!r} cannot be compared with {value!r}") from error
