"""From packets to bytes, for MQTT 5 (version 5) and MQTT 3.1.1 (version 4).

`encode` writes any packet; the functions above it are faster, for what a broker sends most:
PUBLISH packets, to one or many receivers, and acknowledgements. What MQTT 3.1.1 does not have is
left out. Values that no packet can carry raise ValueError.
"""

from __future__ import annotations

from typing import Final

from timebound.wire import packet_types as types
from timebound.wire.packets import (
    NO_IDENTIFIERS,
    NO_USER_PROPERTIES,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    UserProperties,
    Will,
)
from timebound.wire.primitives import (
    BYTE,
    encode_binary,
    encode_string,
    encode_u16,
    encode_u32,
    encode_varint,
)
from timebound.wire.properties import (
    Properties,
    encode_subscription_identifier,
    encode_user_property,
)
from timebound.wire.reasons import connack_return_code

# Topic names encoded as in a PUBLISH, with their length; bounded like the decoder's.
_TOPICS: Final[dict[str, bytes]] = {}
_TOPICS_MAX: Final = 8_192
_TOPIC_CACHED_LENGTH_MAX: Final = 128

# The first byte of each packet, with the flags that the standard sets for its type.
_FIRST: Final[list[bytes]] = [
    BYTE[(kind << 4) | (2 if kind in (types.PUBREL, types.SUBSCRIBE, types.UNSUBSCRIBE) else 0)]
    for kind in range(16)
]
# An acknowledgement of success is these two bytes and the packet identifier.
_ACK_HEADS: Final[list[bytes]] = [_FIRST[kind] + b"\x02" for kind in range(16)]
_FAILURE_FROM: Final = 0x80


def encode_topic(topic: str) -> bytes:
    """Encode a topic name with its length, through a bounded cache."""
    encoded = _TOPICS.get(topic)
    if encoded is None:
        encoded = encode_string(topic)
        if len(topic) <= _TOPIC_CACHED_LENGTH_MAX:
            if len(_TOPICS) >= _TOPICS_MAX:
                _TOPICS.clear()
            _TOPICS[topic] = encoded
    return encoded


def clear_encoded() -> None:
    """Empty the cache of topics, to free memory; it fills again with use."""
    _TOPICS.clear()


def _publish_flags(qos: int, retain: bool, dup: bool) -> int:
    return 0x30 | (qos << 1) | (1 if retain else 0) | (8 if dup else 0)


def encode_publish(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes,
    version: int,
) -> bytes:
    """Encode a PUBLISH with an encoded property block (without its length; ignored for version 4).

    The topic may be empty when the properties hold an alias.
    """
    name = encode_topic(topic)
    first = BYTE[_publish_flags(qos, retain, dup)]
    size = len(name) + len(payload)
    identifier = b""
    if qos:
        identifier = encode_u16(packet_id)
        size += 2
    if version != 5:
        return b"".join((first, encode_varint(size), name, identifier, payload))
    if not properties:
        return b"".join((first, encode_varint(size + 1), name, identifier, b"\0", payload))
    prefix = encode_varint(len(properties))
    size += len(prefix) + len(properties)
    return b"".join((first, encode_varint(size), name, identifier, prefix, properties, payload))


class PublishTemplate:
    """One message for many receivers: what all share is encoded once."""

    __slots__ = ("_length", "_length_with_id", "_name", "_plain", "_tail")

    def __init__(self, topic: str, payload: bytes, properties: bytes, version: int) -> None:
        self._name = encode_topic(topic)
        if version != 5:
            self._tail = payload
        elif properties:
            self._tail = b"".join((encode_varint(len(properties)), properties, payload))
        else:
            self._tail = b"\0" + payload
        size = len(self._name) + len(self._tail)
        self._length = encode_varint(size)
        self._length_with_id = encode_varint(size + 2)
        self._plain = b""  # the QoS 0 packet without flags, made when first asked for

    def encode(self, qos: int, retain: bool, dup: bool, packet_id: int) -> bytes:
        """Return the packet; `packet_id` counts only with QoS 1 and 2."""
        if qos:
            return b"".join(
                (
                    BYTE[_publish_flags(qos, retain, dup)],
                    self._length_with_id,
                    self._name,
                    BYTE[packet_id >> 8],
                    BYTE[packet_id & 0xFF],
                    self._tail,
                )
            )
        if retain:
            return b"".join((b"\x31", self._length, self._name, self._tail))
        if not self._plain:
            self._plain = b"".join((b"\x30", self._length, self._name, self._tail))
        return self._plain


