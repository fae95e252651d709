"""Trace files: one record for every matched (message, subscription), as Parquet for Spark to read.

    <path>/date=2026-01-31/node=timebound/part-<nanoseconds>-<number>.parquet

A file has a hidden name until it is complete and is then renamed into place, so readers never see an
unfinished one. Files are closed by size and age; when their total exceeds the limit, the oldest are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import time
from pathlib import Path
from typing import Final

from timebound.core.account.trace_log import TraceBatch
from timebound.node.trace.columns import TRACE_METADATA, parquet_columns
from timebound.node.trace.parquet.runs import RunsFile
from timebound.node.trace.writer import TraceLimits
from timebound.records import TRACE_FIELDS
from timebound.version import VERSION

logger = logging.getLogger("timebound.trace")

_MADE_BY: Final = f"timebound version {VERSION}"  # in the form that readers parse


class TraceFiles:
    """The files of one node."""

    def __init__(self, path: Path, node_name: str, limits: TraceLimits) -> None:
        """Make the folder, and remove unfinished files of an earlier process.

        Raises:
            OSError: the folder cannot be made or read.
        """
        self._path = path
        self._node_name = node_name
        self._limits = limits
        self._file: _TraceFile | None = None
        self._number = 0
        self.rows_written = 0
        self.rows_lost = 0
        path.mkdir(parents=True, exist_ok=True)
        _sweep_hidden(path, node_name)

    def rows_kept(self) -> int:
        """Return the rows written to complete files."""
        return self.rows_written - (self._file.rows if self._file is not None else 0)

    def append(self, batch: TraceBatch) -> None:
        """Write records as one row group; if that fails, count them in `rows_lost`."""
        try:
            if self._file is None:
                self._number += 1
                self._file = _TraceFile(self._path, self._node_name, self._number)
            self._file.append(batch)
            self.rows_written += batch.count
        except OSError as error:
            self._lose(batch.count, error)
            if self._file is not None:
                self._finish(self._file)  # which saves the earlier records
        self.finish_if_due()

    def finish_if_due(self) -> None:
        """Complete the open file if it is large or old enough."""
        if self._file is not None and self._file.is_due(self._limits):
            self._finish(self._file)

    def due_in_s(self) -> float | None:
        """Return the seconds until the open file is old enough; None if there is none."""
        if self._file is None:
            return None
        return max(self._limits.file_age_max_s - self._file.age_s(), 0.0)

    def close(self) -> None:
        if self._file is not None:
            self._finish(self._file)

    def _finish(self, file: _TraceFile) -> None:
        """Complete a file; the next record starts another."""
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
        started_ns = time.time_ns()
        date = time.strftime("%Y-%m-%d", time.gmtime(started_ns // 1_000_000_000))
        folder = path / f"date={date}" / f"node={node_name}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"part-{started_ns}-{number:06d}.parquet"
        self._final = folder / name
        self._hidden = folder / f".{name}.tmp"
        self._started = time.monotonic()
        self._file = RunsFile(self._hidden, TRACE_FIELDS, TRACE_METADATA, _MADE_BY)
        fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # while it is being written

    @property
    def rows(self) -> int:
        return self._file.rows

    def append(self, batch: TraceBatch) -> None:
        counts, columns = parquet_columns(batch)
        self._file.write_group(counts, columns)

    def age_s(self) -> float:
        return time.monotonic() - self._started

    def is_due(self, limits: TraceLimits) -> bool:
        return self.age_s() >= limits.file_age_max_s or self._file.size_bytes >= limits.file_bytes_max

    def finish(self) -> None:
        self._file.finish()
        self._hidden.rename(self._final)

    def remove(self) -> None:
        """Remove the file if possible; the next start tries again."""
        with contextlib.suppress(OSError):
            self._hidden.unlink()


def _sweep_hidden(path: Path, node_name: str) -> None:
    """Remove unfinished files of an earlier process: without its footer a Parquet file is unreadable."""
    for file in path.glob(f"date=*/node={node_name}/.part-*.parquet.tmp"):
        with file.open("rb") as left:
            try:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # of a broker that was killed: its process is still finishing the trace
            logger.warning("removing %s, which an earlier run did not finish", file)
            file.unlink()
