"""The data types of MQTT 5, section 1.5: integers, strings and binary data.

A `PacketReader` reads the bytes of one packet and never beyond them; every method is told what it
reads, so that an error names the field. Encoders return bytes and raise ValueError for values that
MQTT cannot carry: that is the caller's mistake.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from timebound.errors import MalformedPacket, ProtocolError

VARINT_MAX: Final = 268_435_455  # four bytes of seven bits
LENGTH_MAX: Final = 65_535  # strings and binary data have a two-byte length
_SHOWN_BYTES_MAX: Final = 40  # enough to recognise a bad value in a log

# Making a bytes object from one number costs 90 ns, looking it up 20 ns.
BYTE: Final[list[bytes]] = [bytes((value,)) for value in range(256)]


@mypyc_attr(acyclic=True, free_list_len=1)
class PacketReader:
    """A position in the bytes of one packet, from `position` up to `end`."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def left(self) -> int:
        return self.end - self.position

    def take(self, size: int, what: str) -> bytes:
        """Return the next `size` bytes."""
        start = self.position
        stop = start + size
        if stop > self.end:
            raise MalformedPacket(f"{what} is cut short (needs {size} bytes, has {self.end - start})")
        self.position = stop
        return self.data[start:stop]

    def u8(self, what: str) -> int:
        position = self.position
        if position >= self.end:
            raise MalformedPacket(f"{what} is missing")
        self.position = position + 1
        return self.data[position]

    def u16(self, what: str) -> int:
        position = self.position
        if position + 2 > self.end:
            raise MalformedPacket(f"{what} is cut short (needs 2 bytes, has {self.left()})")
        self.position = position + 2
        return (self.data[position] << 8) | self.data[position + 1]

    def u32(self, what: str) -> int:
        data = self.data
        position = self.position
        if position + 4 > self.end:
            raise MalformedPacket(f"{what} is cut short (needs 4 bytes, has {self.left()})")
        self.position = position + 4
        # Spelled out: int.from_bytes costs four times as much when compiled.
        high = (data[position] << 8) | data[position + 1]
        return (high << 16) | (data[position + 2] << 8) | data[position + 3]

    def varint(self, what: str) -> int:
        """Read a variable byte integer, which must have its shortest form [MQTT-1.5.5-1]."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.u8(what)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise MalformedPacket(f"{what} is not in its shortest form (value {value})")
                return value
        raise MalformedPacket(f"{what} is longer than four bytes")

    def binary(self, what: str) -> bytes:
        return self.take(self.u16(what), what)

    def string(self, what: str) -> str:
        return decode_utf8(self.take(self.u16(what), what), what)

    def expect_end(self, what: str) -> None:
        """Refuse bytes after the last field of a packet."""
        if self.position != self.end:
            raise MalformedPacket(f"{what} has {self.left()} bytes too many")


def decode_packet_id(reader: PacketReader) -> int:
    """Read a packet identifier, which is never 0 [MQTT-2.2.1-3]."""
    packet_id = reader.u16("packet identifier")
    if packet_id == 0:
        raise ProtocolError(0x82, "packet identifier is 0 (1 to 65535)")
    return packet_id


def decode_utf8(raw: bytes, what: str) -> str:
    """Decode a UTF-8 string; ill-formed UTF-8, surrogates and U+0000 are refused.

    Raises:
        MalformedPacket: [MQTT-1.5.4-1], [MQTT-1.5.4-2].
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"{what} is not UTF-8 at byte {error.start}: {shown(raw)}") from error
    if "\0" in text:
        raise MalformedPacket(f"{what} contains U+0000: {shown(raw)}")
    return text


def shown(raw: bytes) -> str:
    """Return a value for an error text, shortened if it is long."""
    return repr(raw) if len(raw) <= _SHOWN_BYTES_MAX else f"{raw[:_SHOWN_BYTES_MAX]!r}..."


def encode_u16(value: int) -> bytes:
    if not 0 <= value <= LENGTH_MAX:
        raise ValueError(f"{value} does not fit a two-byte integer (0 to {LENGTH_MAX})")
    return BYTE[value >> 8] + BYTE[value & 0xFF]


def encode_u32(value: int) -> bytes:
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit a four-byte integer (0 to 4294967295)")
    return value.to_bytes(4, "big")


def encode_varint(value: int) -> bytes:
    """Encode a variable byte integer in its shortest form."""
    if 0 <= value < 0x80:
        return BYTE[value]
    if 0 <= value < 0x4000:
        return BYTE[(value & 0x7F) | 0x80] + BYTE[value >> 7]
    if not 0 <= value <= VARINT_MAX:
        raise ValueError(f"{value} does not fit a variable byte integer (0 to {VARINT_MAX})")
    encoded = b""
    while value > 0x7F:
        encoded += BYTE[(value & 0x7F) | 0x80]
        value >>= 7
    return encoded + BYTE[value]


def encode_binary(value: bytes) -> bytes:
    if len(value) > LENGTH_MAX:
        raise ValueError(f"binary data of {len(value)} bytes is too long (at most {LENGTH_MAX})")
    return encode_u16(len(value)) + value


def encode_string(text: str) -> bytes:
    """Encode a UTF-8 string with its length."""
    if "\0" in text:
        raise ValueError(f"string {text!r} contains U+0000, which MQTT does not allow")
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"string {text!r} contains a surrogate, which UTF-8 does not have") from error
    if len(raw) > LENGTH_MAX:
        raise ValueError(f"string of {len(raw)} bytes is too long (at most {LENGTH_MAX})")
    return encode_u16(len(raw)) + raw
