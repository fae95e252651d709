"""Parquet files written by runs of equal rows instead of row by row.

Rows that differ only in a number that counts up form a run. Parquet libraries take rows, and examine each
of them in each column; but the format has encodings for repeated values and for constant differences, so a
run need not be expanded to rows. Measured in a broker under full load, with runs of 32: 40 to 80 ns per row
instead of 110 to 260.

There is one page per column and row group, because pages are small. Numbers take whole bytes although the
format allows any number of bits: numpy lays them out, and compression removes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from timebound.node.trace.parquet import meta
from timebound.node.trace.parquet.meta import Chunk, varint, zigzag

# If a value repeats for fewer rows than this on average, it is written for each row. A run takes two to six
# bytes, a value one to four.
ROWS_PER_RUN_MIN: Final = 3
# Differences are packed in blocks, whose length is a multiple of this.
_BLOCK: Final = 128
# Smaller columns are not compressed: most have one value, and compression would take longest.
_COMPRESSED_BYTES_MIN: Final = 64


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of few distinct values: the values, their codes, and the rows of each code."""

    values: Any  # an array of numbers, or a list of texts
    codes: Any = None  # an array; not needed where there is only one value
    counts: Any = None  # an array; None = one code per run, or one per row


@dataclass(frozen=True, slots=True)
class Rising:
    """A column of numbers: that of the first row of each run, and the step from row to row."""

    first: Any  # an array
    step: int = 0  # 0 or 1


@dataclass(frozen=True, slots=True)
class Encoded:
    """The pages of a column, before compression."""

    encoding: int
    data: bytes | memoryview
    dictionary: bytes | None = None
    dictionary_values: int = 0
    bounds: tuple[int, int] | None = None


class RunsFile:
    """A Parquet file that is being written."""

    def __init__(
        self, path: Path, fields: Sequence[tuple[str, str]], metadata: dict[str, str], made_by: str
    ) -> None:
        """`fields` are names and Arrow types: int8 to int64 and string.

        Raises:
            OSError: the file cannot be made.
        """
        self._fields = fields
        self._metadata = metadata
        self._made_by = made_by
        self._codec = pa.Codec("zstd")
        self._groups: list[bytes] = []
        self.rows = 0
        self._file = path.open("wb", buffering=0)
        self._write(meta.MAGIC)
        self.size_bytes = len(meta.MAGIC)

    def write_group(self, counts: Any, columns: Sequence[Coded | Rising]) -> None:
        """Add a row group; `counts` are the rows of each run, at least one each, as an array.

        Raises:
            OSError: it could not be written; the file is as before.
        """
        rows = int(counts.sum())
        pages: list[bytes] = []
        chunks: list[Chunk] = []
        offset = self.size_bytes
        for (name, kind), column in zip(self._fields, columns, strict=True):
            encoded = encode_column(kind, column, counts, rows)
            chunk = self._add_pages(pages, name, kind, encoded, rows, offset)
            chunks.append(chunk)
            offset += chunk.stored_bytes
        try:
            self._write(b"".join(pages))
        except OSError:
            self._file.truncate(self.size_bytes)
            self._file.seek(self.size_bytes)
            raise
        self.size_bytes = offset
        self.rows += rows
        self._groups.append(meta.row_group(chunks, rows))

    def fileno(self) -> int:
        return self._file.fileno()

    def finish(self) -> None:
        """Write the footer, and close the file.

        Raises:
            OSError: it could not be written; the file is unreadable.
        """
        end = meta.footer(self._fields, self._groups, self.rows, self._metadata, self._made_by)
        try:
            self._write(end + len(end).to_bytes(4, "little") + meta.MAGIC)
        finally:
            self._file.close()

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _add_pages(
        self, pages: list[bytes], name: str, kind: str, encoded: Encoded, rows: int, offset: int
    ) -> Chunk:
        """Compress a column that begins at `offset`, if it is large enough."""
        is_compressed = len(encoded.data) + len(encoded.dictionary or b"") >= _COMPRESSED_BYTES_MIN
        plain_bytes = stored_bytes = 0
        if encoded.dictionary is not None:
            stored = self._store(encoded.dictionary, is_compressed)
            size = len(encoded.dictionary)
            head = meta.dictionary_page_header(size, len(stored), encoded.dictionary_values)
            pages += (head, stored)
            plain_bytes = len(head) + size
            stored_bytes = len(head) + len(stored)
        data_offset = offset + stored_bytes
        stored = self._store(encoded.data, is_compressed)
        head = meta.data_page_header(len(encoded.data), len(stored), rows, encoded.encoding)
        pages += (head, stored)
        return Chunk(
            name,
            kind,
            encoded.encoding,
            rows,
            plain_bytes + len(head) + len(encoded.data),
            stored_bytes + len(head) + len(stored),
            offset if encoded.dictionary is not None else 0,
            data_offset,
            encoded.bounds,
            is_compressed,
        )

    def _store(self, page: bytes | memoryview, is_compressed: bool) -> bytes:
        stored: bytes = self._codec.compress(page, asbytes=True) if is_compressed else bytes(page)
        return stored


