"""From bytes to a PUBLISH, the packet that a broker reads most.

Publishers repeat topics, and often properties. Both are checked once and then found by their
bytes in caches that all connections share. The caches hold only valid entries and are emptied
when full, so a hostile publisher can slow others down to uncached speed, and no further.
"""

from __future__ import annotations

from typing import Final

from timebound.errors import MalformedPacket, ProtocolError
from timebound.wire.packets import NO_IDENTIFIERS, NO_USER_PROPERTIES, Publish, UserProperties
from timebound.wire.primitives import PacketReader, decode_packet_id, decode_utf8, shown
from timebound.wire.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    PAYLOAD_FORMAT_INDICATOR,
    RESPONSE_TOPIC,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    USER_PROPERTY,
    check_response_topic,
)

TOPICS: Final[dict[bytes, str]] = {}
_TOPICS_MAX: Final = 8_192  # with the longest topics about 3 MB
_TOPIC_CACHED_BYTES_MAX: Final = 128

_BLOCK_CACHED_BYTES_MAX: Final = 96
_BLOCKS_MAX: Final = 1_024  # with the longest blocks about 1 MB


class PublishBlock:
    """The decoded property block of a PUBLISH; never changed once made."""

    __slots__ = (
        "message_expiry_interval",
        "passed_on",
        "subscription_identifiers",
        "topic_alias",
        "user_properties",
    )

    def __init__(self) -> None:
        self.message_expiry_interval = -1
        self.topic_alias = 0
        self.subscription_identifiers: tuple[int, ...] = NO_IDENTIFIERS
        self.user_properties: UserProperties = NO_USER_PROPERTIES
        self.passed_on = b""

    def is_plain(self) -> bool:
        """Whether all of it is passed on, and nothing is for this hop alone."""
        return (
            self.topic_alias == 0 and self.message_expiry_interval < 0 and not self.subscription_identifiers
        )


_BLOCKS: Final[dict[bytes, PublishBlock]] = {}


def clear_decoded() -> None:
    """Empty the caches of topics and property blocks, to free memory; they fill again with use."""
    TOPICS.clear()
    _BLOCKS.clear()


def decode_topic_name(raw: bytes) -> str:
    """Return a valid topic name; the caller decides about an empty one.

    Raises:
        MalformedPacket: not UTF-8, U+0000, or a wildcard [MQTT-3.3.2-1], [MQTT-3.3.2-2].
    """
    topic = TOPICS.get(raw)
    if topic is not None:
        return topic
    topic = decode_utf8(raw, "topic name")
    if "+" in topic or "#" in topic:
        raise MalformedPacket(f"topic name contains a wildcard: {shown(raw)}")
    if raw and len(raw) <= _TOPIC_CACHED_BYTES_MAX:
        if len(TOPICS) >= _TOPICS_MAX:
            TOPICS.clear()
        TOPICS[raw] = topic
    return topic


def decode_publish(
    data: bytes, position: int, start: int, stop: int, version: int, is_server: bool
) -> Publish:
    """Read the PUBLISH in `data[position:stop]`, whose body begins at `start`."""
    first = data[position]
    qos = (first >> 1) & 3
    if qos == 3:
        raise MalformedPacket("QoS of a PUBLISH is 3 (0, 1 or 2)")
    if qos == 0 and first & 0x08:
        raise MalformedPacket("DUP is set on a PUBLISH with QoS 0")
    reader = PacketReader(data, start, stop)
    topic = decode_topic_name(reader.binary("topic name"))
    packet_id = decode_packet_id(reader) if qos else 0
    packet = Publish(topic, b"", qos, (first & 1) != 0, (first & 8) != 0, packet_id)
    is_plain = first == 0x30
    if version == 5:
        length = reader.varint("property length")
        if length:
            block = _find_block(reader.take(length, "property block"))
            _set_block(packet, block, is_server)
            is_plain = is_plain and block.is_plain()
    if not topic and not packet.topic_alias:
        if version != 5:
            raise MalformedPacket("topic name is empty")
        raise ProtocolError(0x82, "topic name is empty and there is no topic alias")
    packet.payload = data[reader.position : stop]
    if is_plain:
        packet.frame = data[position:stop]
    return packet


