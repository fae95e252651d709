"""A PySpark data source that reads journals of brokers, in batches and as a stream.

    spark.read.format("timebound").option("servers", "127.0.0.1:8815").option("topic", "plant/#").load()

Offsets of a stream are those of the journals, per server, so the ranges of a checkpoint can be read
again with equal rows. Ranges are split into partitions that executors read directly from the brokers.
A range that was removed is an error, or a row with `gap` set, by option; it is never skipped silently.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from timebound.errors import ConfigError, JournalError
from timebound.pipeline.datasource.flight import FlightClient, JournalState, Range, check_gaps
from timebound.pipeline.datasource.options import EARLIEST, LATEST, Offsets, Options, parse_options
from timebound.records import JOURNAL_FIELDS, TRACE_FIELDS

if TYPE_CHECKING:
    import pyarrow as pa

    from timebound.pipeline.datasource.sink import StreamWriter, Writer

# While nothing new arrives, how often a stream polls its brokers, and for how long in one call: Spark
# itself would poll every 11 ms.
POLL_S: Final = 0.05
POLL_TOTAL_S: Final = 0.5

_SPARK_TYPES: Final = {
    "string": "string",
    "binary": "binary",
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "list<struct<name: string, value: string>>": "array<struct<name:string,value:string>>",
}
# Columns that the source adds to those of a broker.
_ADDED: Final = ("server", "node", "journal", "published")
_COMPARISONS: Final = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
# Columns that broker and Spark compare in the same way.
_COMPARED: Final = frozenset({"offset", "topic", "publisher", "qos", "published_ns"})

StreamOffset = dict[str, dict[str, Any]]


def source_schema(kind: str) -> str:
    """Return the columns of messages or trace records, in Spark's notation."""
    fields = TRACE_FIELDS if kind == "trace" else JOURNAL_FIELDS
    columns = ["server string", "node string", "journal string", "offset bigint"]
    columns += [f"{name} {_SPARK_TYPES[arrow]}" for name, arrow in fields]
    return ", ".join([*columns, "published timestamp", "gap bigint"])


