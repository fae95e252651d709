"""Trace files: rows in order, rotation, names, bounds, and what a full disk or a crash leaves."""

from __future__ import annotations

import fcntl
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.node.trace.doubles import FullDisk, batch_of, parts, read

from timebound.node.trace.files import TraceFiles
from timebound.node.trace.writer import TraceLimits
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION

MANY = TraceLimits(file_bytes_max=1 << 30, file_age_max_s=3_600.0, disk_bytes_max=1 << 40)
SMALL = TraceLimits(file_bytes_max=1_024, file_age_max_s=3_600.0, disk_bytes_max=1 << 40)


def test_rows_are_written_in_order_and_none_is_lost(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path, "node1", MANY)
    for start in range(1, 1_001, 100):
        files.append(batch_of(100, start=start))
    files.close()

    rows = read(tmp_path)

    assert [row["message_id"] for row in rows] == list(range(1, 1_001))
    assert Counter(row["outcome"] for row in rows) == {"in_time": 667, "dropped": 333}
    assert (files.rows_written, files.rows_kept(), files.rows_lost) == (1_000, 1_000, 0)
    [part] = parts(tmp_path)
    file = pq.ParquetFile(part)
    assert file.num_row_groups == 10
    assert [(field.name, str(field.type)) for field in file.schema_arrow] == list(TRACE_FIELDS)
    assert file.metadata.metadata[b"timebound.trace.version"] == str(TRACE_SCHEMA_VERSION).encode()
    assert part.parent.name == "node=node1"
    assert part.parent.parent.name == time.strftime("date=%Y-%m-%d", time.gmtime())


def test_a_file_is_closed_at_its_size(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path, "n", SMALL)
    for number in range(1, 5):
        files.append(batch_of(1_000, start=number * 1_000))
        assert len(parts(tmp_path)) == number
        assert files.rows_kept() == number * 1_000

    assert len(read(tmp_path)) == 4_000


def test_a_file_is_closed_at_its_age(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path, "n", TraceLimits(1 << 30, 0.05, 1 << 40))
    assert files.due_in_s() is None
    files.append(batch_of(3))

    while files.due_in_s() != 0.0:
        assert (due_in_s := files.due_in_s()) is None or 0.0 <= due_in_s <= 0.05
    assert parts(tmp_path) == []
    files.finish_if_due()

    assert len(read(tmp_path)) == 3
    assert files.due_in_s() is None


def test_a_file_is_hidden_until_it_is_complete(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path, "n", MANY)
    files.append(batch_of(3))

    assert parts(tmp_path) == []
    assert (files.rows_written, files.rows_kept()) == (3, 0)
    [hidden] = tmp_path.glob("date=*/node=n/.*")
    assert hidden.name.endswith(".tmp")

    files.close()
    assert len(parts(tmp_path)) == 1
    assert not hidden.exists()


def test_the_oldest_files_go_when_all_are_too_large(tmp_path: Path) -> None:
    first = TraceFiles(tmp_path, "n", SMALL)
    first.append(batch_of(1_000))
    [part] = parts(tmp_path)
    bytes_max = 3 * part.stat().st_size
    files = TraceFiles(tmp_path, "n", TraceLimits(1_024, 3_600.0, bytes_max))
    for start in range(2, 8):
        files.append(batch_of(1_000, start=start * 1_000))

    assert sum(part.stat().st_size for part in parts(tmp_path)) <= bytes_max
    rows = read(tmp_path)
    assert rows[-1]["message_id"] == 7_999
    assert rows[0]["message_id"] > 3_000


def test_what_an_earlier_run_left_unfinished_is_swept(tmp_path: Path) -> None:
    folder = tmp_path / "date=2026-01-01" / "node=n"
    folder.mkdir(parents=True)
    (folder / ".part-1-000001.parquet.tmp").write_bytes(b"half a file")
    other = tmp_path / "date=2026-01-01" / "node=m" / ".part-1-000001.parquet.tmp"
    other.parent.mkdir()
    other.write_bytes(b"another broker is writing this")

    TraceFiles(tmp_path, "n", MANY).close()

    assert list(folder.iterdir()) == []
    assert other.exists()


def test_what_is_still_being_written_is_not_swept(tmp_path: Path) -> None:
    earlier = TraceFiles(tmp_path, "n", MANY)
    earlier.append(batch_of(3))

    TraceFiles(tmp_path, "n", MANY).close()
    earlier.close()

    assert len(read(tmp_path)) == 3
    assert (earlier.rows_kept(), earlier.rows_lost) == (3, 0)
    with parts(tmp_path)[0].open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_disk_that_refuses_costs_records_and_not_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    files = TraceFiles(trace, "n", MANY)
    trace.rmdir()
    trace.write_text("a file where the folder was")
    files.append(batch_of(5))
    assert files.rows_lost == 5
    trace.unlink()
    files.append(batch_of(7))
    files.close()

    assert len(read(trace)) == 7
    assert (files.rows_written, files.rows_lost) == (7, 5)


@pytest.mark.parametrize(("refusals", "saved"), [(1, 3), (2, 0)])
def test_a_disk_that_is_full_costs_no_records_but_those_it_has_no_room_for(
    tmp_path: Path, refusals: int, saved: int
) -> None:
    files = TraceFiles(tmp_path, "n", MANY)
    files.append(batch_of(3))
    assert files._file is not None
    FullDisk.under(files._file._file, refusals=refusals)

    files.append(batch_of(5))
    files.append(batch_of(7))
    files.close()

    assert len(read(tmp_path)) == saved + 7
    assert (files.rows_written, files.rows_lost) == (saved + 7, 8 - saved)
    assert not list(tmp_path.rglob(".*"))


def test_a_disk_that_has_no_room_for_the_end_of_a_file_costs_its_records(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path, "n", MANY)
    files.append(batch_of(3))
    assert files._file is not None
    FullDisk.under(files._file._file, refusals=1)

    files.close()

    assert (files.rows_written, files.rows_lost) == (0, 3)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
