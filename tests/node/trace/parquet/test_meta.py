"""Parquet's own structures, decoded by a naive reader of the compact protocol and by pyarrow."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.node.trace.parquet import meta
from timebound.node.trace.parquet.meta import BYTE_ARRAY, INT32, INT64, MAGIC, Chunk

TRUE, BYTE, I32, I64, BINARY, LIST, STRUCT = 1, 3, 5, 6, 8, 9, 12
FIELDS = [("id", "int64"), ("text", "string"), ("tiny", "int8"), ("small", "int16"), ("middle", "int32")]


class Naive:
    """Reads the compact protocol byte by byte, into dictionaries by field number."""

    def __init__(self, content: bytes) -> None:
        self.content = io.BytesIO(content)

    def byte(self) -> int:
        return self.content.read(1)[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def zigzag(self) -> int:
        value = self.varint()
        return value // 2 if value % 2 == 0 else -(value + 1) // 2

    def value(self, kind: int) -> Any:
        if kind == TRUE:
            return True
        if kind == BYTE:
            return self.byte()
        if kind in (I32, I64):
            return self.zigzag()
        if kind == BINARY:
            return self.content.read(self.varint())
        if kind == LIST:
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.value(head & 15) for _ in range(count)]
        assert kind == STRUCT, kind
        return self.struct()

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            number += head >> 4
            found[number] = self.value(head & 15)
        return found


def decode(content: bytes) -> dict[int, Any]:
    """The fields of one structure, which has to take all bytes."""
    reader = Naive(content)
    found = reader.struct()
    assert reader.content.read() == b""
    return found


@given(st.integers(0, (1 << 64) - 1))
def test_a_varint_is_read_back(value: int) -> None:
    assert Naive(meta.varint(value)).varint() == value


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_zigzag_is_read_back(value: int) -> None:
    assert Naive(meta.zigzag(value)).zigzag() == value


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\x00"), (-1, b"\x01"), (1, b"\x02"), (63, b"\x7e"), (64, b"\x80\x01")]
)
def test_small_numbers_take_one_byte(value: int, encoded: bytes) -> None:
    assert meta.zigzag(value) == encoded


def test_page_headers_have_the_numbers_of_the_format() -> None:
    data = decode(meta.data_page_header(900, 300, 50, meta.RLE_DICTIONARY))
    dictionary = decode(meta.dictionary_page_header(90, 30, 5))

    assert data == {1: 0, 2: 900, 3: 300, 5: {1: 50, 2: 8, 3: 3, 4: 3}}
    assert dictionary == {1: 2, 2: 90, 3: 30, 7: {1: 5, 2: 0}}


def chunk(**changes: Any) -> Chunk:
    values: dict[str, Any] = {
        "name": "id",
        "kind": "int64",
        "encoding": meta.DELTA_BINARY_PACKED,
        "rows": 50,
        "plain_bytes": 400,
        "stored_bytes": 100,
        "dictionary_offset": 0,
        "data_offset": 4,
        "bounds": (-5, 9),
        "is_compressed": True,
        **changes,
    }
    return Chunk(**values)


def test_a_row_group_says_where_its_columns_begin_and_how_large_they_are() -> None:
    text = chunk(name="text", kind="string", dictionary_offset=104, data_offset=180, bounds=None)

    group = decode(meta.row_group([chunk(), text], 50))

    first, second = group[1]
    assert (group[2], group[3]) == (800, 50)
    assert (first[2], second[2]) == (4, 104)
    assert (first[3][1], first[3][2], first[3][3]) == (INT64, [5], [b"id"])
    assert (second[3][1], second[3][2], second[3][11]) == (BYTE_ARRAY, [5, 0], 104)
    assert (first[3][4], first[3][9]) == (6, 4)


def test_bounds_are_there_only_where_a_column_has_them() -> None:
    [with_bounds] = decode(meta.row_group([chunk()], 50))[1]
    [without] = decode(meta.row_group([chunk(bounds=None, is_compressed=False)], 50))[1]

    statistics = with_bounds[3][12]
    assert [int.from_bytes(statistics[place], "little", signed=True) for place in (6, 5)] == [-5, 9]
    assert statistics[3] == 0  # nulls
    assert 12 not in without[3]
    assert without[3][4] == 0


@pytest.mark.parametrize("columns", [1, 13, 14, 15, 40])
def test_a_list_of_any_length_is_read_back(columns: int) -> None:
    fields = [(f"c{number}", "int64") for number in range(columns)]

    found = decode(meta.footer(fields, [], 0, {}, "a test"))

    assert [element[4] for element in found[2]] == [b"schema", *(name.encode() for name, _ in fields)]
    assert len(found[7]) == columns


def test_a_file_of_a_footer_alone_is_an_empty_table_to_pyarrow() -> None:
    footer = meta.footer(FIELDS, [], 0, {"key": "valuè"}, "timebound version 1")
    content = MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC

    file = pq.ParquetFile(io.BytesIO(content))

    assert file.read().num_rows == 0
    assert file.schema_arrow.remove_metadata() == pa.schema(
        [pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in FIELDS]
    )
    assert file.metadata.metadata[b"key"].decode() == "valuè"
    assert file.metadata.created_by == "timebound version 1"


@pytest.mark.parametrize(
    ("kind", "stored"),
    [("int8", INT32), ("int16", INT32), ("int32", INT32), ("int64", INT64), ("string", BYTE_ARRAY)],
)
def test_small_numbers_are_stored_as_32_bits_and_texts_as_bytes(kind: str, stored: int) -> None:
    assert meta.stored_type(kind) == stored