class TimeboundDataSource(DataSource):
    """The data source behind `format("timebound")`."""

    @classmethod
    def name(cls) -> str:
        return "timebound"

    def schema(self) -> str:
        return source_schema(parse_options(self.options).kind)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        # A reader that pushes filters fails where Spark has that turned off, which is the default.
        return PushingReader(options, schema) if options.push_filters else Reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        from timebound.pipeline.datasource.sink import Writer

        return Writer(parse_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from timebound.pipeline.datasource.sink import StreamWriter

        return StreamWriter(parse_options(self.options), schema)


class RangePartition(InputPartition):
    """One range for one task."""

    def __init__(self, wanted: Range) -> None:
        self.range = wanted


class _Ranges:
    """Reads ranges into rows of the requested schema."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.names = list(schema.names)
        known = [column.split(" ")[0] for column in source_schema(options.kind).split(", ")]
        for name in self.names:
            if name not in known:
                raise ConfigError(f"unknown column {name!r}; expected {', '.join(known)}", key="schema")
        if options.gaps == "row" and "gap" not in self.names:
            raise ConfigError('gaps as rows require the column "gap"', key="schema")
        self.comparisons: list[tuple[str, str, Any]] = []

    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        asked = [name for name in self.names if name not in _ADDED]
        if "published" in self.names:
            asked.append("published_ns")
        with FlightClient(wanted.server, self.options) as client:
            for batch in client.read(wanted, asked, self.comparisons):
                if self.options.gaps == "error":
                    check_gaps(batch, wanted)
                yield self._complete(batch, wanted)

    def _complete(self, batch: pa.RecordBatch, wanted: Range) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        count = batch.num_rows
        added = {
            "server": lambda: pa.repeat(wanted.server, count),
            "node": lambda: pa.repeat(wanted.node, count),
            "journal": lambda: pa.repeat(wanted.journal, count),
            # Spark's timestamps are microseconds.
            "published": lambda: pc.divide(batch.column("published_ns"), 1000).cast(
                pa.timestamp("us", tz="UTC")
            ),
        }
        columns = [added[name]() if name in added else batch.column(name) for name in self.names]
        return pa.RecordBatch.from_arrays(columns, names=self.names)

    def split(self, ranges: Iterable[Range]) -> list[InputPartition]:
        """Split ranges into partitions of nearly equal size, at most `rows_per_partition` offsets each."""
        found: list[InputPartition] = []
        for one in ranges:
            rows = one.end - one.start
            count = -(-rows // self.options.rows_per_partition)
            for number in range(count):
                start = one.start + rows * number // count
                end = one.start + rows * (number + 1) // count
                found.append(RangePartition(replace(one, start=start, end=end)))
        return found


class Reader(DataSourceReader):
    """Reads what the journals have when it is planned, or the requested offsets."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._ranges = _Ranges(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._ranges.options
        ranges = []
        for state in find_all(options):
            start = offset_of(options.starting, state, "startingOffsets")
            end = offset_of(options.ending, state, "endingOffsets")
            if end > state.next:
                raise JournalError(
                    f"endingOffsets name offset {end} of {state.server}, whose journal ends at {state.next}"
                )
            start, end = self._narrow(start, end)
            ranges.append(
                Range(state.server, state.journal, state.identity, start, max(start, end), state.node)
            )
        return self._ranges.split(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return self._ranges.read(partition.range)

    def _narrow(self, start: int, end: int) -> tuple[int, int]:
        """Exclude offsets that comparisons rule out."""
        for name, comparison, value in self._ranges.comparisons:
            if name == "offset":
                if comparison in ("=", ">", ">="):
                    start = max(start, value + (comparison == ">"))
                if comparison in ("=", "<", "<="):
                    end = min(end, value + (comparison != "<"))
        return start, end


class PushingReader(Reader):
    """The same, with comparisons at the broker.

    Spark repeats them, since gap rows pass the broker whatever is compared.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            comparison = _COMPARISONS.get(type(one))
            attribute: tuple[str, ...] = getattr(one, "attribute", ())
            if comparison and len(attribute) == 1 and attribute[0] in _COMPARED:
                value = getattr(one, "value", None)
                self._ranges.comparisons.append((attribute[0], comparison, value))
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads continuously, in batches of at most `maxRowsPerBatch` offsets."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._ranges = _Ranges(options, schema)
        self._initial: StreamOffset | None = None
        self._target: StreamOffset | None = None

    def initialOffset(self) -> StreamOffset:
        # Called twice for a new query; "latest" must mean the same both times.
        if self._initial is None:
            options = self._ranges.options
            states = find_all(options)
            self._initial = {
                state.server: _entry(state, offset_of(options.starting, state, "startingOffsets"))
                for state in states
            }
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._ranges.options.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {state.server: _entry(state, state.next) for state in find_all(self._ranges.options)}

    def reportLatestOffset(self) -> StreamOffset:
        return {state.server: _entry(state, state.next) for state in find_all(self._ranges.options)}

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        # While the brokers have nothing new, wait a little: each call costs Spark some work.
        end_s = time.monotonic() + POLL_TOTAL_S
        while True:
            latest = self._target if self._target is not None else self.reportLatestOffset()
            offset = advance(start, latest, limit)
            if offset != start or self._target is not None or time.monotonic() >= end_s:
                return offset
            time.sleep(POLL_S)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        ranges = [
            Range(
                server,
                entry["journal"],
                entry["identity"],
                start[server]["offset"] if server in start else 0,
                entry["offset"],
                entry.get("node") or server,  # checkpoints of earlier versions lack the name
            )
            for server, entry in end.items()
        ]
        return self._ranges.split(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return self._ranges.read(partition.range)


def find_all(options: Options) -> list[JournalState]:
    """Find the journal of every server."""
    found: list[JournalState] = []
    for server in options.servers:
        with FlightClient(server, options) as client:
            found.append(client.find())
    return found


def offset_of(offsets: Offsets, state: JournalState, name: str) -> int:
    """Return the offset that an option means for a journal."""
    offset = offsets if isinstance(offsets, str) else offsets[state.server]
    if offset == EARLIEST:
        return state.first
    if offset == LATEST:
        return state.next
    assert isinstance(offset, int)
    if offset > state.next:
        raise JournalError(
            f"{name} name offset {offset} of {state.server}, whose journal ends at {state.next}"
        )
    return offset


def advance(start: StreamOffset, latest: StreamOffset, limit: ReadLimit) -> StreamOffset:
    """Return the end of a batch: the latest offsets, or a proportional part where that is too much.

    A server that was added begins at its first offset; one that was removed keeps its offset.

    Raises:
        JournalError: a journal is not the one that was read before.
    """
    ways: dict[str, int] = {}
    for server, entry in latest.items():
        known = start.get(server)
        if known is not None and known["identity"] != entry["identity"]:
            raise JournalError(
                f"journal {entry['journal']!r} of {server} is not the one this query has read: it was"
                " recreated, and its offsets mean other rows; start the query with a new checkpoint"
            )
        if known is not None and known["offset"] > entry["offset"]:
            raise JournalError(
                f"journal {entry['journal']!r} of {server} ends at {entry['offset']}, before offset "
                f"{known['offset']} that this query has read; was its data restored from a backup?"
            )
        ways[server] = entry["offset"] - (known["offset"] if known is not None else 0)
    rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
    total = sum(ways.values())
    offset = {server: dict(entry) for server, entry in start.items()}
    left = total if isinstance(limit, ReadAllAvailable) or rows_max is None else min(rows_max, total)
    for server in ways:
        # In proportion, but never all rounded down to 0.
        step = min(ways[server], left, -(-ways[server] * (rows_max or total) // max(total, 1)))
        left -= step
        first = start[server]["offset"] if server in start else 0
        if step or server in start:
            offset[server] = {**latest[server], "offset": first + step}
    return offset


def _entry(state: JournalState, offset: int) -> dict[str, Any]:
    return {"journal": state.journal, "identity": state.identity, "offset": offset, "node": state.node}
