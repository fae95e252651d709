"""The properties of MQTT 5 (section 2.2.2): one table, one class, decode and encode.

The table has the type, range and carrying packets of each property; the code below follows it.
PUBLISH packets in a broker do not come here: `publish.py` reads their property block without
making a `Properties`.
"""

from __future__ import annotations

from typing import Final

from timebound.errors import MalformedPacket, ProtocolError
from timebound.wire import packet_types as types
from timebound.wire.primitives import (
    BYTE,
    PacketReader,
    encode_binary,
    encode_string,
    encode_u16,
    encode_u32,
    encode_varint,
)

PAYLOAD_FORMAT_INDICATOR: Final = 0x01
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
TOPIC_ALIAS: Final = 0x23
USER_PROPERTY: Final = 0x26

_U8: Final = 0
_FLAG: Final = 1
_U16: Final = 2
_U32: Final = 3
_STRING: Final = 5
_BINARY: Final = 6

_PUBLISH: Final = (1 << types.PUBLISH) | (1 << types.WILL)
_CONNECT: Final = 1 << types.CONNECT
_CONNACK: Final = 1 << types.CONNACK
_BOTH: Final = _CONNECT | _CONNACK
_DISCONNECT: Final = 1 << types.DISCONNECT
_AUTH: Final = 1 << types.AUTH
_ACKS: Final = sum(1 << kind for kind in range(types.PUBACK, types.PUBCOMP + 1))
_SUBACKS: Final = (1 << types.SUBACK) | (1 << types.UNSUBACK)
_WITH_REASON: Final = _CONNACK | _ACKS | _SUBACKS | _DISCONNECT | _AUTH
_WITH_PROPERTIES: Final = 0xFFFF & ~((1 << types.PINGREQ) | (1 << types.PINGRESP))


class PropertySpec:
    """One row of the table: name, type and carriers of a property."""

    __slots__ = ("carriers", "identifier", "kind", "minimum", "name", "title")

    def __init__(self, identifier: int, name: str, kind: int, carriers: int, minimum: int = 0) -> None:
        self.identifier = identifier
        self.name = name
        self.title = name.replace("_", " ")
        self.kind = kind
        self.carriers = carriers  # bit mask over packet types
        self.minimum = minimum


# MQTT 5, table 2-4. User Property and Subscription Identifier may repeat and are handled separately.
SPECS: Final[dict[int, PropertySpec]] = {
    spec.identifier: spec
    for spec in (
        PropertySpec(PAYLOAD_FORMAT_INDICATOR, "payload_format_indicator", _U8, _PUBLISH),
        PropertySpec(MESSAGE_EXPIRY_INTERVAL, "message_expiry_interval", _U32, _PUBLISH),
        PropertySpec(CONTENT_TYPE, "content_type", _STRING, _PUBLISH),
        PropertySpec(RESPONSE_TOPIC, "response_topic", _STRING, _PUBLISH),
        PropertySpec(CORRELATION_DATA, "correlation_data", _BINARY, _PUBLISH),
        PropertySpec(0x11, "session_expiry_interval", _U32, _BOTH | _DISCONNECT),
        PropertySpec(0x12, "assigned_client_identifier", _STRING, _CONNACK),
        PropertySpec(0x13, "server_keep_alive", _U16, _CONNACK),
        PropertySpec(0x15, "authentication_method", _STRING, _BOTH | _AUTH),
        PropertySpec(0x16, "authentication_data", _BINARY, _BOTH | _AUTH),
        PropertySpec(0x17, "request_problem_information", _FLAG, _CONNECT),
        PropertySpec(0x18, "will_delay_interval", _U32, 1 << types.WILL),
        PropertySpec(0x19, "request_response_information", _FLAG, _CONNECT),
        PropertySpec(0x1A, "response_information", _STRING, _CONNACK),
        PropertySpec(0x1C, "server_reference", _STRING, _CONNACK | _DISCONNECT),
        PropertySpec(0x1F, "reason_string", _STRING, _WITH_REASON),
        PropertySpec(0x21, "receive_maximum", _U16, _BOTH, minimum=1),
        PropertySpec(0x22, "topic_alias_maximum", _U16, _BOTH),
        PropertySpec(TOPIC_ALIAS, "topic_alias", _U16, 1 << types.PUBLISH, minimum=1),
        PropertySpec(0x24, "maximum_qos", _U8, _CONNACK),
        PropertySpec(0x25, "retain_available", _FLAG, _CONNACK),
        PropertySpec(0x27, "maximum_packet_size", _U32, _BOTH, minimum=1),
        PropertySpec(0x28, "wildcard_subscription_available", _FLAG, _CONNACK),
        PropertySpec(0x29, "subscription_identifier_available", _FLAG, _CONNACK),
        PropertySpec(0x2A, "shared_subscription_available", _FLAG, _CONNACK),
    )
}
_SUBSCRIPTION_IDENTIFIER_CARRIERS: Final = (1 << types.PUBLISH) | (1 << types.SUBSCRIBE)
_PASSED_ON: Final = (PAYLOAD_FORMAT_INDICATOR, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA)


