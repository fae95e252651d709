"""The files of a journal: frames appended to a log, and sealed segments that never change again.

A log begins with the schema of its rows, then come frames of one record batch each, with a
checksum, so that what a crash left unfinished at its end is found and cut off. A sealed segment is an
Arrow IPC file, compressed, with its offsets in its name: it is complete or not there at all.

    00000000000000000000-00000000000000016384-1767225600000000000.arrow   first, end, newest time
    00000000000000016384.log
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from timebound.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa

# Magic, checksum of the rest, bytes of the body, rows, first offset, time of the newest row.
_HEADER: Final = struct.Struct("<4sIIIqq")
_MAGIC: Final = b"TBJ1"
_CHECKED_FROM: Final = 8
_SEALED: Final = re.compile(r"(\d{20})-(\d{20})-(\d{1,20})\.arrow")
_LOG: Final = re.compile(r"(\d{20})\.log")
# Every batch of a sealed segment but its last has exactly this many rows: an offset needs no index.
SEALED_BATCH_ROWS: Final = 16_384
# Frames are combined for readers up to this many rows: a frame may have a single one.
READ_ROWS: Final = 8_192


class LogFrame:
    """Where the rows [first, end) stand in a log."""

    __slots__ = ("end", "first", "length", "newest_ns", "position")

    def __init__(self, first: int, end: int, position: int, length: int, newest_ns: int) -> None:
        self.first = first
        self.end = end
        self.position = position
        self.length = length
        self.newest_ns = newest_ns


class SealedSegment:
    """Rows [first, end) in a file that never changes."""

    def __init__(self, path: Path, first: int, end: int, newest_ns: int) -> None:
        self.path = path
        self.first = first
        self.end = end
        self.newest_ns = newest_ns
        self.size_bytes = path.stat().st_size

    @classmethod
    def parse(cls, path: Path) -> SealedSegment | None:
        """Read what the name of a file says; None if it is not a sealed segment."""
        found = _SEALED.fullmatch(path.name)
        return cls(path, int(found[1]), int(found[2]), int(found[3])) if found else None

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows [start, end) as batches with their first offsets.

        Raises:
            FileNotFoundError: the segment was removed meanwhile.
        """
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as source:
            reader = pa.ipc.open_file(source)
            index = (start - self.first) // SEALED_BATCH_ROWS
            first = self.first + index * SEALED_BATCH_ROWS
            while first < end:
                batch = reader.get_batch(index)
                skipped = max(start - first, 0)
                yield (
                    first + skipped,
                    batch.slice(skipped, min(end, first + batch.num_rows) - first - skipped),
                )
                first += batch.num_rows
                index += 1