def decode_passed_on(raw: bytes) -> UserProperties:
    """Return the user properties in a property block that is passed on as a whole.

    Raises:
        MalformedPacket: it is no such block.
    """
    block = _find_block(raw)
    if not block.is_plain():
        raise MalformedPacket("a property of one hop is among those that are passed on")
    return block.user_properties


def _set_block(packet: Publish, block: PublishBlock, is_server: bool) -> None:
    if is_server and block.subscription_identifiers:
        raise ProtocolError(0x82, "subscription identifier in a PUBLISH from a client")
    packet.message_expiry_interval = block.message_expiry_interval
    packet.topic_alias = block.topic_alias
    packet.subscription_identifiers = block.subscription_identifiers
    packet.user_properties = block.user_properties
    packet.passed_on = block.passed_on


def _find_block(raw: bytes) -> PublishBlock:
    if len(raw) > _BLOCK_CACHED_BYTES_MAX:
        return _decode_block(raw)
    block = _BLOCKS.get(raw)
    if block is None:
        block = _decode_block(raw)
        if len(_BLOCKS) >= _BLOCKS_MAX:
            _BLOCKS.clear()
        _BLOCKS[raw] = block
    return block


def _decode_block(raw: bytes) -> PublishBlock:
    """Read a property block by the rules of `decode_properties`; passed-on properties stay encoded."""
    block = PublishBlock()
    reader = PacketReader(raw, 0, len(raw))
    passed_on: list[bytes] = []
    kept_from = 0
    user_properties: list[tuple[str, str]] = []
    seen = 0
    while reader.position < reader.end:
        start = reader.position
        identifier = reader.u8("property identifier")
        if identifier == USER_PROPERTY:
            name = reader.string("user property name")
            user_properties.append((name, reader.string("user property value")))
            continue
        if identifier != SUBSCRIPTION_IDENTIFIER and identifier < 0x40:
            if seen >> identifier & 1:
                raise ProtocolError(0x82, f"property 0x{identifier:02x} of a PUBLISH is given twice")
            seen |= 1 << identifier
        if _decode_hop_property(block, reader, identifier):
            passed_on.append(raw[kept_from:start])
            kept_from = reader.position
        else:
            _skip_passed_on(reader, identifier)
    if kept_from == 0:
        block.passed_on = raw
    else:
        passed_on.append(raw[kept_from:])
        block.passed_on = b"".join(passed_on)
    if user_properties:
        block.user_properties = tuple(user_properties)
    return block


def _decode_hop_property(block: PublishBlock, reader: PacketReader, identifier: int) -> bool:
    """Read a property that is for this hop only; return False for any other."""
    if identifier == MESSAGE_EXPIRY_INTERVAL:
        block.message_expiry_interval = reader.u32("message expiry interval")
    elif identifier == TOPIC_ALIAS:
        block.topic_alias = reader.u16("topic alias")
        if block.topic_alias == 0:
            raise ProtocolError(0x94, "topic alias is 0 (at least 1)")
    elif identifier == SUBSCRIPTION_IDENTIFIER:
        value = reader.varint("subscription identifier")
        if value == 0:
            raise ProtocolError(0x82, "subscription identifier is 0 (1 to 268435455)")
        block.subscription_identifiers = (*block.subscription_identifiers, value)
    else:
        return False
    return True


def _skip_passed_on(reader: PacketReader, identifier: int) -> None:
    """Check a property that stays encoded and move past it."""
    if identifier == PAYLOAD_FORMAT_INDICATOR:
        value = reader.u8("payload format indicator")
        if value > 1:
            raise ProtocolError(0x82, f"payload format indicator is {value} (0 or 1)")
    elif identifier == CONTENT_TYPE:
        reader.string("content type")
    elif identifier == RESPONSE_TOPIC:
        check_response_topic(reader.string("response topic"))
    elif identifier == CORRELATION_DATA:
        reader.binary("correlation data")
    else:
        raise MalformedPacket(f"property 0x{identifier:02x} is not allowed in PUBLISH properties")