class Properties:
    """The properties of one packet by their standard names; None if absent."""

    __slots__ = (
        "assigned_client_identifier",
        "authentication_data",
        "authentication_method",
        "content_type",
        "correlation_data",
        "maximum_packet_size",
        "maximum_qos",
        "message_expiry_interval",
        "payload_format_indicator",
        "reason_string",
        "receive_maximum",
        "request_problem_information",
        "request_response_information",
        "response_information",
        "response_topic",
        "retain_available",
        "server_keep_alive",
        "server_reference",
        "session_expiry_interval",
        "shared_subscription_available",
        "subscription_identifier_available",
        "subscription_identifiers",
        "topic_alias",
        "topic_alias_maximum",
        "user_properties",
        "wildcard_subscription_available",
        "will_delay_interval",
    )

    def __init__(self) -> None:
        self.payload_format_indicator: int | None = None
        self.message_expiry_interval: int | None = None
        self.content_type: str | None = None
        self.response_topic: str | None = None
        self.correlation_data: bytes | None = None
        self.subscription_identifiers: list[int] = []
        self.session_expiry_interval: int | None = None
        self.assigned_client_identifier: str | None = None
        self.server_keep_alive: int | None = None
        self.authentication_method: str | None = None
        self.authentication_data: bytes | None = None
        self.request_problem_information: bool | None = None
        self.will_delay_interval: int | None = None
        self.request_response_information: bool | None = None
        self.response_information: str | None = None
        self.server_reference: str | None = None
        self.reason_string: str | None = None
        self.receive_maximum: int | None = None
        self.topic_alias_maximum: int | None = None
        self.topic_alias: int | None = None
        self.maximum_qos: int | None = None
        self.retain_available: bool | None = None
        self.user_properties: list[tuple[str, str]] = []
        self.maximum_packet_size: int | None = None
        self.wildcard_subscription_available: bool | None = None
        self.subscription_identifier_available: bool | None = None
        self.shared_subscription_available: bool | None = None

    def present(self) -> dict[str, object]:
        """Return the properties that are set, by name, in the order of their identifiers."""
        found: dict[str, object] = {}
        for spec in SPECS.values():
            value: object = getattr(self, spec.name)
            if value is not None:
                found[spec.name] = value
        if self.subscription_identifiers:
            found["subscription_identifiers"] = self.subscription_identifiers
        if self.user_properties:
            found["user_properties"] = self.user_properties
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.present() == other.present()

    def __repr__(self) -> str:
        return f"Properties({', '.join(f'{name}={value!r}' for name, value in self.present().items())})"

    def encode(self, packet_type: int) -> bytes:
        """Encode the properties that are set, without their length.

        Raises:
            ValueError: this packet cannot carry a property, or a value is out of range.
        """
        parts: list[bytes] = []
        for spec in SPECS.values():
            value: object = getattr(self, spec.name)
            if value is not None:
                if not spec.carriers >> packet_type & 1:
                    raise ValueError(f"{types.NAMES[packet_type]} cannot carry {spec.title} ({value!r})")
                parts.append(BYTE[spec.identifier] + _encode_value(spec, value))
        if self.subscription_identifiers and not _SUBSCRIPTION_IDENTIFIER_CARRIERS >> packet_type & 1:
            raise ValueError(f"{types.NAMES[packet_type]} cannot carry a subscription identifier")
        for identifier in self.subscription_identifiers:
            parts.append(encode_subscription_identifier(identifier))
        for name, text in self.user_properties:
            parts.append(encode_user_property(name, text))
        return b"".join(parts)

    def encode_passed_on(self) -> bytes:
        """Encode the properties that a server passes on unaltered, without their length.

        This is the block of `Publish.passed_on`; user properties keep their order.
        """
        parts: list[bytes] = []
        for identifier in _PASSED_ON:
            spec = SPECS[identifier]
            value: object = getattr(self, spec.name)
            if value is not None:
                parts.append(BYTE[identifier] + _encode_value(spec, value))
        for name, text in self.user_properties:
            parts.append(encode_user_property(name, text))
        return b"".join(parts)


def encode_user_property(name: str, value: str) -> bytes:
    return b"\x26" + encode_string(name) + encode_string(value)


