"""Files of a journal: frames of a log, what a crash leaves of them, and sealed parts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.errors import StorageError
from timebound.node.journal import files
from timebound.node.journal.files import LogSegment, SealedSegment, find_segments, log_path, seal

SCHEMA = pa.schema([("value", pa.int64())])
OPENED: list[LogSegment] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def batch(values: Iterable[int]) -> pa.RecordBatch:
    return pa.record_batch([list(values)], schema=SCHEMA)


def open_part(folder: Path, first: int = 0) -> LogSegment:
    """Open a log that is closed after the test."""
    part = LogSegment(log_path(folder, first), SCHEMA, fsync=False)
    OPENED.append(part)
    return part


def write(part: LogSegment, *groups: Iterable[int]) -> None:
    """Append one frame for each group of values, and commit."""
    for number, values in enumerate(groups):
        part.append(batch(values), newest_ns=number)
    part.commit()


def read(part: LogSegment | SealedSegment, start: int, end: int) -> list[tuple[int, int]]:
    """Offsets with their values."""
    found: list[tuple[int, int]] = []
    for first, rows in part.read(start, end):
        found += enumerate(rows.column("value").to_pylist(), first)
    return found


def test_a_log_gives_ranges_of_its_committed_rows(tmp_path: Path) -> None:
    part = open_part(tmp_path, 100)
    write(part, [10, 11], [12])
    part.append(batch([13]), newest_ns=9)

    assert (part.first, part.end, part.oldest_ns, part.newest_ns) == (100, 103, 0, 1)
    assert read(part, 101, 103) == [(101, 11), (102, 12)]
    assert read(part, 103, 103) == []


def test_a_log_that_is_opened_again_has_its_rows_and_its_schema(tmp_path: Path) -> None:
    part = open_part(tmp_path)
    write(part, [1], [2, 3])
    part.close()

    again = LogSegment(part.path, pa.schema([("other", pa.string())]), fsync=False)
    OPENED.append(again)

    assert again.schema == SCHEMA
    assert again.bytes_cut == 0
    assert again.size_bytes == part.path.stat().st_size
    assert read(again, 0, 3) == [(0, 1), (1, 2), (2, 3)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
@settings(max_examples=40, deadline=None)
def test_a_log_cut_anywhere_keeps_exactly_its_whole_frames(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    part = open_part(folder)
    ends = [(part.size_bytes, 0)]  # size of the file, and rows up to there
    for count in counts:
        write(part, range(ends[-1][1], ends[-1][1] + count))
        ends.append((part.size_bytes, ends[-1][1] + count))
    part.close()
    size = data.draw(st.integers(ends[0][0], ends[-1][0]))
    with part.path.open("r+b") as file:
        file.truncate(size)

    again = open_part(folder)

    kept_bytes, kept_rows = max(pair for pair in ends if pair[0] <= size)
    assert again.end == kept_rows
    assert again.bytes_cut == size - kept_bytes
    assert part.path.stat().st_size == kept_bytes
    assert read(again, 0, kept_rows) == [(number, number) for number in range(kept_rows)]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_changed_byte_costs_its_frame_and_those_behind_it_but_never_gives_wrong_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    part = open_part(folder)
    start = part.size_bytes
    write(part, [0], [1], [2])
    part.close()
    content = bytearray(part.path.read_bytes())
    place = data.draw(st.integers(start, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    part.path.write_bytes(content)

    again = open_part(folder)

    length = (len(content) - start) // 3
    assert again.end == (place - start) // length
    assert read(again, 0, again.end) == [(number, number) for number in range(again.end)]


def test_a_log_whose_offsets_do_not_follow_each_other_is_refused(tmp_path: Path) -> None:
    one, other = open_part(tmp_path, 0), open_part(tmp_path, 5)
    head = other.size_bytes
    write(one, [1])
    write(other, [6])
    with one.path.open("ab") as file:
        file.write(other.path.read_bytes()[head:])
    one.close()

    with pytest.raises(StorageError, match="has offset 5 after 1"):
        LogSegment(one.path, SCHEMA, fsync=False)


def test_what_was_appended_can_be_rolled_back_to_the_last_commit(tmp_path: Path) -> None:
    part = open_part(tmp_path)
    write(part, [1])
    size = part.size_bytes
    part.append(batch([9, 9]), newest_ns=9)

    part.roll_back()

    assert part.size_bytes == part.path.stat().st_size == size
    write(part, [2])
    assert read(part, 0, 2) == [(0, 1), (1, 2)]


def test_small_frames_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READ_ROWS", 3)
    part = open_part(tmp_path)
    write(part, *[[number] for number in range(7)])

    assert [(first, rows.num_rows) for first, rows in part.read(0, 7)] == [(0, 3), (3, 3), (6, 1)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
@settings(max_examples=25, deadline=None)
def test_a_sealed_part_gives_every_range_that_its_log_gave(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "SEALED_BATCH_ROWS", 4)
        part = open_part(tmp_path_factory.mktemp("sealed"), 50)
        values = itertools.count()
        write(part, *[list(itertools.islice(values, count)) for count in counts])
        start = data.draw(st.integers(50, part.end))
        end = data.draw(st.integers(start, part.end))

        sealed = seal(part, fsync=False)

        assert (sealed.first, sealed.end, sealed.newest_ns) == (50, part.end, len(counts) - 1)
        expected = [(offset, offset - 50) for offset in range(start, end)]
        assert read(sealed, start, end) == read(part, start, end) == expected


def test_the_name_of_a_sealed_part_says_what_it_holds(tmp_path: Path) -> None:
    part = open_part(tmp_path, 7)
    part.append(batch([1, 2]), newest_ns=1_767_225_600_000_000_000)
    part.commit()

    sealed = seal(part, fsync=True)

    assert sealed.path.name == "00000000000000000007-00000000000000000009-1767225600000000000.arrow"
    found = SealedSegment.parse(sealed.path)
    assert found is not None
    assert (found.first, found.end, found.newest_ns) == (7, 9, 1_767_225_600_000_000_000)
    assert found.size_bytes == sealed.path.stat().st_size
    assert SealedSegment.parse(tmp_path / "journal.json") is None


def test_a_part_that_was_removed_meanwhile_is_not_found(tmp_path: Path) -> None:
    part = open_part(tmp_path)
    write(part, [1])
    sealed = seal(part, fsync=False)
    part.path.unlink()
    sealed.path.unlink()

    with pytest.raises(FileNotFoundError):
        read(part, 0, 1)
    with pytest.raises(FileNotFoundError):
        read(sealed, 0, 1)


def test_finding_parts_removes_what_was_never_finished_and_logs_that_are_sealed(tmp_path: Path) -> None:
    first, second = open_part(tmp_path, 0), open_part(tmp_path, 2)
    write(first, [1, 2])
    write(second, [3])
    sealed = seal(first, fsync=False)
    (tmp_path / "half.arrow.tmp").write_bytes(b"x")
    (tmp_path / "notes.log").write_text("of somebody else")

    parts, logs = find_segments(tmp_path)

    assert [part.path for part in parts] == [sealed.path]
    assert logs == [second.path]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [sealed.path.name, second.path.name, "notes.log"]
    )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
@settings(max_examples=30)
def test_frames_are_found_by_offset(counts: list[int], data: st.DataObject) -> None:
    frames: list[files.LogFrame] = []
    for count in counts:
        first = frames[-1].end if frames else 0
        frames.append(files.LogFrame(first, first + count, 0, 0, 0))
    start = data.draw(st.integers(0, frames[-1].end))
    end = data.draw(st.integers(start, frames[-1].end))

    found = list(files._between(frames, start, end))

    assert found == [frame for frame in frames if frame.end > start and frame.first < end]
