"""One journal on disk: rows with dense offsets from 0, appended, read by ranges, removed from the front.

An offset is assigned once and its row never changes. Rows can be read after `commit`. One thread appends;
another one may call `maintain`, which seals full logs and removes what exceeds the limits of age and
size; any number of threads read. `files.py` has the files.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from timebound.errors import StorageError
from timebound.node.journal.files import LogSegment, SealedSegment, find_segments, log_path, seal, sync_folder
from timebound.units import SECOND

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("timebound.journal")

# A log is closed at this size, or at this part of what the journal may take or how old it may be:
# what is removed goes segment by segment.
SEGMENT_BYTES_MAX: Final = 8 * 1024 * 1024
SEGMENTS_MIN: Final = 8
_IDENTITY_FILE: Final = "journal.json"
_VERSION: Final = 1

# First offset, number of rows, and the rows; None = they were removed.
Piece = tuple[int, int, "pa.RecordBatch | None"]


class JournalLog:
    """The rows of one journal."""

    def __init__(
        self, folder: Path, schema: pa.Schema, *, bytes_max: int, age_max_s: float, fsync: bool
    ) -> None:
        """Open a journal, or create one; the folder need not exist.

        Raises:
            StorageError: the folder cannot be used, or has other contents.
        """
        self._folder = folder
        self._schema = schema
        self._fsync = fsync
        self._bytes_max = bytes_max
        self._age_max_ns = int(age_max_s * SECOND)
        self.segment_bytes_max = min(SEGMENT_BYTES_MAX, bytes_max // SEGMENTS_MIN)
        self._lock = threading.Lock()  # over the lists of segments, which are short
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.identity = _read_identity(folder)
            self._sealed, logs = find_segments(folder)
            self._closed = [LogSegment(path, schema, fsync=fsync) for path in logs]
            self._active = self._take_up()
        except OSError as error:
            raise StorageError(f"journal '{folder}' cannot be used: {error}") from error

    @property
    def first_offset(self) -> int:
        """The offset of the oldest row; equals `next_offset` if there is none."""
        with self._lock:
            return self._segments()[0].first

    @property
    def next_offset(self) -> int:
        """The offset of the next row."""
        return self._active.end

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(segment.size_bytes for segment in self._segments())

    def append(self, batch: pa.RecordBatch, newest_ns: int) -> None:
        """Append rows; `commit` makes them durable. After an OSError call `roll_back`."""
        self._active.append(batch, newest_ns)

    def commit(self, now_ns: int) -> None:
        """Make appended rows last and readable; begin a new segment if this one is full or old."""
        self._active.commit()
        active = self._active
        is_old = active.frames and now_ns - active.oldest_ns > self._age_max_ns // SEGMENTS_MIN
        if self.is_full() or is_old:
            self._roll(active.end)

    def is_full(self) -> bool:
        """Whether the segment that is written to has its size; `commit` begins a new one then."""
        return self._active.size_bytes >= self.segment_bytes_max

    def roll_back(self) -> None:
        self._active.roll_back()

    def skip(self, rows: int) -> None:
        """Assign offsets to lost rows: readers get a gap."""
        if rows:
            self._roll(self._active.end + rows)

    def read(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the rows [start, end) in order, with gaps for what was removed."""
        position = start
        while position < end:
            segment = self._segment_at(position)
            if segment is None or segment.first >= end:
                yield position, end - position, None
                return
            if segment.first > position:
                yield position, segment.first - position, None
                position = segment.first
            try:
                for first, batch in segment.read(position, min(end, segment.end)):
                    yield first, batch.num_rows, batch
                    position = first + batch.num_rows
            except FileNotFoundError:
                # It was sealed or removed between finding and opening it: look again.
                if self._segment_at(position) is segment:
                    raise

    def maintain(self, now_ns: int) -> None:
        """Seal logs that are full, and remove the oldest segments beyond the limits."""
        while True:
            with self._lock:
                segment = self._closed[0] if self._closed else None
            if segment is None:
                break
            sealed = seal(segment, fsync=self._fsync) if segment.frames else None
            with self._lock:
                self._closed.pop(0)
                if sealed is not None:
                    self._sealed.append(sealed)
            segment.close()
            segment.path.unlink()
        self._remove_old(now_ns)

    def close(self) -> None:
        self._active.close()
        for segment in self._closed:
            segment.close()

    def _take_up(self) -> LogSegment:
        """Find where to go on: in the last log, or behind everything there is."""
        for segment in self._closed:
            if segment.bytes_cut:
                logger.warning("%s: cut %d bytes of an unfinished write", segment.path, segment.bytes_cut)
        last = self._closed[-1] if self._closed else None
        if last is not None and last.schema.equals(self._schema):
            return self._closed.pop()
        if last is not None and not last.frames:
            self._closed.pop().close()
            last.path.unlink()
        ends = [last.first] if last is not None else []
        ends += [segment.end for segment in self._sealed] + [segment.end for segment in self._closed]
        return self._begin(max(ends, default=0))

    def _begin(self, first: int) -> LogSegment:
        begun = LogSegment(log_path(self._folder, first), self._schema, fsync=self._fsync)
        if self._fsync:
            sync_folder(self._folder)
        return begun

    def _roll(self, first: int) -> None:
        full = self._active
        if first == full.first:
            return
        begun = self._begin(first)
        with self._lock:
            self._closed.append(full)
            self._active = begun

    def _segments(self) -> list[SealedSegment | LogSegment]:
        return [*self._sealed, *self._closed, self._active]

    def _segment_at(self, offset: int) -> SealedSegment | LogSegment | None:
        """Return the segment that holds an offset, or else the first one after it."""
        with self._lock:
            for segment in self._segments():
                if segment.end > offset:
                    return segment
        return None

    def _remove_old(self, now_ns: int) -> None:
        while True:
            size_bytes = self.size_bytes
            with self._lock:
                oldest = self._sealed[0] if self._sealed else None
                if oldest is None:
                    return
                if size_bytes <= self._bytes_max and now_ns - oldest.newest_ns <= self._age_max_ns:
                    return
                self._sealed.pop(0)
            logger.info("%s: removed offsets %d to %d", self._folder.name, oldest.first, oldest.end - 1)
            oldest.path.unlink()


def _read_identity(folder: Path) -> str:
    """Return the identity of this journal, which differs from any earlier one in this folder."""
    path = folder / _IDENTITY_FILE
    if not path.exists():
        hidden = path.with_suffix(".tmp")
        hidden.write_text(json.dumps({"version": _VERSION, "identity": secrets.token_hex(8)}))
        hidden.rename(path)
    try:
        described = json.loads(path.read_text())
        if described["version"] != _VERSION:
            raise StorageError(f"journal '{folder}' has version {described['version']}, not {_VERSION}")
        return str(described["identity"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"'{path}' does not describe a journal; remove it or the folder") from error
