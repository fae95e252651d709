"""Metadata of Parquet files: schema, positions and contents of pages.

Structures and their fields have numbers in the format's definition (`parquet.thrift`); each function here
encodes one of them in Thrift's compact protocol, as far as trace files need it: columns without nulls, of
whole numbers and texts, compressed with Zstandard or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"PAR1"
# Encodings.
PLAIN: Final = 0
RLE: Final = 3
DELTA_BINARY_PACKED: Final = 5
RLE_DICTIONARY: Final = 8
# Physical types of columns, and their logical types in the older and the newer notation.
INT32: Final = 1
INT64: Final = 2
BYTE_ARRAY: Final = 6
_STORED_AS: Final = {"int8": INT32, "int16": INT32, "int32": INT32, "int64": INT64, "string": BYTE_ARRAY}
_CONVERTED: Final = {"int8": 15, "int16": 16, "string": 0}
_BITS: Final = {"int8": 8, "int16": 16}
_UNCOMPRESSED: Final = 0
_ZSTD: Final = 6
_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
# Types of the compact protocol.
_TRUE: Final = 1
_BYTE: Final = 3
_I32: Final = 5
_I64: Final = 6
_BINARY: Final = 8
_LIST: Final = 9
_STRUCT: Final = 12

Field = tuple[int, int, bytes]  # number, type and encoded value


@dataclass(frozen=True, slots=True)
class Chunk:
    """Position and contents of one column of a row group."""

    name: str
    kind: str  # as in TRACE_FIELDS
    encoding: int
    rows: int
    plain_bytes: int  # with headers, before compression
    stored_bytes: int
    dictionary_offset: int  # 0 = none
    data_offset: int
    bounds: tuple[int, int] | None  # smallest and largest value, if readers select by them
    is_compressed: bool


def stored_type(kind: str) -> int:
    return _STORED_AS[kind]


def varint(value: int) -> bytes:
    """Encode a non-negative number, seven bits per byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def data_page_header(plain_bytes: int, stored_bytes: int, rows: int, encoding: int) -> bytes:
    # Columns without nulls have no levels, but the encodings of levels are required.
    about = _struct(_i32(1, rows), _i32(2, encoding), _i32(3, RLE), _i32(4, RLE))
    return _struct(_i32(1, _DATA_PAGE), _i32(2, plain_bytes), _i32(3, stored_bytes), _nested(5, about))


def dictionary_page_header(plain_bytes: int, stored_bytes: int, values: int) -> bytes:
    about = _struct(_i32(1, values), _i32(2, PLAIN))
    return _struct(_i32(1, _DICTIONARY_PAGE), _i32(2, plain_bytes), _i32(3, stored_bytes), _nested(7, about))


def row_group(chunks: Sequence[Chunk], rows: int) -> bytes:
    columns = [_struct(_i64(2, _begin(chunk)), _nested(3, _column(chunk))) for chunk in chunks]
    plain_bytes = sum(chunk.plain_bytes for chunk in chunks)
    return _struct(_list(1, _STRUCT, columns), _i64(2, plain_bytes), _i64(3, rows))


def footer(
    fields: Sequence[tuple[str, str]],
    groups: Sequence[bytes],
    rows: int,
    metadata: dict[str, str],
    made_by: str,
) -> bytes:
    """Encode the footer, which precedes its own length at the end of a file."""
    root = _struct(_binary(4, b"schema"), _i32(5, len(fields)))
    pairs = [_struct(_binary(1, key.encode()), _binary(2, value.encode())) for key, value in metadata.items()]
    # Readers use bounds only if the file declares the order of values: here the usual one of their types.
    orders = [_struct(_nested(1, _struct()))] * len(fields)
    return _struct(
        _i32(1, 2),  # version
        _list(2, _STRUCT, [root, *(_schema_element(name, kind) for name, kind in fields)]),
        _i64(3, rows),
        _list(4, _STRUCT, groups),
        _list(5, _STRUCT, pairs),
        _binary(6, made_by.encode()),
        _list(7, _STRUCT, orders),
    )


def _schema_element(name: str, kind: str) -> bytes:
    fields = [_i32(1, _STORED_AS[kind]), _i32(3, 0), _binary(4, name.encode())]
    if kind in _CONVERTED:
        fields.append(_i32(6, _CONVERTED[kind]))
    if kind == "string":
        fields.append(_nested(10, _struct(_nested(1, _struct()))))
    elif kind in _BITS:
        signed = _struct((1, _BYTE, bytes([_BITS[kind]])), (2, _TRUE, b""))
        fields.append(_nested(10, _struct(_nested(10, signed))))
    return _struct(*fields)


def _column(chunk: Chunk) -> bytes:
    encodings = [zigzag(chunk.encoding)]
    if chunk.dictionary_offset:
        encodings.append(zigzag(PLAIN))
    fields = [
        _i32(1, _STORED_AS[chunk.kind]),
        _list(2, _I32, encodings),
        _list(3, _BINARY, [_counted(chunk.name.encode())]),
        _i32(4, _ZSTD if chunk.is_compressed else _UNCOMPRESSED),
        _i64(5, chunk.rows),
        _i64(6, chunk.plain_bytes),
        _i64(7, chunk.stored_bytes),
        _i64(9, chunk.data_offset),
    ]
    if chunk.dictionary_offset:
        fields.append(_i64(11, chunk.dictionary_offset))
    if chunk.bounds is not None:
        low, high = (bound.to_bytes(8, "little", signed=True) for bound in chunk.bounds)
        fields.append(_nested(12, _struct(_i64(3, 0), _binary(5, high), _binary(6, low))))
    return _struct(*fields)


def _begin(chunk: Chunk) -> int:
    return chunk.dictionary_offset or chunk.data_offset


def _struct(*fields: Field) -> bytes:
    """Encode fields in ascending order, each number as the difference to the one before."""
    found = bytearray()
    last = 0
    for number, kind, content in fields:
        found.append(number - last << 4 | kind)
        found += content
        last = number
    found.append(0)
    return bytes(found)


def _counted(content: bytes) -> bytes:
    return varint(len(content)) + content


def _i32(number: int, value: int) -> Field:
    return number, _I32, zigzag(value)


def _i64(number: int, value: int) -> Field:
    return number, _I64, zigzag(value)


def _binary(number: int, content: bytes) -> Field:
    return number, _BINARY, _counted(content)


def _nested(number: int, content: bytes) -> Field:
    return number, _STRUCT, content


def _list(number: int, kind: int, items: Sequence[bytes]) -> Field:
    # A short list has its length in the type byte.
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return number, _LIST, head + b"".join(items)