def encode_column(kind: str, column: Coded | Rising, counts: Any, rows: int) -> Encoded:
    """Encode the pages of a column; `counts` are the rows of each run, `rows` their sum."""
    if isinstance(column, Coded):
        return _encode_coded(kind, column, counts if column.counts is None else column.counts, rows, None)
    last = column.first + (counts - 1) * column.step
    bounds = int(column.first.min()), int(last.max())
    starts = _starts(column.first)
    if column.step or len(starts) * ROWS_PER_RUN_MIN > rows:
        data = _differences(column.first, last, counts, rows, column.step)
        return Encoded(meta.DELTA_BINARY_PACKED, data, bounds=bounds)
    coded = Coded(column.first[starts], np.arange(len(starts)))
    return _encode_coded(kind, coded, np.add.reduceat(counts, starts), rows, bounds)


def _encode_coded(
    kind: str, column: Coded, counts: Any, rows: int, bounds: tuple[int, int] | None
) -> Encoded:
    values = column.values
    width = _width(len(values) - 1) or 1  # some readers cannot read codes of zero bits
    if kind == "string":
        texts = [text.encode() for text in values]
        dictionary = b"".join([len(text).to_bytes(4, "little") + text for text in texts])
    else:
        stored = "<i8" if meta.stored_type(kind) == meta.INT64 else "<i4"
        dictionary = np.asarray(values).astype(stored).tobytes()
    if len(values) == 1:
        data = varint(rows << 1) + bytes(width)
    else:
        data = _repeated(column.codes, counts, rows, width)
    page = bytes([8 * width]) + data
    return Encoded(meta.RLE_DICTIONARY, page, dictionary, len(values), bounds)


def _repeated(codes: Any, counts: Any, rows: int, width: int) -> bytes:
    """Encode codes of `width` bytes: as runs, or one by one where they seldom repeat."""
    starts = _starts(codes)
    is_by_row = len(codes) == rows
    if len(starts) * ROWS_PER_RUN_MIN > rows:
        groups = -(-rows // 8)
        each = np.zeros(groups * 8, f"<u{width}")
        each[:rows] = codes if is_by_row else np.repeat(codes, counts)
        return varint(groups << 1 | 1) + each.tobytes()
    repeats = np.diff(starts, append=rows) if is_by_row else np.add.reduceat(counts, starts)
    # Counts take as many bytes as the largest: leading zeros, seven bits per byte, are allowed.
    count_bytes = -(-(int(repeats.max()) << 1).bit_length() // 7)
    parts = np.empty((len(starts), count_bytes + width), np.uint8)
    for index in range(count_bytes):
        more = 0 if index == count_bytes - 1 else 128
        parts[:, index] = repeats << 1 >> 7 * index & 127 | more
    parts[:, count_bytes:] = codes[starts].astype(f"<u{width}").view(np.uint8).reshape(-1, width)
    return parts.tobytes()


def _differences(first: Any, last: Any, counts: Any, rows: int, step: int) -> bytes | memoryview:
    """Encode numbers as differences to the one before, in a single block: `step` within runs, else any."""
    block = max(-(-(rows - 1) // _BLOCK), 1) * _BLOCK
    head = varint(block) + varint(1) + varint(rows) + zigzag(int(first[0]))
    if rows == 1:
        return head
    jumps = first[1:] - last[:-1]
    low = min(int(jumps.min(initial=step)), step)
    width = _width(max(int(jumps.max(initial=step)), step) - low)
    head += zigzag(low) + bytes([8 * width])
    if width == 0:
        return head
    # In one buffer, because it is long, aligned so that numbers are at word boundaries.
    before = -len(head) % 8
    start = before + len(head)
    page = np.empty(start + block * width, np.uint8)
    page[before:start] = np.frombuffer(head, np.uint8)
    above = page[start:].view(f"<u{width}")
    above.fill(step - low)
    jumping = np.flatnonzero(jumps != step)
    above[np.cumsum(counts)[jumping] - 1] = jumps[jumping] - low
    return page.data[before:]


def _starts(values: Any) -> Any:
    """Return where values differ from the one before, the first included."""
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))


def _width(largest: int) -> int:
    """Return the bytes that numbers up to `largest` take: 0, 1, 2, 4 or 8."""
    bytes_needed = -(-largest.bit_length() // 8)
    return next(width for width in (0, 1, 2, 4, 8) if width >= bytes_needed)
