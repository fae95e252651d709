"""Trace files: one record for every matched (message, subscription), as Parquet for Spark to read.

    <path>/date=2026-01-31/node=timebound/part-<nanoseconds>-<number>.parquet

Records collect in memory as Arrow columns and are written by a thread of their own. A file has a
hidden name until it is complete, then it is renamed into place, so a reader never sees half of
one. Files are closed by size and age; when all together are larger than allowed, the oldest go.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timebound.core.account import TraceRun
from timebound.errors import ConfigError
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("timebound.trace")

# Runs handed over and not yet written, at most; beyond that the trace has a gap, which is counted.
PENDING_RUNS_MAX: Final = 2_000_000
# Rows put into one row group of a file.
GROUP_ROWS: Final = 262_144
_STOP: Final = object()


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
        self._batches: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pending = 0
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
        if self._pending + len(runs) > PENDING_RUNS_MAX:
            self.rows_lost += sum(run.count for run in runs)
            return
        self._pending += len(runs)
        self._batches.put(runs)

    def close(self) -> None:
        """Write what is waiting and put the last file in its place."""
        self._batches.put(_STOP)
        self._thread.join()

    def _run(self) -> None:
        waiting: list[TraceRun] = []
        is_open = True
        while is_open:
            try:
                batch = self._batches.get(timeout=1.0)
                while True:
                    if batch is _STOP:
                        is_open = False
                    else:
                        waiting.extend(batch)
                    batch = self._batches.get_nowait()
            except queue.Empty:
                pass
            try:
                self._step(waiting, is_last=not is_open)
            except OSError as error:
                rows = sum(run.count for run in waiting)
                self.rows_lost += rows
                logger.error("trace lost %d records: %s", rows, error)
                self._file = None
            self._pending -= len(waiting)
            waiting = []

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
        self._writer = pq.ParquetWriter(self._hidden, trace_schema(), compression="zstd")

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
    return pa.schema(fields, metadata={"timebound.trace.version": str(TRACE_SCHEMA_VERSION)})


def to_table(runs: list[TraceRun]) -> pa.Table:
    """Expand runs into one record each, column by column."""
    import numpy as np
    import pyarrow as pa

    counts = np.array([run.count for run in runs], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    inside = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(starts, counts)
    values: dict[str, list[Any]] = {
        "time_ns": [run.time_ns for run in runs],
        "message_id": [run.message_id for run in runs],
        "topic": [run.message.topic for run in runs],
        "publisher": [run.message.publisher for run in runs],
        "subscriber": [run.client_id for run in runs],
        "topic_filter": [run.subscription.topic_filter if run.subscription else "" for run in runs],
        "qos": [run.qos for run in runs],
        "size_bytes": [run.size_bytes for run in runs],
        "published_ns": [run.message.published_ns for run in runs],
        "queued_ns": [run.queued_ns for run in runs],
        "allowed_ns": [run.allowed_ns for run in runs],
        "outcome": [run.outcome for run in runs],
        "reason": [run.reason for run in runs],
        "price_micro": [run.subscription.price_micro if run.subscription else 0 for run in runs],
        "penalty_micro": [run.subscription.penalty_micro if run.subscription else 0 for run in runs],
        "hop": [0] * len(runs),
        "link": [run.client_id for run in runs],
    }
    columns = []
    for name, kind in TRACE_FIELDS:
        if kind == "string":
            encoded = pa.array(values[name], pa.string()).dictionary_encode()
            indices = pa.array(np.repeat(encoded.indices.to_numpy(), counts))
            column = pa.DictionaryArray.from_arrays(indices, encoded.dictionary).cast(pa.string())
        else:
            numbers = np.repeat(np.array(values[name], dtype=np.int64), counts)
            if name == "message_id":
                numbers = numbers + inside
            column = pa.array(numbers).cast(getattr(pa, kind)())
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=trace_schema())


def _sweep_hidden(path: Path, node_name: str) -> None:
    """Remove what an earlier process left unfinished: without its end a Parquet file cannot be read."""
    for file in path.glob(f"date=*/node={node_name}/.part-*.parquet.tmp"):
        logger.warning("removing %s, which an earlier run did not finish", file)
        file.unlink()