def encode_property_prefix(
    message_expiry_interval: int = -1,
    topic_alias: int = 0,
    subscription_identifiers: tuple[int, ...] = NO_IDENTIFIERS,
) -> bytes:
    """Encode the properties that precede the passed-on ones and differ from hop to hop."""
    block = b""
    if message_expiry_interval >= 0:
        block = with_message_expiry_interval(block, message_expiry_interval)
    if topic_alias:
        block = with_topic_alias(block, topic_alias)
    for identifier in subscription_identifiers:
        block = with_subscription_identifier(block, identifier)
    return block


def with_message_expiry_interval(block: bytes, seconds: int) -> bytes:
    """Return the property block with a Message Expiry Interval added."""
    return b"".join((block, b"\x02", encode_u32(seconds)))


def with_topic_alias(block: bytes, alias: int) -> bytes:
    """Return the property block with a Topic Alias added."""
    if alias == 0:
        raise ValueError("topic alias 0 does not exist (1 to 65535)")
    return b"".join((block, b"\x23", encode_u16(alias)))


def with_subscription_identifier(block: bytes, identifier: int) -> bytes:
    """Return the property block with a Subscription Identifier added."""
    return block + encode_subscription_identifier(identifier)


def with_user_property(block: bytes, name: str, value: str) -> bytes:
    """Return the property block with a User Property added."""
    return block + encode_user_property(name, value)


