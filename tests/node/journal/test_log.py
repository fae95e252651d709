from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from timebound.errors import StorageError
from timebound.node.journal import files as journal_files
from timebound.node.journal import log as journal_log
from timebound.node.journal.log import JournalLog
from timebound.units import SECOND

SCHEMA = pa.schema([("value", pa.int64()), ("text", pa.string())])
MEBIBYTE = 1 << 20


def rows(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch([values, [f"text {value}" for value in values]], schema=SCHEMA)


OPENED: list[JournalLog] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def open_log(folder: Path, schema: pa.Schema = SCHEMA, **limits: Any) -> JournalLog:
    """Open a journal that is closed after the test."""
    settings = {"bytes_max": MEBIBYTE, "age_max_s": 3600.0, "fsync": False, **limits}
    log = JournalLog(folder, schema, **settings)
    OPENED.append(log)
    return log


def write(log: JournalLog, values: list[int], time_ns: int = 0) -> None:
    log.append(rows(values), time_ns)
    log.commit(time_ns)


def read(log: JournalLog, start: int, end: int) -> list[tuple[int, int | None]]:
    """Offsets with their values; None for each that is held no more."""
    found: list[tuple[int, int | None]] = []
    for first, count, batch in log.read(start, end):
        values = [None] * count if batch is None else batch.column("value").to_pylist()
        found += [(first + number, value) for number, value in enumerate(values)]
    return found


def test_rows_get_dense_offsets_and_come_back_in_ranges(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    write(log, [10, 11, 12])
    write(log, [13])

    assert (log.first_offset, log.next_offset) == (0, 4)
    assert read(log, 1, 4) == [(1, 11), (2, 12), (3, 13)]
    assert read(log, 2, 2) == []


def test_rows_that_are_not_committed_cannot_be_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, [1])

    log.append(rows([2]), 0)

    assert log.next_offset == 1
    assert read(log, 0, 1) == [(0, 1)]


def test_a_journal_goes_on_where_it_was(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, [1, 2])
    identity = log.identity
    log.close()

    again = open_log(tmp_path)
    write(again, [3])

    assert again.identity == identity
    assert read(again, 0, 3) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("kept", [1, 20, 36, 100])
def test_an_unfinished_write_is_cut_off(tmp_path: Path, kept: int) -> None:
    log = open_log(tmp_path)
    write(log, [1, 2])
    path = journal_files.log_path(tmp_path, 0)
    whole = path.stat().st_size
    write(log, [3])
    log.close()
    with path.open("r+b") as file:
        file.truncate(whole + kept)

    again = open_log(tmp_path)
    write(again, [4])

    assert read(again, 0, again.next_offset) == [(0, 1), (1, 2), (2, 4)]


def test_a_write_whose_bytes_never_reached_the_disk_is_cut_off(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, [1, 2])
    path = journal_files.log_path(tmp_path, 0)
    whole = path.stat().st_size
    write(log, [3])
    log.close()
    # After a power cut a file may be as long as it should be, and hold zeros.
    with path.open("r+b") as file:
        file.seek(whole + 40)
        file.write(bytes(path.stat().st_size - whole - 40))

    assert open_log(tmp_path).next_offset == 2


def test_a_log_that_was_sealed_before_a_crash_is_not_read_twice(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, [1, 2])
    segment = log._active
    log._roll(2)
    journal_files.seal(segment, fsync=False)
    log.close()

    again = open_log(tmp_path)

    assert read(again, 0, 2) == [(0, 1), (1, 2)]
    assert not segment.path.exists()


def test_sealing_changes_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_files, "SEALED_BATCH_ROWS", 4)
    log = open_log(tmp_path)
    for number in range(11):
        write(log, [number])
    before = read(log, 0, 11)

    log._roll(11)
    log.maintain(0)

    assert read(log, 0, 11) == before
    assert read(log, 5, 9) == before[5:9]
    assert len(list(tmp_path.glob("*.arrow"))) == 1


def test_a_reader_goes_on_when_its_log_is_sealed_under_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, [1])
    log._roll(1)
    write(log, [2])
    log._roll(2)
    pieces = log.read(0, 2)
    first = next(pieces)

    log.maintain(0)

    assert first[0] == 0
    assert [piece[0] for piece in pieces] == [1]