class LogSegment:
    """Rows in a log that is, or was until now, written to; `commit` makes appended rows last."""

    def __init__(self, path: Path, schema: pa.Schema, *, fsync: bool) -> None:
        self.path = path
        found = _LOG.fullmatch(path.name)
        assert found is not None
        self.first = int(found[1])
        self.frames: list[LogFrame] = []  # those on disk for good; only ever appended to
        self.schema = schema
        self._fsync = fsync
        self._appended: list[LogFrame] = []
        self._file: BinaryIO = path.open("a+b")
        self._position = 0
        self._rows_from = 0  # position of the first frame, after the schema
        self.bytes_cut = 0
        if path.stat().st_size:
            try:
                self._recover()
            except BaseException:
                self._file.close()
                raise
        if not self._position:
            self._write(schema.serialize(), 0, self.first, 0)
            self._sync()
            self._rows_from = self._position

    @property
    def end(self) -> int:
        return self.frames[-1].end if self.frames else self.first

    @property
    def size_bytes(self) -> int:
        return self._position

    @property
    def newest_ns(self) -> int:
        return self.frames[-1].newest_ns if self.frames else 0

    @property
    def oldest_ns(self) -> int:
        return self.frames[0].newest_ns if self.frames else 0

    def append(self, batch: pa.RecordBatch, newest_ns: int) -> None:
        """Append rows; they are not readable before `commit`."""
        first = self._appended[-1].end if self._appended else self.end
        position = self._position + _HEADER.size
        length = self._write(batch.serialize(), batch.num_rows, first, newest_ns)
        self._appended.append(LogFrame(first, first + batch.num_rows, position, length, newest_ns))

    def commit(self) -> None:
        """Make appended rows durable and readable."""
        if not self._appended:
            return
        self._sync()
        self.frames.extend(self._appended)
        self._appended = []

    def roll_back(self) -> None:
        """Discard rows appended since the last `commit`, after a failure."""
        self._appended = []
        last = self.frames[-1] if self.frames else None
        self._cut(last.position + last.length if last else self._rows_from)

    def close(self) -> None:
        self._file.close()

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows [start, end) as batches with their first offsets.

        Raises:
            FileNotFoundError: the log was sealed or removed meanwhile.
        """
        import pyarrow as pa

        with self.path.open("rb") as file:
            together: list[pa.RecordBatch] = []
            rows = 0
            at = start
            for frame in _between(self.frames, start, end):
                body = os.pread(file.fileno(), frame.length, frame.position)
                batch = pa.ipc.read_record_batch(pa.py_buffer(body), self.schema)
                skipped = max(start - frame.first, 0)
                batch = batch.slice(skipped, min(end, frame.end) - frame.first - skipped)
                together.append(batch)
                rows += batch.num_rows
                if rows >= READ_ROWS:
                    yield at, pa.concat_batches(together)
                    at += rows
                    together, rows = [], 0
            if together:
                yield at, pa.concat_batches(together)

    def mapped(self) -> Iterator[pa.RecordBatch]:
        """Yield all committed rows, frame by frame, without a copy."""
        import pyarrow as pa

        with self.path.open("rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for frame in self.frames:
            body = whole[frame.position : frame.position + frame.length]
            yield pa.ipc.read_record_batch(pa.py_buffer(body), self.schema)

    def _write(self, body: pa.Buffer | bytes, rows: int, first: int, newest_ns: int) -> int:
        length = len(body)
        rest = _HEADER.pack(_MAGIC, 0, length, rows, first, newest_ns)[_CHECKED_FROM:]
        checksum = zlib.crc32(body, zlib.crc32(rest))
        self._file.write(_HEADER.pack(_MAGIC, checksum, length, rows, first, newest_ns))
        self._file.write(body)
        self._position += _HEADER.size + length
        return length

    def _sync(self) -> None:
        self._file.flush()
        if self._fsync:
            os.fdatasync(self._file.fileno())

    def _cut(self, size: int) -> None:
        # Buffered data of a failed write must not be written after the cut.
        try:
            self._file.close()
        finally:
            os.truncate(self.path, size)
            self._file = self.path.open("a+b")
            self._position = size

    def _recover(self) -> None:
        """Find the complete frames, and cut off the rest."""
        import pyarrow as pa

        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            for frame, body in _whole_frames(file):
                if self._position == 0:
                    self.schema = pa.ipc.read_schema(pa.py_buffer(body))
                    self._rows_from = frame.position + frame.length
                elif frame.first == self.end:
                    self.frames.append(frame)
                else:
                    raise StorageError(
                        f"journal file '{self.path}' has offset {frame.first} after {self.end}"
                    )
                self._position = frame.position + frame.length
        self.bytes_cut = size - self._position
        if self.bytes_cut:
            self._cut(self._position)


def find_segments(folder: Path) -> tuple[list[SealedSegment], list[Path]]:
    """Return the sealed segments and the logs of a folder by offset, and remove what was never finished.

    A log whose rows were sealed just before a crash is removed as well.
    """
    for path in folder.glob("*.tmp"):
        path.unlink()
    segments = [SealedSegment.parse(path) for path in sorted(folder.glob("*.arrow"))]
    sealed = [segment for segment in segments if segment is not None]
    firsts = {segment.first for segment in sealed}
    logs: list[Path] = []
    for path in sorted(folder.glob("*.log")):
        found = _LOG.fullmatch(path.name)
        if found and int(found[1]) in firsts:
            path.unlink()
        elif found:
            logs.append(path)
    return sealed, logs


def log_path(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}.log"


def seal(segment: LogSegment, *, fsync: bool) -> SealedSegment:
    """Write the rows of a log that is not written to any more as a sealed segment, in its place."""
    import pyarrow as pa

    name = f"{segment.first:020d}-{segment.end:020d}-{segment.newest_ns}.arrow"
    hidden = segment.path.with_name(f"{name}.tmp")
    # Threads of Arrow's own would take processors from the broker; nobody waits for this.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with hidden.open("wb") as file:
        with pa.ipc.new_file(file, segment.schema, options=options) as writer:
            for batch in _regrouped(segment.mapped(), SEALED_BATCH_ROWS):
                writer.write_batch(batch)
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    final = segment.path.with_name(name)
    hidden.rename(final)
    if fsync:
        sync_folder(segment.path.parent)
    return SealedSegment(final, segment.first, segment.end, segment.newest_ns)


def _regrouped(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of `rows`, except the last."""
    import pyarrow as pa

    together: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        while batch.num_rows:
            taken = batch.slice(0, missing)
            together.append(taken)
            batch = batch.slice(taken.num_rows)
            missing -= taken.num_rows
            if not missing:
                yield pa.concat_batches(together)
                together, missing = [], rows
    if together:
        yield pa.concat_batches(together)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _whole_frames(file: BinaryIO) -> Iterator[tuple[LogFrame, bytes]]:
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        magic, checksum, length, rows, first, newest_ns = _HEADER.unpack(header)
        if magic != _MAGIC:
            return
        position = file.tell()
        body = file.read(length)
        if len(body) != length or zlib.crc32(body, zlib.crc32(header[_CHECKED_FROM:])) != checksum:
            return
        yield LogFrame(first, first + rows, position, length, newest_ns), body


def _between(frames: list[LogFrame], start: int, end: int) -> Iterator[LogFrame]:
    """Yield the frames with rows of [start, end); the list may grow meanwhile."""
    low, high = 0, len(frames)
    while low < high:
        middle = (low + high) // 2
        if frames[middle].end <= start:
            low = middle + 1
        else:
            high = middle
    while low < len(frames) and frames[low].first < end:
        yield frames[low]
        low += 1
