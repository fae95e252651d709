"""Parquet from runs: every encoding reads back as the rows that the runs stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.node.trace.doubles import FullDisk

from timebound.node.trace.parquet.runs import Coded, Rising, RunsFile, encode_column

FIELDS = [
    ("id", "int64"),
    ("time", "int64"),
    ("text", "string"),
    ("tiny", "int8"),
    ("small", "int16"),
    ("middle", "int32"),
    ("large", "int64"),
]
Run = tuple[int, int, int, str, int, int, int, int]  # rows, id and time of the first, then the other columns
TEXTS = ("", "plant/7/temp", "über", "x" * 300)
times = st.one_of(st.integers(0, 40), st.integers(0, 1 << 61))
small_runs = st.tuples(
    st.one_of(st.integers(1, 4), st.integers(50, 400)),
    times,
    times,
    st.sampled_from(TEXTS),
    st.integers(-128, 127),
    st.sampled_from((-(1 << 15), 0, (1 << 15) - 1)),
    st.sampled_from((-(1 << 31), 0, (1 << 31) - 1)),
    st.sampled_from((-(1 << 63), 0, (1 << 63) - 1)),
)


def coded(values: list[Any]) -> Coded:
    code_of = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return Coded(list(code_of), np.array([code_of[value] for value in values]))


def write(path: Path, groups: list[list[Run]], metadata: dict[str, str] | None = None) -> RunsFile:
    file = RunsFile(path, FIELDS, metadata or {}, "timebound version 1")
    for runs in groups:
        add(file, runs)
    return file


def add(file: RunsFile, runs: list[Run]) -> None:
    counts, ids, moments, *others = (list(column) for column in zip(*runs, strict=True))
    columns: list[Coded | Rising] = [
        Rising(np.array(ids), 1),
        Rising(np.array(moments)),
        *(coded(column) for column in others),
    ]
    file.write_group(np.array(counts), columns)


def expected(groups: list[list[Run]]) -> list[tuple[Any, ...]]:
    """The naive way: row by row."""
    return [
        (first + offset, *rest) for runs in groups for count, first, *rest in runs for offset in range(count)
    ]


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pq.ParquetFile(path).read().to_pylist()]


@settings(max_examples=20, deadline=None)
@given(groups=st.lists(st.lists(small_runs, min_size=1, max_size=12), max_size=3))
def test_what_is_read_is_what_the_runs_stand_for(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[Run]]
) -> None:
    path = tmp_path_factory.mktemp("runs") / "a.parquet"

    write(path, groups).finish()

    assert rows_of(path) == expected(groups)


@pytest.mark.parametrize("rows_of_run", [1, 2, 5, 40])
@pytest.mark.parametrize("different", [1, 2, 300, 70_000])
def test_any_number_of_different_values_fits(tmp_path: Path, different: int, rows_of_run: int) -> None:
    counts = np.full(max(different, 500), rows_of_run)
    values = np.arange(len(counts)) % different
    file = RunsFile(
        tmp_path / "a.parquet", [("number", "int64"), ("time", "int64")], {}, "timebound version 1"
    )

    file.write_group(counts, [Coded(np.arange(different) - 7, values), Rising(values * 1_000)])
    file.finish()

    table = pq.ParquetFile(tmp_path / "a.parquet").read()
    assert np.array_equal(table["number"].to_numpy(), np.repeat(values - 7, counts))
    assert np.array_equal(table["time"].to_numpy(), np.repeat(values * 1_000, counts))


@pytest.mark.parametrize("rows_of_code", [1, 2, 3, 40, 3_000])
@pytest.mark.parametrize("different", [2, 300, 70_000])
def test_codes_may_come_by_row_whatever_the_runs_are(
    tmp_path: Path, different: int, rows_of_code: int
) -> None:
    rows = max(different, 6_000)
    codes = np.arange(rows) // rows_of_code % different
    codes = codes.astype(np.min_scalar_type(different - 1))
    counts = np.array([1, 700, rows - 701])  # of the other columns
    fields = [("number", "int64"), ("text", "string"), ("time", "int64")]
    file = RunsFile(tmp_path / "a.parquet", fields, {}, "timebound version 1")
    texts = [f"t/{number}" for number in range(different)]

    file.write_group(
        counts, [Coded(np.arange(different) - 7, codes), Coded(texts, codes), Rising(np.array([5, 9, 7]))]
    )
    file.finish()

    table = pq.ParquetFile(tmp_path / "a.parquet").read()
    assert np.array_equal(table["number"].to_numpy(), codes.astype(np.int64) - 7)
    assert table["text"].to_pylist() == [texts[code] for code in codes]
    assert np.array_equal(table["time"].to_numpy(), np.repeat([5, 9, 7], counts))


@pytest.mark.parametrize("rows_of_code", [1, 2, 3, 40])
def test_codes_by_row_are_written_like_the_same_by_run(rows_of_code: int) -> None:
    by_run = np.arange(300, dtype=np.uint16)
    counts = np.full(300, rows_of_code)
    rows = 300 * rows_of_code
    values = np.arange(300)

    by_row = encode_column("int64", Coded(values, np.repeat(by_run, counts)), np.array([rows]), rows)

    assert by_row == encode_column("int64", Coded(values, by_run), counts, rows)


def test_codes_by_row_that_seldom_change_take_little_room() -> None:
    codes = np.repeat(np.array([0, 1, 0], np.uint8), [400_000, 1, 599_999])

    encoded = encode_column("int64", Coded(np.array([3, 4]), codes), np.array([1_000_000]), 1_000_000)

    assert len(encoded.data) < 20


def test_types_metadata_and_bounds_are_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"

    write(path, [[(3, 5, 900, "t", 1, 2, 3, 4), (2, 1, 700, "t", 1, 2, 3, 4)]], {"key": "valuè"}).finish()

    file = pq.ParquetFile(path)
    assert file.schema_arrow.remove_metadata() == pa.schema(
        [pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in FIELDS]
    )
    assert file.metadata.metadata[b"key"].decode() == "valuè"
    assert file.metadata.created_by == "timebound version 1"
    bounds = [file.metadata.row_group(0).column(index).statistics for index in (0, 1)]
    assert [(bound.min, bound.max, bound.null_count) for bound in bounds] == [(1, 7, 0), (700, 900, 0)]
    assert file.metadata.row_group(0).column(2).statistics is None


def test_runs_take_no_room_for_their_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[(1_000_000, 5, 900, "t", 1, 2, 3, 4)] * 3]).finish()

    assert (tmp_path / "a.parquet").stat().st_size < 5_000


def test_a_group_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    good: list[Run] = [(3, 1, 10, "t", 1, 2, 3, 4)]
    file = write(path, [good])
    FullDisk.under(file, refusals=1)

    with pytest.raises(OSError, match="No space left"):
        add(file, good)
    file.finish()

    assert rows_of(path) == expected([good])
    assert file.rows == 3
