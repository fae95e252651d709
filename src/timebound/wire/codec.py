"""The public codec: `Decoder` here, the encoders from `encode.py`.

A `Decoder` gets the bytes of one connection in pieces of any size and returns whole packets. It
never raises for what a peer sends: the first mistake is kept in `error`, with the reason code for
the answer, and ends the decoding; the packets before it are returned.

Measured from `feed`, 64 KiB pieces of PUBLISH packets with 64 bytes of payload, in µs a packet,
uncompiled and compiled: QoS 0 1.1 and 0.19, QoS 1 3.1 and 0.37, with two user properties that
repeat 5.1 and 0.5 (three that do not: 1.7 compiled); a PUBACK 1.7 and 0.15.
"""

from __future__ import annotations

from typing import Final

from timebound.errors import MalformedPacket, ProtocolError
from timebound.wire import packet_types as types
from timebound.wire.decode import decode_body, decode_connect, decode_protocol
from timebound.wire.encode import (
    PublishTemplate,
    clear_encoded,
    encode,
    encode_ack,
    encode_property_prefix,
    encode_publish,
    with_message_expiry_interval,
    with_subscription_identifier,
    with_topic_alias,
    with_user_property,
)
from timebound.wire.packets import NO_IDENTIFIERS, NO_USER_PROPERTIES, Packet, Publish
from timebound.wire.primitives import VARINT_MAX, PacketReader
from timebound.wire.publish import TOPICS, clear_decoded, decode_publish

__all__ = [
    "PACKET_SIZE_MAX",
    "Decoder",
    "PublishTemplate",
    "clear_caches",
    "encode",
    "encode_ack",
    "encode_property_prefix",
    "encode_publish",
    "with_message_expiry_interval",
    "with_subscription_identifier",
    "with_topic_alias",
    "with_user_property",
]

PACKET_SIZE_MAX: Final = VARINT_MAX + 5  # the longest body and its header

_COMMON: Final = sum(1 << kind for kind in range(types.PUBLISH, types.PUBCOMP + 1))
_TO_SERVER: Final = (
    _COMMON
    | (1 << types.CONNECT)
    | (1 << types.SUBSCRIBE)
    | (1 << types.UNSUBSCRIBE)
    | (1 << types.PINGREQ)
    | (1 << types.DISCONNECT)
)
_TO_CLIENT: Final = (
    _COMMON | (1 << types.CONNACK) | (1 << types.SUBACK) | (1 << types.UNSUBACK) | (1 << types.PINGRESP)
)
_FLAGS_2: Final = (1 << types.PUBREL) | (1 << types.SUBSCRIBE) | (1 << types.UNSUBSCRIBE)
_INCOMPLETE: Final = -1


def clear_caches() -> None:
    """Empty the caches of topics and properties, to free memory; they fill again with use."""
    clear_decoded()
    clear_encoded()


