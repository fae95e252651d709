"""Integers, strings and binary data: values, limits and error texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.errors import MalformedPacket, ProtocolError
from timebound.wire.primitives import (
    VARINT_MAX,
    PacketReader,
    decode_packet_id,
    encode_binary,
    encode_string,
    encode_u16,
    encode_u32,
    encode_varint,
    shown,
)

from .strategies import texts


def reader_of(data: bytes) -> PacketReader:
    return PacketReader(data, 0, len(data))


# MQTT 5, table 1-1: the ends of each length.
@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (VARINT_MAX, "ffffff7f"),
    ],
)
def test_varint_has_the_lengths_of_the_standard(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert reader_of(bytes.fromhex(encoded)).varint("length") == value


@given(st.integers(0, VARINT_MAX))
def test_varint_survives_a_round_trip(value: int) -> None:
    reader = reader_of(encode_varint(value))

    assert reader.varint("length") == value
    assert reader.left() == 0


@given(st.integers(0, 65_535), st.integers(0, 4_294_967_295), st.binary(max_size=50), texts)
def test_values_survive_a_round_trip(small: int, large: int, binary: bytes, text: str) -> None:
    reader = reader_of(encode_u16(small) + encode_u32(large) + encode_binary(binary) + encode_string(text))

    assert reader.u16("small") == small
    assert reader.u32("large") == large
    assert reader.binary("binary") == binary
    assert reader.string("text") == text
    reader.expect_end("packet")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("80", "length is missing"),
        ("8000", "length is not in its shortest form (value 0)"),
        ("ff00", "length is not in its shortest form (value 127)"),
        ("ffffffff", "length is longer than four bytes"),
    ],
)
def test_bad_varint_is_malformed(data: str, message: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        reader_of(bytes.fromhex(data)).varint("length")

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\xff", "name is not UTF-8 at byte 0: b'\\xff'"),
        (b"a\xc0\x80", "name is not UTF-8 at byte 1: b'a\\xc0\\x80'"),
        (b"\xed\xa0\x80", "name is not UTF-8 at byte 0: b'\\xed\\xa0\\x80'"),
        (b"\xf4\x90\x80\x80", "name is not UTF-8 at byte 0: b'\\xf4\\x90\\x80\\x80'"),
        (b"a\0b", "name contains U+0000: b'a\\x00b'"),
    ],
)
def test_bad_string_is_malformed(raw: bytes, message: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        reader_of(encode_binary(raw)).string("name")

    assert str(caught.value) == message
    assert caught.value.reason_code == 0x81


def test_reading_past_the_end_says_what_is_missing() -> None:
    with pytest.raises(MalformedPacket, match=r"topic is cut short \(needs 5 bytes, has 2\)"):
        reader_of(b"\0\5ab").binary("topic")
    with pytest.raises(MalformedPacket, match=r"interval is cut short \(needs 4 bytes, has 3\)"):
        reader_of(b"\0\0\0").u32("interval")
    with pytest.raises(MalformedPacket, match="flags is missing"):
        reader_of(b"").u8("flags")
    with pytest.raises(MalformedPacket, match="PINGREQ has 1 bytes too many"):
        reader_of(b"x").expect_end("PINGREQ")


def test_reader_does_not_see_beyond_its_end() -> None:
    with pytest.raises(MalformedPacket):
        PacketReader(b"\0\3abc", 0, 4).string("name")


def test_packet_identifier_zero_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_packet_id(reader_of(b"\0\0"))

    assert caught.value.reason_code == 0x82


@pytest.mark.parametrize("value", [-1, 65_536])
def test_encoding_what_does_not_fit_two_bytes_is_a_mistake(value: int) -> None:
    with pytest.raises(ValueError, match="two-byte"):
        encode_u16(value)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_encoding_what_does_not_fit_four_bytes_is_a_mistake(value: int) -> None:
    with pytest.raises(ValueError, match="four-byte"):
        encode_u32(value)


@pytest.mark.parametrize("value", [-1, VARINT_MAX + 1])
def test_encoding_what_does_not_fit_a_varint_is_a_mistake(value: int) -> None:
    with pytest.raises(ValueError, match="variable byte"):
        encode_varint(value)


@pytest.mark.parametrize(
    ("text", "message"), [("a\0", "U\\+0000"), ("\ud800", "surrogate"), ("x" * 65_536, "too long")]
)
def test_encoding_a_string_mqtt_cannot_carry_is_a_mistake(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_string(text)


def test_encoding_too_much_binary_data_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode_binary(bytes(65_536))


def test_long_values_are_shortened_in_error_texts() -> None:
    assert shown(b"x" * 40) == repr(b"x" * 40)
    assert shown(b"x" * 41) == repr(b"x" * 40) + "..."
