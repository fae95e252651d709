"""Trace files: one record for every matched (message, subscription), as Parquet for Spark to read.

    <path>/date=2026-01-31/node=timebound/part-<nanoseconds>-<number>.parquet

Records collect in memory as Arrow columns and are written by a thread of their own. A file has a
hidden name until it is complete, then it is renamed into place, so a reader never sees half of
one. Files are closed by size and age; when all together are larger than allowed, the oldest go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timebound.core.trace_run import TraceKind, TraceRun
from timebound.errors import ConfigError
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("timebound.trace")

# Runs handed over and not yet written, at most; beyond that the trace has a gap, which is counted.
PENDING_RUNS_MAX: Final = 2_000_000
# Rows put into one row group of a file.
GROUP_ROWS: Final = 262_144
# How often records are collected and written, as one row group at least.
COLLECT_S: Final = 0.5
# Runs looked at, or a column made, before the broker gets its turn: a thread that does not wait holds
# the interpreter for 5 ms, and the broker would stand still.
SLICE_RUNS: Final = 500
_METADATA: Final = {"timebound.trace.version": str(TRACE_SCHEMA_VERSION)}
# Columns whose values mostly grow, and by which readers select. As differences they take a few bits a
# record; all others, and texts, are few different values. Against the defaults of the library that is
# a fifth of the time and a thirtieth of the space (200 ns and 0.1 bytes a record in runs of 32).
_RISING: Final = ("time_ns", "message_id", "published_ns", "queued_ns", "sent_ns")


# Where the other columns come from.
_FIELDS_OF_KIND: Final[dict[str, Callable[[TraceKind], Any]]] = {
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


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """When a file is closed, and how much all of them may take."""

    file_bytes_max: int
    file_age_max_s: float
    disk_bytes_max: int


class TraceWriter:
    """Writes the trace of one node in a thread."""

    def __init__(self, path: Path, node_name: str, limits: TraceLimits) -> None:
        try:
            import pyarrow  # noqa: F401 - found missing here, not in the thread
        except ImportError as error:
            raise ConfigError(
                "tracing needs the package pyarrow; install it with: pip install 'timebound[trace]'",
                key="trace.enabled",
            ) from error
        self._path = path
        self._node_name = node_name
        self._limits = limits
        self._handed_over: deque[TraceRun] = deque()
        self._stopping = threading.Event()
        self._file: _TraceFile | None = None
        self._number = 0
        self.rows_written = 0
        self.rows_lost = 0
        path.mkdir(parents=True, exist_ok=True)
        _sweep_hidden(path, node_name)
        self._thread = threading.Thread(target=self._run, name="timebound-trace", daemon=True)
        self._thread.start()

    def write(self, runs: list[TraceRun]) -> None:
        """Hand over records; returns at once. What is too much is counted in `rows_lost`."""
        if not runs:
            return
        if len(self._handed_over) + len(runs) > PENDING_RUNS_MAX:
            self.rows_lost += sum(run.count for run in runs)
            return
        self._handed_over.extend(runs)

    def close(self) -> None:
        """Write what is waiting and put the last file in its place."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            # Not woken for each batch: the broker would have to wait for this thread as often.
            is_open = not self._stopping.wait(COLLECT_S)
            waiting = [self._handed_over.popleft() for _ in range(len(self._handed_over))]
            try:
                self._step(waiting, is_last=not is_open)
            except OSError as error:
                rows = sum(run.count for run in waiting)
                self.rows_lost += rows
                logger.error("trace lost %d records: %s", rows, error)
                self._file = None

    def _step(self, runs: list[TraceRun], *, is_last: bool) -> None:
        if runs:
            if self._file is None:
                self._number += 1
                self._file = _TraceFile(self._path, self._node_name, self._number)
            self.rows_written += self._file.append(runs)
        file = self._file
        if file is not None and (is_last or file.is_due(self._limits)):
            file.finish()
            self._file = None
            self._limit_disk()

    def _limit_disk(self) -> None:
        files = sorted(self._path.glob(f"date=*/node={self._node_name}/part-*.parquet"))
        sizes = [file.stat().st_size for file in files]
        excess = sum(sizes) - self._limits.disk_bytes_max
        for file, size in zip(files, sizes, strict=True):
            if excess <= 0:
                return
            logger.warning("trace is larger than disk_bytes_max: removing %s", file)
            file.unlink()
            excess -= size


