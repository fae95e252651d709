"""From the bytes of one whole packet to the packet; framing is in `codec.py`.

PUBLISH has its own module. Each function gets the body of a packet whose type and flags are allowed, and
raises `MalformedPacket` or `ProtocolError` with the reason code of MQTT 5. Topic filters must only be
present: the broker answers for each whether it is valid.
"""

from __future__ import annotations

from typing import Final

from timebound.errors import MalformedPacket, ProtocolError
from timebound.wire import packet_types as types
from timebound.wire import reasons
from timebound.wire.packets import (
    NO_USER_PROPERTIES,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    Will,
)
from timebound.wire.primitives import PacketReader, decode_packet_id, shown
from timebound.wire.properties import Properties, decode_properties
from timebound.wire.publish import decode_topic_name

_SHARED_PREFIX: Final = "$share/"


def decode_protocol(reader: PacketReader) -> int:
    """Read the protocol name and level of a CONNECT and return the version: 5, 4 or 3."""
    name = reader.binary("protocol name")
    level = reader.u8("protocol level")
    if name == b"MQTT" and (level == 4 or level == 5):
        return level
    # MQTT 3.1 differs only in its name and in limits that 3.1.1 lifted.
    if name == b"MQIsdp" and level == 3:
        return 3
    raise ProtocolError(0x84, f"protocol {shown(name)} level {level} is not supported (MQTT 3.1.1 and 5 are)")


def decode_connect(reader: PacketReader, version: int) -> Connect:
    """Read the rest of a CONNECT after its protocol name and level."""
    flags = reader.u8("connect flags")
    _check_connect_flags(flags, version)
    packet = Connect("", version, (flags & 0x02) != 0, reader.u16("keep alive"))
    if version == 5:
        packet.properties = decode_properties(reader, types.CONNECT)
    packet.client_id = reader.string("client identifier")
    if flags & 0x04:
        packet.will = _decode_will(reader, flags, version)
    if flags & 0x80:
        packet.username = reader.string("user name")
    if flags & 0x40:
        packet.password = reader.binary("password")
    reader.expect_end("CONNECT")
    return packet


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 0x01:
        raise MalformedPacket(f"reserved bit of the connect flags is set (0x{flags:02x})")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise MalformedPacket("will QoS is 3 (0, 1 or 2)")
    elif flags & 0x38:
        raise MalformedPacket(f"will QoS or will retain without a will (0x{flags:02x})")
    # MQTT 5 lifted this [MQTT-3.1.2-22] of 3.1.1.
    if version != 5 and flags & 0xC0 == 0x40:
        raise MalformedPacket("password without a user name, which MQTT 3.1.1 does not allow")


def _decode_will(reader: PacketReader, flags: int, version: int) -> Will:
    properties = decode_properties(reader, types.WILL) if version == 5 else Properties()
    topic = decode_topic_name(reader.binary("will topic"))
    if not topic:
        raise MalformedPacket("will topic is empty")
    payload = reader.binary("will payload")
    return Will(topic, payload, (flags >> 3) & 3, (flags & 0x20) != 0, properties)


def decode_ack(reader: PacketReader, kind: int, version: int) -> Ack:
    packet = Ack(kind, decode_packet_id(reader))
    if reader.position == reader.end:
        return packet
    if version != 5:
        reader.expect_end(types.NAMES[kind])
    packet.reason_code = reader.u8("reason code")
    if kind == types.PUBACK or kind == types.PUBREC:
        _check_reason(packet.reason_code, reasons.PUBLISH_ANSWER_CODES, kind)
    else:
        _check_reason(packet.reason_code, reasons.RELEASE_CODES, kind)
    if reader.position < reader.end:
        properties = decode_properties(reader, kind)
        packet.reason_string = properties.reason_string or ""
        if properties.user_properties:
            packet.user_properties = tuple(properties.user_properties)
        else:
            packet.user_properties = NO_USER_PROPERTIES
        reader.expect_end(types.NAMES[kind])
    return packet


def _check_reason(code: int, allowed: frozenset[int], packet_type: int) -> None:
    if code not in allowed:
        raise ProtocolError(0x82, f"{types.NAMES[packet_type]} cannot carry reason code 0x{code:02x}")


def decode_subscribe(reader: PacketReader, version: int) -> Subscribe:
    packet = Subscribe(decode_packet_id(reader), [])
    if version == 5:
        packet.properties = decode_properties(reader, types.SUBSCRIBE)
    if reader.position == reader.end:
        raise ProtocolError(0x82, "SUBSCRIBE has no topic filter")
    while reader.position < reader.end:
        packet.entries.append(_decode_subscribe_entry(reader, version))
    return packet


def _decode_subscribe_entry(reader: PacketReader, version: int) -> SubscribeEntry:
    topic_filter = _decode_topic_filter(reader)
    options = reader.u8("subscription options")
    if options & (0xC0 if version == 5 else 0xFC):
        raise MalformedPacket(f"reserved bits of the subscription options are set (0x{options:02x})")
    qos = options & 3
    if qos == 3:
        raise ProtocolError(0x82, f"QoS of the subscription to {topic_filter!r} is 3 (0, 1 or 2)")
    retain_handling = options >> 4
    if retain_handling == 3:
        raise ProtocolError(0x82, f"retain handling of {topic_filter!r} is 3 (0, 1 or 2)")
    no_local = (options & 0x04) != 0
    if no_local and topic_filter.startswith(_SHARED_PREFIX):
        raise ProtocolError(0x82, f"no local on the shared subscription {topic_filter!r}")
    return SubscribeEntry(topic_filter, qos, no_local, (options & 0x08) != 0, retain_handling)