def encode_ack(
    kind: int,
    packet_id: int,
    reason_code: int,
    version: int,
    reason_string: str = "",
    user_properties: UserProperties = NO_USER_PROPERTIES,
) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP in its shortest form."""
    plain = not reason_string and not user_properties
    if version != 5 or (reason_code == 0 and plain):
        return b"".join((_ACK_HEADS[kind], BYTE[packet_id >> 8], BYTE[packet_id & 0xFF]))
    if plain:
        return b"".join((_FIRST[kind], b"\x03", encode_u16(packet_id), BYTE[reason_code]))
    properties = Properties()
    properties.reason_string = reason_string or None
    properties.user_properties = list(user_properties)
    return _framed(kind, [encode_u16(packet_id), BYTE[reason_code], _property_block(properties, kind)])


def _framed(packet_type: int, parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return b"".join((_FIRST[packet_type], encode_varint(len(body)), body))


def _property_block(properties: Properties, packet_type: int) -> bytes:
    block = properties.encode(packet_type)
    return encode_varint(len(block)) + block


def encode(packet: Packet, version: int) -> bytes:
    """Encode any packet for MQTT 5 (5) or 3.1.1 (4); a CONNECT has its own version."""
    if isinstance(packet, Publish):
        prefix = encode_property_prefix(
            packet.message_expiry_interval, packet.topic_alias, packet.subscription_identifiers
        )
        return encode_publish(
            packet.topic,
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_id,
            prefix + packet.passed_on,
            version,
        )
    if isinstance(packet, Ack):
        return encode_ack(
            packet.kind,
            packet.packet_id,
            packet.reason_code,
            version,
            packet.reason_string,
            packet.user_properties,
        )
    if isinstance(packet, Subscribe):
        return _encode_subscribe(packet, version)
    if isinstance(packet, Unsubscribe):
        return _encode_unsubscribe(packet, version)
    if isinstance(packet, Suback):
        return _encode_suback(packet, version)
    if isinstance(packet, Unsuback):
        return _encode_unsuback(packet, version)
    return _encode_session_packet(packet, version)


def _encode_session_packet(packet: Packet, version: int) -> bytes:
    """Encode a packet that opens, keeps or ends a connection."""
    if isinstance(packet, Pingreq):
        return b"\xc0\x00"
    if isinstance(packet, Pingresp):
        return b"\xd0\x00"
    if isinstance(packet, Connect):
        return _encode_connect(packet)
    if isinstance(packet, Connack):
        return _encode_connack(packet, version)
    if isinstance(packet, Disconnect):
        return _encode_with_reason(types.DISCONNECT, packet.reason_code, packet.properties, version)
    if isinstance(packet, Auth):
        if version != 5:
            raise ValueError("AUTH exists only in MQTT 5")
        return _encode_with_reason(types.AUTH, packet.reason_code, packet.properties, version)
    raise ValueError(f"{packet!r} is not a packet of its own")


def _encode_with_reason(packet_type: int, reason_code: int, properties: Properties, version: int) -> bytes:
    """Encode DISCONNECT or AUTH, as short as the standard allows."""
    if version != 5:
        return _FIRST[packet_type] + b"\0"
    block = properties.encode(packet_type)
    if block or (packet_type == types.AUTH and reason_code):
        return _framed(packet_type, [BYTE[reason_code], encode_varint(len(block)), block])
    if reason_code:
        return _FIRST[packet_type] + b"\x01" + BYTE[reason_code]
    return _FIRST[packet_type] + b"\0"


def _encode_connect(packet: Connect) -> bytes:
    version = packet.protocol_version
    will = packet.will
    flags = 0x02 if packet.clean_start else 0
    if will is not None:
        flags |= 0x04 | (will.qos << 3) | (0x20 if will.retain else 0)
    if packet.username is not None:
        flags |= 0x80
    if packet.password is not None:
        flags |= 0x40
    if version != 5 and flags & 0xC0 == 0x40:
        raise ValueError("a password needs a user name in MQTT 3.1.1")
    parts = [
        encode_string("MQIsdp" if version == 3 else "MQTT"),
        BYTE[version],
        BYTE[flags],
        encode_u16(packet.keep_alive),
    ]
    if version == 5:
        parts.append(_property_block(packet.properties, types.CONNECT))
    parts.append(encode_string(packet.client_id))
    if will is not None:
        parts += _will_parts(will, version)
    if packet.username is not None:
        parts.append(encode_string(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return _framed(types.CONNECT, parts)


def _will_parts(will: Will, version: int) -> list[bytes]:
    parts = [_property_block(will.properties, types.WILL)] if version == 5 else []
    return [*parts, encode_string(will.topic), encode_binary(will.payload)]


def _encode_connack(packet: Connack, version: int) -> bytes:
    present = BYTE[1 if packet.session_present else 0]
    if version != 5:
        return b"\x20\x02" + present + BYTE[connack_return_code(packet.reason_code)]
    block = _property_block(packet.properties, types.CONNACK)
    return _framed(types.CONNACK, [present, BYTE[packet.reason_code], block])


def _encode_subscribe(packet: Subscribe, version: int) -> bytes:
    parts = [encode_u16(packet.packet_id)]
    if version == 5:
        parts.append(_property_block(packet.properties, types.SUBSCRIBE))
    for entry in packet.entries:
        options = entry.qos
        if version == 5:
            options |= 0x04 if entry.no_local else 0
            options |= 0x08 if entry.retain_as_published else 0
            options |= entry.retain_handling << 4
        parts.append(encode_string(entry.topic_filter) + BYTE[options])
    return _framed(types.SUBSCRIBE, parts)


def _encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    parts = [encode_u16(packet.packet_id)]
    if version == 5:
        parts.append(_property_block(packet.properties, types.UNSUBSCRIBE))
    for topic_filter in packet.topic_filters:
        parts.append(encode_string(topic_filter))
    return _framed(types.UNSUBSCRIBE, parts)


def _encode_suback(packet: Suback, version: int) -> bytes:
    parts = [encode_u16(packet.packet_id)]
    if version == 5:
        parts += [_property_block(packet.properties, types.SUBACK), bytes(packet.reason_codes)]
    else:
        # MQTT 3.1.1 has one failure code (3.9.3).
        parts.append(bytes([min(code, _FAILURE_FROM) for code in packet.reason_codes]))
    return _framed(types.SUBACK, parts)


def _encode_unsuback(packet: Unsuback, version: int) -> bytes:
    parts = [encode_u16(packet.packet_id)]
    if version == 5:
        parts += [_property_block(packet.properties, types.UNSUBACK), bytes(packet.reason_codes)]
    return _framed(types.UNSUBACK, parts)