class Decoder:
    """Bytes of one connection in, packets out.

    A server's decoder starts with version 0: the first packet has to be a CONNECT, and sets
    the version (4 for MQTT 3.1.1 and 3.1). With a version given, the handshake counts as done.
    """

    __slots__ = (
        "_allowed",
        "_collected",
        "_missing",
        "_rest",
        "error",
        "is_server",
        "packet_size_max",
        "version",
    )

    def __init__(self, version: int = 0, *, is_server: bool, packet_size_max: int = PACKET_SIZE_MAX) -> None:
        if version not in (0, 4, 5) or (version == 0 and not is_server):
            raise ValueError(f"decoder version {version} is invalid (4 or 5, or 0 on a server)")
        self.version = version
        self.is_server = is_server
        self.packet_size_max = packet_size_max
        self.error: ProtocolError | None = None
        self._allowed = _allowed_types(version, is_server)
        self._rest = b""  # the beginning of a packet, from the last piece
        self._missing = 0  # bytes until that packet is whole; 0 while its length is unknown
        self._collected: bytearray | None = None  # takes over from `_rest` when more pieces are needed

    def feed(self, data: bytes) -> list[Packet]:
        """Return the packets that are now complete; after a mistake of the peer see `error`."""
        packets: list[Packet] = []
        if self.error is not None:
            return packets
        if self._rest or self._collected is not None:
            data = self._join(data)
        if not data:
            return packets
        try:
            consumed = self._decode_all(data, packets)
        except ProtocolError as error:
            self.error = error
            return packets
        if consumed < len(data):
            self._rest = data[consumed:]
        return packets

    def _join(self, data: bytes) -> bytes:
        """Append a piece to the kept ones; return nothing while the packet is incomplete.

        A bytearray grows in place, so a long packet in many small pieces takes linear time.
        """
        if self._missing > len(data):
            if self._collected is None:
                self._collected = bytearray(self._rest)
                self._rest = b""
            self._collected += data
            self._missing -= len(data)
            return b""
        self._missing = 0
        if self._collected is None:
            joined = self._rest + data
            self._rest = b""
            return joined
        self._collected += data
        whole = bytes(self._collected)
        self._collected = None
        return whole

    def _decode_all(self, data: bytes, packets: list[Packet]) -> int:
        """Decode whole packets from the start of `data`; return their number of bytes."""
        position = 0
        end = len(data)
        while position < end:
            if data[position] == 0x30 and self.version:
                position = self._decode_plain_run(data, position, end, packets)
                if position == end:
                    break
            following = self._decode_next(data, position, end, packets)
            if following == _INCOMPLETE:
                break
            position = following
        return position

    def _decode_plain_run(self, data: bytes, position: int, end: int, packets: list[Packet]) -> int:
        """Decode QoS 0 PUBLISH packets without flags and properties, on topics seen before.

        Stops at the first other packet, without checking it.
        """
        is_v5 = self.version == 5
        raw_last = b""
        topic: str | None = None
        # Only lengths of one or two bytes: for longer packets this path saves nothing.
        size_max = self.packet_size_max
        while position + 4 < end and data[position] == 0x30:
            length = data[position + 1]
            start = position + 2
            if length >= 0x80:
                high = data[start]
                if high >= 0x80 or high == 0:
                    break
                length += (high - 1) << 7
                start += 1
            stop = start + length
            if stop > end or length < 4 or stop - position > size_max:
                break
            topic_end = start + 2 + ((data[start] << 8) | data[start + 1])
            if topic_end >= stop:
                break
            raw = data[start + 2 : topic_end]
            if raw != raw_last:
                topic = TOPICS.get(raw)
                raw_last = raw
            if topic is None:
                break
            if is_v5:
                if data[topic_end] != 0:
                    break
                topic_end += 1
            packets.append(
                Publish(
                    topic,
                    data[topic_end:stop],
                    0,
                    False,
                    False,
                    0,
                    0,
                    -1,
                    NO_USER_PROPERTIES,
                    NO_IDENTIFIERS,
                    b"",
                    data[position:stop],
                )
            )
            position = stop
        return position

    def _decode_next(self, data: bytes, position: int, end: int, packets: list[Packet]) -> int:
        """Decode one packet and return its end, or note how many bytes are missing."""
        packet_type = data[position] >> 4
        self._check_first_byte(data[position])
        length = 0
        shift = 0
        start = position + 1
        while True:
            if start == end:
                return _INCOMPLETE
            byte = data[start]
            start += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift == 28:
                raise MalformedPacket("remaining length is longer than four bytes")
        stop = start + length
        if stop - position > self.packet_size_max:
            raise ProtocolError(
                0x95,
                f"{types.NAMES[packet_type]} of {stop - position} bytes is too large "
                f"(at most {self.packet_size_max})",
            )
        if stop > end:
            self._missing = stop - end
            return _INCOMPLETE
        packet = self._decode_packet(packet_type, data, position, start, stop)
        # Only MQTT 5 requires the shortest form [MQTT-1.5.5-1]; a CONNECT sets the version first.
        if shift and data[start - 1] == 0 and self.version == 5:
            raise MalformedPacket(f"remaining length is not in its shortest form (value {length})")
        packets.append(packet)
        return stop

    def _decode_packet(self, packet_type: int, data: bytes, position: int, start: int, stop: int) -> Packet:
        if packet_type == types.PUBLISH:
            return decode_publish(data, position, start, stop, self.version, self.is_server)
        reader = PacketReader(data, start, stop)
        if packet_type == types.CONNECT:
            protocol_version = decode_protocol(reader)
            self.version = 5 if protocol_version == 5 else 4
            self._allowed = _allowed_types(self.version, True)
            return decode_connect(reader, protocol_version)
        return decode_body(packet_type, reader, self.version, self.is_server)

    def _check_first_byte(self, first: int) -> None:
        """Refuse a packet by its type and flags, before the rest has arrived."""
        packet_type = first >> 4
        if not self._allowed >> packet_type & 1:
            raise self._misplaced(packet_type)
        flags = 2 if _FLAGS_2 >> packet_type & 1 else 0
        if packet_type != types.PUBLISH and first & 0x0F != flags:
            raise MalformedPacket(
                f"flags of {types.NAMES[packet_type]} are 0x{first & 0x0F:x} (must be 0x{flags:x})"
            )

    def _misplaced(self, packet_type: int) -> ProtocolError:
        if packet_type == 0 or (packet_type == types.AUTH and self.version == 4):
            return MalformedPacket(f"packet type {packet_type} is reserved")
        name = types.NAMES[packet_type]
        if self.version == 0:
            return ProtocolError(0x82, f"first packet is {name}, not CONNECT")
        if packet_type == types.CONNECT and self.is_server:
            return ProtocolError(0x82, "CONNECT is sent a second time")
        return ProtocolError(0x82, f"{name} is not for a {'server' if self.is_server else 'client'}")


def _allowed_types(version: int, is_server: bool) -> int:
    """Return the packet types that may arrive now, as a bit mask."""
    if version == 0:
        return 1 << types.CONNECT
    allowed = _TO_SERVER & ~(1 << types.CONNECT) if is_server else _TO_CLIENT
    if version == 5:
        # A 3.1.1 server only closes the connection; DISCONNECT from a server is new in MQTT 5.
        allowed |= (1 << types.AUTH) | (1 << types.DISCONNECT)
    return allowed