def encode_subscription_identifier(identifier: int) -> bytes:
    if identifier == 0:
        raise ValueError("subscription identifier 0 does not exist (1 to 268435455)")
    return b"\x0b" + encode_varint(identifier)


def _encode_value(spec: PropertySpec, value: object) -> bytes:
    kind = spec.kind
    if kind == _STRING:
        assert isinstance(value, str), f"{spec.title} is text, not {value!r}"
        return encode_string(value)
    if kind == _BINARY:
        assert isinstance(value, bytes), f"{spec.title} is bytes, not {value!r}"
        return encode_binary(value)
    assert isinstance(value, int), f"{spec.title} is a number, not {value!r}"
    number = int(value)
    if number < spec.minimum or (kind <= _FLAG and number > 1):
        raise ValueError(f"{spec.title} {number} is out of range")
    if kind <= _FLAG:
        return BYTE[number]
    return encode_u16(number) if kind == _U16 else encode_u32(number)


def decode_properties(reader: PacketReader, packet_type: int) -> Properties:
    """Read a property block after its length, as the packet (or WILL) may carry it.

    Raises:
        MalformedPacket: an identifier is unknown or not allowed here, or bytes are missing.
        ProtocolError: a property is repeated, or a value is out of range.
    """
    properties = Properties()
    length = reader.varint("property length")
    if length == 0:
        return properties
    if length > reader.left():
        raise MalformedPacket(f"properties are cut short (need {length} bytes, have {reader.left()})")
    block = PacketReader(reader.data, reader.position, reader.position + length)
    reader.position = block.end
    while block.position < block.end:
        _decode_one(properties, block, packet_type)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolError(0x82, "authentication data without an authentication method")
    return properties


def _decode_one(properties: Properties, block: PacketReader, packet_type: int) -> None:
    identifier = block.varint("property identifier")
    if identifier == USER_PROPERTY:
        if not _WITH_PROPERTIES >> packet_type & 1:
            raise _misplaced("user property", packet_type)
        name = block.string("user property name")
        properties.user_properties.append((name, block.string("user property value")))
        return
    if identifier == SUBSCRIPTION_IDENTIFIER:
        _decode_subscription_identifier(properties, block, packet_type)
        return
    spec = SPECS.get(identifier)
    if spec is None:
        raise MalformedPacket(f"property identifier 0x{identifier:02x} does not exist")
    if not spec.carriers >> packet_type & 1:
        raise _misplaced(spec.title, packet_type)
    if getattr(properties, spec.name) is not None:
        raise ProtocolError(0x82, f"{spec.title} is given twice")
    setattr(properties, spec.name, decode_value(spec, block))


def _misplaced(title: str, packet_type: int) -> MalformedPacket:
    return MalformedPacket(f"{title} is not allowed in {types.NAMES[packet_type]} properties")


def _decode_subscription_identifier(properties: Properties, block: PacketReader, packet_type: int) -> None:
    if not _SUBSCRIPTION_IDENTIFIER_CARRIERS >> packet_type & 1:
        raise _misplaced("subscription identifier", packet_type)
    value = block.varint("subscription identifier")
    if value == 0:
        raise ProtocolError(0x82, "subscription identifier is 0 (1 to 268435455)")
    # Only a PUBLISH may carry several: one for each subscription that matched (3.3.2.3.8).
    if packet_type == types.SUBSCRIBE and properties.subscription_identifiers:
        raise ProtocolError(0x82, "subscription identifier is given twice")
    properties.subscription_identifiers.append(value)


def decode_value(spec: PropertySpec, block: PacketReader) -> object:
    """Read one value and check its range."""
    kind = spec.kind
    title = spec.title
    if kind == _STRING:
        text = block.string(title)
        if spec.identifier == RESPONSE_TOPIC:
            check_response_topic(text)
        return text
    if kind == _BINARY:
        return block.binary(title)
    if kind <= _FLAG:
        number = block.u8(title)
        if number > 1:
            raise ProtocolError(0x82, f"{title} is {number} (0 or 1)")
        if kind == _FLAG:
            return number == 1
        return number
    number = block.u16(title) if kind == _U16 else block.u32(title)
    if number < spec.minimum:
        # MQTT 5, 3.3.2.3.4 gives the topic alias its own reason code.
        reason = 0x94 if spec.identifier == TOPIC_ALIAS else 0x82
        raise ProtocolError(reason, f"{title} is {number} (at least {spec.minimum})")
    return number


def check_response_topic(topic: str) -> None:
    """Refuse a response topic that is not a topic name [MQTT-3.3.2-14]."""
    if not topic or "+" in topic or "#" in topic:
        raise ProtocolError(0x82, f"response topic {topic!r} is not a topic name without wildcards")