def test_the_oldest_parts_go_beyond_the_size_and_leave_a_gap(tmp_path: Path) -> None:
    log = open_log(tmp_path, bytes_max=MEBIBYTE)
    batch = pa.record_batch([[0] * 1000, ["x" * 200] * 1000], schema=SCHEMA)
    for _ in range(30):
        log.append(batch, 0)
        log.commit(0)
    # Compressed segments are small; what counts is what is on disk.
    log._bytes_max = 100_000

    log.maintain(0)

    assert log.size_bytes <= 100_000 + log.segment_bytes_max
    assert 0 < log.first_offset < log.next_offset == 30_000
    first, count, rows_held = next(log.read(0, 30_000))
    assert (first, count, rows_held) == (0, log.first_offset, None)


def test_parts_go_by_age_and_offsets_are_never_used_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, age_max_s=80.0)
    write(log, [1], 100 * SECOND)
    log.commit(111 * SECOND)  # older than an eighth of what is allowed: the segment is closed
    log.maintain(111 * SECOND)
    assert log.first_offset == 0

    log.maintain(181 * SECOND)
    log.close()

    again = open_log(tmp_path)
    assert (again.first_offset, again.next_offset) == (1, 1)
    assert read(again, 0, 1) == [(0, None)]


def test_lost_rows_take_offsets_and_are_a_gap(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, [1])
    log.skip(3)
    write(log, [2])
    log.maintain(0)

    assert read(log, 0, 5) == [(0, 1), (1, None), (2, None), (3, None), (4, 2)]


def test_a_failed_write_can_be_taken_back_and_made_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, [1])
    log.append(rows([9, 9]), 0)

    log.roll_back()
    write(log, [2])

    assert read(log, 0, 2) == [(0, 1), (1, 2)]
    log.close()
    assert read(open_log(tmp_path), 0, 2) == [(0, 1), (1, 2)]


def test_taking_back_the_first_write_keeps_the_schema(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(rows([9]), 0)

    log.roll_back()
    write(log, [1])
    log.close()

    assert read(open_log(tmp_path), 0, 1) == [(0, 1)]


def test_rows_of_an_older_schema_stay_readable(tmp_path: Path) -> None:
    old = open_log(tmp_path, pa.schema([("value", pa.int64())]), fsync=True)
    old.append(pa.record_batch([[1]], names=["value"]), 0)
    old.commit(0)
    old.close()

    log = open_log(tmp_path)
    write(log, [2])
    log.maintain(0)

    assert [batch.schema.names for _, _, batch in log.read(0, 2) if batch is not None] == [
        ["value"],
        ["value", "text"],
    ]
    assert read(log, 0, 2) == [(0, 1), (1, 2)]


def test_an_empty_log_of_an_older_schema_is_replaced(tmp_path: Path) -> None:
    open_log(tmp_path, pa.schema([("value", pa.int64())])).close()

    log = open_log(tmp_path)
    write(log, [1])

    assert read(log, 0, 1) == [(0, 1)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [("not json", "does not describe a journal"), (json.dumps({"version": 9}), "has version 9, not 1")],
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "journal.json").write_text(content)

    with pytest.raises(StorageError, match=expected):
        open_log(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="cannot be used"):
        open_log(tmp_path / "file" / "journal")


class LogMachine(RuleBasedStateMachine):
    """Against a list: None stands for a row that is lost, and all before `removed` may be gone."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(self.make_folder())
        self.expected: list[int | None] = []
        self.log = open_log(self.folder)

    @staticmethod
    def make_folder() -> str:
        import tempfile

        return tempfile.mkdtemp()

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        values = list(range(len(self.expected), len(self.expected) + count))
        write(self.log, values)
        self.expected += values

    @rule()
    def fail(self) -> None:
        self.log.append(rows([-1]), 0)
        self.log.roll_back()

    @rule(count=st.integers(1, 3))
    def lose(self, count: int) -> None:
        self.log.skip(count)
        self.expected += [None] * count

    @rule()
    def roll(self) -> None:
        self.log._roll(self.log.next_offset)

    @rule()
    def maintain(self) -> None:
        self.log.maintain(0)

    @precondition(lambda self: self.log.next_offset > 0)
    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = open_log(self.folder)

    @invariant()
    def holds_what_was_written(self) -> None:
        end = len(self.expected)
        assert self.log.next_offset == end
        assert read(self.log, 0, end) == list(enumerate(self.expected))
        middle = end // 2
        assert read(self.log, middle, end) == list(enumerate(self.expected))[middle:]

    def teardown(self) -> None:
        import shutil

        self.log.close()
        shutil.rmtree(self.folder)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=25, stateful_step_count=15)


def test_a_part_is_small_beside_what_the_journal_may_take(tmp_path: Path) -> None:
    log = open_log(tmp_path, bytes_max=MEBIBYTE)

    assert log.segment_bytes_max * journal_log.SEGMENTS_MIN == MEBIBYTE
