"""Trace files of a run: their rows, their names, and no half-written file."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from timebound.core.mesh.account import TraceRow
from timebound.errors import ConfigError
from timebound.records import TRACE_FIELDS
from timebound.sim.mesh.trace import check_trace_name, trace_schema, write_trace

NAMES = [name for name, _ in TRACE_FIELDS]
needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed"
)


def row(sequence: int) -> TraceRow:
    return (
        *(7_000, sequence, "a/ö", "p1", "s1", "a/#", 1, 2_048, 5_000, 300, 9_000),
        *("in_time", "", 2_000_000, 1_000_000, 2, "b3", 6_800, 0, "b1", 0, sequence, ""),
    )


def test_lines_hold_every_field_by_name(tmp_path: Path) -> None:
    write_trace([row(1), row(2)], tmp_path / "trace.jsonl")

    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert lines == [dict(zip(NAMES, row(number), strict=True)) for number in (1, 2)]


@needs_pyarrow
def test_parquet_holds_the_same_rows_under_the_schema_of_the_trace(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    write_trace([row(1), row(2)], tmp_path / "trace.parquet")

    table = parquet.read_table(tmp_path / "trace.parquet")
    assert table.schema.equals(trace_schema(), check_metadata=True)
    assert table.to_pylist() == [dict(zip(NAMES, row(number), strict=True)) for number in (1, 2)]


@needs_pyarrow
@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet"])
def test_equal_rows_give_equal_bytes_and_leave_no_part_behind(tmp_path: Path, name: str) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        write_trace([row(1)], folder / name)

    assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    assert [path.name for path in folders[0].iterdir()] == [name]


@needs_pyarrow
def test_a_row_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_trace([row(1)], path)
    before = path.read_bytes()

    with pytest.raises(OverflowError):
        write_trace([row(2**70)], path)

    assert path.read_bytes() == before


@needs_pyarrow
def test_a_trace_of_nothing_still_has_its_columns(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    write_trace([], tmp_path / "none.parquet")

    assert parquet.read_table(tmp_path / "none.parquet").column_names == [name for name, _ in TRACE_FIELDS]


def test_a_name_of_another_kind_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"neither \.parquet nor \.jsonl"):
        write_trace([], tmp_path / "trace.csv")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["trace.csv", "trace", "trace.parquet.gz"])
def test_a_name_can_be_checked_before_a_run(name: str) -> None:
    with pytest.raises(ConfigError, match=f"trace file '{name}' ends in neither"):
        check_trace_name(Path(name))