class _TraceFile:
    """One file that is being written under a hidden name."""

    def __init__(self, path: Path, node_name: str, number: int) -> None:
        import pyarrow.parquet as pq

        started_ns = time.time_ns()
        date = time.strftime("%Y-%m-%d", time.gmtime(started_ns // 1_000_000_000))
        folder = path / f"date={date}" / f"node={node_name}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"part-{started_ns}-{number:06d}.parquet"
        self._final = folder / name
        self._hidden = folder / f".{name}.tmp"
        self._started = time.monotonic()
        self._writer = pq.ParquetWriter(
            self._hidden,
            _written_schema(),
            compression="zstd",
            use_dictionary=[name for name, _ in TRACE_FIELDS if name not in _RISING],
            column_encoding=dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
            write_statistics=list(_RISING),
            store_schema=False,  # readers are to see strings, not how they were handed over
        )
        self._writer.add_key_value_metadata(_METADATA)

    def append(self, runs: list[TraceRun]) -> int:
        table = to_table(runs)
        self._writer.write_table(table, row_group_size=GROUP_ROWS)
        return int(table.num_rows)

    def is_due(self, limits: TraceLimits) -> bool:
        age_s = time.monotonic() - self._started
        return age_s >= limits.file_age_max_s or self._hidden.stat().st_size >= limits.file_bytes_max

    def finish(self) -> None:
        self._writer.close()
        self._hidden.rename(self._final)


def trace_schema() -> pa.Schema:
    """The Arrow schema of trace files, from records.TRACE_FIELDS."""
    import pyarrow as pa

    fields = [pa.field(name, getattr(pa, kind)(), nullable=False) for name, kind in TRACE_FIELDS]
    return pa.schema(fields, metadata=_METADATA)


def _written_schema() -> pa.Schema:
    """The same with texts by number, as they are handed to the file: a text stands in it only once."""
    import pyarrow as pa

    coded = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [field.with_type(coded) if field.type == pa.string() else field for field in trace_schema()]
    )


def to_table(runs: list[TraceRun]) -> pa.Table:
    """Expand runs into one record each, column by column.

    A column is made of one value a run, each repeated; most are the same for all records, and those that
    are alike are one array. Against picking the values record by record that is a third of the time.
    """
    import numpy as np
    import pyarrow as pa

    numbers, kinds = _by_run(runs)
    counts = np.array(numbers["count"], dtype=np.int64)
    kind_of_run = np.array(numbers["kind"], dtype=np.int32)
    made: dict[tuple[str, bytes], Any] = {}  # columns by what they are made of

    def repeated(values: Any) -> Any:
        key = (values.dtype.str, values.tobytes())
        if key not in made:
            made[key] = pa.array(np.repeat(values, counts))
        return made[key]

    columns: list[Any] = []
    for name, kind in TRACE_FIELDS:
        _let_others_run()
        if name == "message_id":
            # Of the first record of each run less its position, then the position of each added.
            before_first = np.array(numbers[name], dtype=np.int64) - (np.cumsum(counts) - counts)
            ids = np.repeat(before_first, counts)
            ids += np.arange(len(ids))
            columns.append(pa.array(ids))
        elif name in _RISING:
            columns.append(repeated(np.array(numbers[name], dtype=kind)))
        elif kind == "string":
            encoded = pa.array([_FIELDS_OF_KIND[name](one) for one in kinds], pa.string()).dictionary_encode()
            indices = repeated(np.asarray(encoded.indices)[kind_of_run])
            columns.append(pa.DictionaryArray.from_arrays(indices, encoded.dictionary))
        else:
            values = np.array([_FIELDS_OF_KIND[name](one) for one in kinds], dtype=kind)
            columns.append(repeated(values[kind_of_run]))
    return pa.Table.from_arrays(columns, schema=_written_schema())


def _by_run(runs: list[TraceRun]) -> tuple[dict[str, list[int]], list[TraceKind]]:
    """The numbers of each run, by column, `kind` being an index into the kinds that come second."""
    numbers: dict[str, list[int]] = {name: [] for name in ("count", "kind", *_RISING)}
    kinds: list[TraceKind] = []
    index_of: dict[int, int] = {}  # by identity: equal ones that follow each other are the same object
    for start in range(0, len(runs), SLICE_RUNS):
        part = runs[start : start + SLICE_RUNS]
        numbers["count"] += [run.count for run in part]
        numbers["time_ns"] += [run.time_ns for run in part]
        numbers["message_id"] += [run.message_id for run in part]
        numbers["published_ns"] += [run.published_ns for run in part]
        numbers["queued_ns"] += [run.queued_ns() for run in part]
        numbers["sent_ns"] += [run.sent_ns for run in part]
        for run in part:
            index = index_of.setdefault(id(run.kind), len(kinds))
            if index == len(kinds):
                kinds.append(run.kind)
            numbers["kind"].append(index)
        _let_others_run()
    return numbers, kinds


def _let_others_run() -> None:
    time.sleep(0)


def _sweep_hidden(path: Path, node_name: str) -> None:
    """Remove what an earlier process left unfinished: without its end a Parquet file cannot be read."""
    for file in path.glob(f"date=*/node={node_name}/.part-*.parquet.tmp"):
        logger.warning("removing %s, which an earlier run did not finish", file)
        file.unlink()
