"""Trace files: one record for every matched (message, subscription), as Parquet for Spark to read.

    <path>/date=2026-01-31/node=timebound/part-<nanoseconds>-<number>.parquet

Records collect in memory as packed runs and are written, run by run, by a thread of their own; for who
wants them as they come, `to_table` makes Arrow columns of them. A file has a hidden name until it is
complete, then it is renamed into place, so a reader never sees half of one. Files are closed by size
and age; when all together are larger than allowed, the oldest go.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timebound.core.trace_run import TraceRun
from timebound.errors import ConfigError
from timebound.node.trace_columns import FIELDS_OF_KIND, RISING, by_run, let_others_run
from timebound.node.trace_pack import RunPack, pack_runs
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION
from timebound.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

    from timebound.node.parquet_runs import Coded, Rising

logger = logging.getLogger("timebound.trace")

# Runs handed over and not yet written, in bytes as they are packed: two million runs of one kind each. Beyond
# that the trace has a gap, which is counted.
PENDING_BYTES_MAX: Final = 112_000_000
# Runs in one row group of a file, from which on the next begins: about a million records under a flood.
GROUP_RUNS: Final = 32_768
# How often records are collected and written, as one row group at least.
COLLECT_S: Final = 0.5
_METADATA: Final = {"timebound.trace.version": str(TRACE_SCHEMA_VERSION)}
_MADE_BY: Final = f"timebound version {VERSION}"  # in words that readers take apart


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
        self._lock = threading.Lock()  # over what both threads change: the next three
        self._packs: list[RunPack] = []
        self._pending_bytes = 0
        self.rows_lost = 0
        self._stopping = threading.Event()
        self._file: _TraceFile | None = None
        self._number = 0
        self.rows_written = 0
        path.mkdir(parents=True, exist_ok=True)
        _sweep_hidden(path, node_name)
        self._thread = threading.Thread(target=self._run, name="timebound-trace", daemon=True)
        self._thread.start()

    def write(self, runs: list[TraceRun]) -> None:
        """Hand over records; returns at once. What is too much is counted in `rows_lost`."""
        if not runs:
            return
        with self._lock:
            if self._pending_bytes >= PENDING_BYTES_MAX:
                self.rows_lost += sum(run.count for run in runs)
                return
            if not self._packs or self._packs[-1].runs >= GROUP_RUNS:
                self._packs.append(RunPack())
            self._pending_bytes += self._packs[-1].add(runs)

    def close(self) -> None:
        """Write what is waiting and put the last file in its place."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            # Not woken for each batch: the broker would have to wait for this thread as often.
            is_open = not self._stopping.wait(COLLECT_S)
            with self._lock:
                packs = self._packs
                self._packs = []
            for pack in packs:
                self._write_group(pack)
                with self._lock:
                    self._pending_bytes -= pack.size_bytes
            if self._file is not None and (not is_open or self._file.is_due(self._limits)):
                self._finish(self._file)

    def _write_group(self, pack: RunPack) -> None:
        try:
            if self._file is None:
                self._number += 1
                self._file = _TraceFile(self._path, self._node_name, self._number)
            self._file.append(pack)
            self.rows_written += pack.rows
        except OSError as error:
            self._lose(pack.rows, error)
            if self._file is not None:
                self._finish(self._file)  # which saves the records before these

    def _finish(self, file: _TraceFile) -> None:
        """Put a file in its place; the next record begins another."""
        self._file = None
        try:
            file.finish()
        except OSError as error:
            self.rows_written -= file.rows
            self._lose(file.rows, error)
            file.remove()
            return
        try:
            self._limit_disk()
        except OSError as error:
            logger.error("trace cannot be kept within disk_bytes_max: %s", error)

    def _lose(self, rows: int, error: OSError) -> None:
        """Account for records that could not be written."""
        with self._lock:
            self.rows_lost += rows
        logger.error("trace lost %d records: %s", rows, error)

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
        from timebound.node.parquet_runs import RunsFile

        started_ns = time.time_ns()
        date = time.strftime("%Y-%m-%d", time.gmtime(started_ns // 1_000_000_000))
        folder = path / f"date={date}" / f"node={node_name}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"part-{started_ns}-{number:06d}.parquet"
        self._final = folder / name
        self._hidden = folder / f".{name}.tmp"
        self._started = time.monotonic()
        self._file = RunsFile(self._hidden, TRACE_FIELDS, _METADATA, _MADE_BY)

    @property
    def rows(self) -> int:
        return self._file.rows

    def append(self, pack: RunPack) -> None:
        """Write runs as one row group."""
        counts, columns = to_columns(pack)
        self._file.write_group(counts, columns, let_others_run)

    def is_due(self, limits: TraceLimits) -> bool:
        age_s = time.monotonic() - self._started
        return age_s >= limits.file_age_max_s or self._file.size_bytes >= limits.file_bytes_max

    def finish(self) -> None:
        self._file.finish()
        self._hidden.rename(self._final)

    def remove(self) -> None:
        """Leave nothing behind, as far as the disk lets us; the next start looks again."""
        with contextlib.suppress(OSError):
            self._hidden.unlink()


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


def to_columns(pack: RunPack) -> tuple[Any, list[Coded | Rising]]:
    """How many records each run has, and the columns as files are made of them."""
    import numpy as np

    from timebound.node.parquet_runs import Coded, Rising

    numbers, kinds = by_run(pack)
    columns: list[Coded | Rising] = []
    for name, _ in TRACE_FIELDS:
        if name in RISING:
            columns.append(Rising(numbers[name], int(name == "message_id")))
            continue
        code_of: dict[Any, int] = {}
        codes = [code_of.setdefault(FIELDS_OF_KIND[name](kind), len(code_of)) for kind in kinds]
        of_runs = np.array(codes)[numbers["kind"]] if len(code_of) > 1 else None
        columns.append(Coded(list(code_of), of_runs, numbers["kind_count"]))
    return numbers["count"], columns


def to_table(runs: list[TraceRun]) -> pa.Table:
    """Expand runs into one record each, column by column.

    A column is made of one value a run, each repeated; most are the same for all records, and those that
    are alike are one array. Against picking the values record by record that is a third of the time.
    """
    import numpy as np
    import pyarrow as pa

    numbers, kinds = by_run(pack_runs(runs))
    counts = numbers["count"]
    made: dict[tuple[str, bytes], Any] = {}  # columns by what they are made of

    def repeated(values: Any, counts: Any) -> Any:
        # As many values have the same counts: there are more kinds than runs once a run has several.
        key = (values.dtype.str, values.tobytes())
        if key not in made:
            made[key] = pa.array(np.repeat(values, counts))
        return made[key]

    columns: list[Any] = []
    for name, kind in TRACE_FIELDS:
        let_others_run()
        if name == "message_id":
            # Of the first record of each run less its position, then the position of each added.
            before_first = numbers[name] - (np.cumsum(counts) - counts)
            ids = np.repeat(before_first, counts)
            ids += np.arange(len(ids))
            columns.append(pa.array(ids))
        elif name in RISING:
            columns.append(repeated(numbers[name], counts))
        elif kind == "string":
            encoded = pa.array([FIELDS_OF_KIND[name](one) for one in kinds], pa.string()).dictionary_encode()
            indices = repeated(np.asarray(encoded.indices)[numbers["kind"]], numbers["kind_count"])
            columns.append(pa.DictionaryArray.from_arrays(indices, encoded.dictionary))
        else:
            values = np.array([FIELDS_OF_KIND[name](one) for one in kinds], dtype=kind)
            columns.append(repeated(values[numbers["kind"]], numbers["kind_count"]))
    return pa.Table.from_arrays(columns, schema=_written_schema())


def _sweep_hidden(path: Path, node_name: str) -> None:
    """Remove what an earlier process left unfinished: without its end a Parquet file cannot be read."""
    for file in path.glob(f"date=*/node={node_name}/.part-*.parquet.tmp"):
        logger.warning("removing %s, which an earlier run did not finish", file)
        file.unlink()