def _decode_topic_filter(reader: PacketReader) -> str:
    topic_filter = reader.string("topic filter")
    if not topic_filter:
        raise MalformedPacket("topic filter is empty")
    return topic_filter


def decode_unsubscribe(reader: PacketReader, version: int) -> Unsubscribe:
    packet = Unsubscribe(decode_packet_id(reader), [])
    if version == 5:
        packet.properties = decode_properties(reader, types.UNSUBSCRIBE)
    if reader.position == reader.end:
        raise ProtocolError(0x82, "UNSUBSCRIBE has no topic filter")
    while reader.position < reader.end:
        packet.topic_filters.append(_decode_topic_filter(reader))
    return packet


def decode_suback(reader: PacketReader, version: int) -> Suback:
    packet = Suback(decode_packet_id(reader), [])
    if version == 5:
        packet.properties = decode_properties(reader, types.SUBACK)
    allowed = reasons.SUBACK_CODES if version == 5 else reasons.SUBACK_CODES_V4
    packet.reason_codes = _decode_reason_codes(reader, allowed, types.SUBACK)
    return packet


def decode_unsuback(reader: PacketReader, version: int) -> Unsuback:
    packet = Unsuback(decode_packet_id(reader), [])
    if version == 5:
        packet.properties = decode_properties(reader, types.UNSUBACK)
        packet.reason_codes = _decode_reason_codes(reader, reasons.UNSUBACK_CODES, types.UNSUBACK)
    reader.expect_end("UNSUBACK")
    return packet


def _decode_reason_codes(reader: PacketReader, allowed: frozenset[int], packet_type: int) -> list[int]:
    codes = list(reader.take(reader.left(), "reason codes"))
    if not codes:
        raise MalformedPacket(f"{types.NAMES[packet_type]} has no reason code")
    for code in codes:
        _check_reason(code, allowed, packet_type)
    return codes


def decode_connack(reader: PacketReader, version: int) -> Connack:
    flags = reader.u8("connect acknowledge flags")
    if flags > 1:
        raise MalformedPacket(f"reserved bits of the connect acknowledge flags are set (0x{flags:02x})")
    code = reader.u8("connect reason code")
    packet = Connack(flags == 1, code)
    if version == 5 and code == 1 and reader.position == reader.end:
        # A server of MQTT 3.1.1 alone refuses MQTT 5 in the form of 3.1.1 [MQTT-3.1.2-2 of 3.1.1].
        packet.reason_code = reasons.reason_of_return_code(code)
    elif version == 5:
        _check_reason(code, reasons.CONNACK_CODES, types.CONNACK)
        packet.properties = decode_properties(reader, types.CONNACK)
    else:
        packet.reason_code = reasons.reason_of_return_code(code)
        if packet.reason_code < 0:
            raise ProtocolError(0x82, f"connect return code {code} does not exist (0 to 5)")
    if packet.session_present and packet.reason_code:
        raise ProtocolError(0x82, f"CONNACK refuses with 0x{code:02x} and has session present set")
    reader.expect_end("CONNACK")
    return packet


def decode_disconnect(reader: PacketReader, version: int, is_server: bool) -> Disconnect:
    packet = Disconnect()
    if version == 5 and reader.position < reader.end:
        packet.reason_code = reader.u8("disconnect reason code")
        allowed = reasons.DISCONNECT_CODES_OF_CLIENT if is_server else reasons.DISCONNECT_CODES_OF_SERVER
        _check_reason(packet.reason_code, allowed, types.DISCONNECT)
        if reader.position < reader.end:
            packet.properties = decode_properties(reader, types.DISCONNECT)
            if not is_server and packet.properties.session_expiry_interval is not None:
                raise ProtocolError(0x82, "session expiry interval in a DISCONNECT from a server")
            if is_server and packet.properties.server_reference is not None:
                raise ProtocolError(0x82, "server reference in a DISCONNECT from a client")
    reader.expect_end("DISCONNECT")
    return packet


def decode_auth(reader: PacketReader, is_server: bool) -> Auth:
    packet = Auth()
    if reader.position < reader.end:
        packet.reason_code = reader.u8("authenticate reason code")
        packet.properties = decode_properties(reader, types.AUTH)
    allowed = reasons.AUTH_CODES_OF_CLIENT if is_server else reasons.AUTH_CODES_OF_SERVER
    _check_reason(packet.reason_code, allowed, types.AUTH)
    if packet.reason_code and packet.properties.authentication_method is None:
        raise ProtocolError(0x82, "AUTH has no authentication method")
    reader.expect_end("AUTH")
    return packet


def decode_body(packet_type: int, reader: PacketReader, version: int, is_server: bool) -> Packet:
    """Read the body of any packet but CONNECT and PUBLISH."""
    if types.PUBACK <= packet_type <= types.PUBCOMP:
        return decode_ack(reader, packet_type, version)
    if packet_type == types.SUBSCRIBE:
        return decode_subscribe(reader, version)
    if packet_type == types.UNSUBSCRIBE:
        return decode_unsubscribe(reader, version)
    if packet_type == types.SUBACK:
        return decode_suback(reader, version)
    if packet_type == types.UNSUBACK:
        return decode_unsuback(reader, version)
    if packet_type == types.CONNACK:
        return decode_connack(reader, version)
    if packet_type == types.DISCONNECT:
        return decode_disconnect(reader, version, is_server)
    if packet_type == types.AUTH:
        return decode_auth(reader, is_server)
    reader.expect_end(types.NAMES[packet_type])
    return Pingreq() if packet_type == types.PINGREQ else Pingresp()
