"""Properties: who may carry them, their ranges, and equality with another implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from timebound.errors import MalformedPacket, ProtocolError
from timebound.wire import packet_types as types
from timebound.wire.primitives import PacketReader, encode_varint
from timebound.wire.properties import SPECS, Properties, decode_properties

from .strategies import PROPERTIES_OF, properties_for

PAHO_TYPES = {types.WILL: PacketTypes.WILLMESSAGE} | {kind: kind for kind in range(1, 16)}


def decode(block: bytes, packet_type: int) -> Properties:
    data = encode_varint(len(block)) + block
    reader = PacketReader(data, 0, len(data))
    properties = decode_properties(reader, packet_type)
    reader.expect_end("properties")
    return properties


@given(st.data(), st.sampled_from(sorted(PROPERTIES_OF)))
def test_properties_survive_a_round_trip(data: st.DataObject, packet_type: int) -> None:
    properties = data.draw(properties_for(packet_type))

    assert decode(properties.encode(packet_type), packet_type) == properties


@given(st.data(), st.sampled_from(sorted(PROPERTIES_OF)))
def test_paho_reads_what_we_write(data: st.DataObject, packet_type: int) -> None:
    properties = data.draw(properties_for(packet_type))
    block = properties.encode(packet_type)
    theirs = PahoProperties(PAHO_TYPES[packet_type])

    theirs.unpack(encode_varint(len(block)) + block)

    assert _from_paho(theirs) == properties.present()


@given(st.data(), st.sampled_from(sorted(PROPERTIES_OF)))
def test_we_read_what_paho_writes(data: st.DataObject, packet_type: int) -> None:
    properties = data.draw(properties_for(packet_type))
    theirs = PahoProperties(PAHO_TYPES[packet_type])
    for name, value in properties.present().items():
        title = {"user_properties": "UserProperty", "subscription_identifiers": "SubscriptionIdentifier"}
        setattr(theirs, title.get(name) or _camel(name), int(value) if isinstance(value, bool) else value)

    packed = theirs.pack()

    assert decode_properties(PacketReader(packed, 0, len(packed)), packet_type) == properties


def _camel(name: str) -> str:
    return "".join("QoS" if word == "qos" else word.capitalize() for word in name.split("_"))


def _from_paho(theirs: PahoProperties) -> dict[str, object]:
    found: dict[str, object] = {}
    for spec in SPECS.values():
        if hasattr(theirs, _camel(spec.name)):
            found[spec.name] = getattr(theirs, _camel(spec.name))
    for ours, title in (
        ("subscription_identifiers", "SubscriptionIdentifier"),
        ("user_properties", "UserProperty"),
    ):
        if hasattr(theirs, title):
            found[ours] = getattr(theirs, title)
    return found


@pytest.mark.parametrize("packet_type", sorted(PAHO_TYPES))
def test_each_packet_carries_the_properties_another_implementation_allows(packet_type: int) -> None:
    theirs = PahoProperties(PAHO_TYPES[packet_type])
    allowed = {
        identifier
        for identifier, (_, carriers) in theirs.properties.items()
        if PAHO_TYPES[packet_type] in carriers and identifier in SPECS
    }

    ours = {identifier for identifier, spec in SPECS.items() if spec.carriers >> packet_type & 1}

    assert ours == allowed


@pytest.mark.parametrize(
    ("packet_type", "block", "message"),
    [
        (types.CONNECT, "00", "property identifier 0x00 does not exist"),
        (types.CONNECT, "2b00", "property identifier 0x2b does not exist"),
        (types.CONNECT, "8026", "property identifier 0x1300 does not exist"),
        (types.CONNECT, "230001", "topic alias is not allowed in CONNECT properties"),
        (types.CONNECT, "0b01", "subscription identifier is not allowed in CONNECT properties"),
        (types.SUBSCRIBE, "1f000161", "reason string is not allowed in SUBSCRIBE properties"),
        (types.WILL, "230001", "topic alias is not allowed in will properties"),
        (types.PUBLISH, "1800000001", "will delay interval is not allowed in PUBLISH properties"),
        (types.PINGREQ, "2600000000", "user property is not allowed in PINGREQ properties"),
        (types.CONNECT, "2100", "receive maximum is cut short (needs 2 bytes, has 1)"),
        (types.CONNECT, "26000161", "user property value is cut short (needs 2 bytes, has 0)"),
        (types.CONNECT, "260001ff000161", "user property name is not UTF-8 at byte 0: b'\\xff'"),
        (types.CONNECT, "26000161000100", "user property value contains U+0000: b'\\x00'"),
    ],
)
def test_unknown_misplaced_or_cut_properties_are_malformed(
    packet_type: int, block: str, message: str
) -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode(bytes.fromhex(block), packet_type)

    assert str(caught.value) == message
    assert caught.value.reason_code == 0x81


@pytest.mark.parametrize(
    ("packet_type", "block", "reason", "message"),
    [
        (types.CONNECT, "2100012100 02", 0x82, "receive maximum is given twice"),
        (types.CONNECT, "210000", 0x82, "receive maximum is 0 (at least 1)"),
        (types.CONNECT, "2700000000", 0x82, "maximum packet size is 0 (at least 1)"),
        (types.CONNECT, "1702", 0x82, "request problem information is 2 (0 or 1)"),
        (types.CONNECT, "1902", 0x82, "request response information is 2 (0 or 1)"),
        (types.CONNECT, "16000161", 0x82, "authentication data without an authentication method"),
        (types.CONNACK, "2402", 0x82, "maximum qos is 2 (0 or 1)"),
        (types.CONNACK, "2502", 0x82, "retain available is 2 (0 or 1)"),
        (types.CONNACK, "2802", 0x82, "wildcard subscription available is 2 (0 or 1)"),
        (types.WILL, "0102", 0x82, "payload format indicator is 2 (0 or 1)"),
        (types.WILL, "080003612f23", 0x82, "response topic 'a/#' is not a topic name without wildcards"),
        (types.WILL, "080000", 0x82, "response topic '' is not a topic name without wildcards"),
        (types.PUBLISH, "230000", 0x94, "topic alias is 0 (at least 1)"),
        (types.SUBSCRIBE, "0b00", 0x82, "subscription identifier is 0 (1 to 268435455)"),
        (types.SUBSCRIBE, "0b010b02", 0x82, "subscription identifier is given twice"),
    ],
)
def test_values_out_of_range_are_protocol_errors(
    packet_type: int, block: str, reason: int, message: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(bytes.fromhex(block), packet_type)

    assert str(caught.value) == message
    assert caught.value.reason_code == reason


def test_property_length_beyond_the_packet_is_malformed() -> None:
    with pytest.raises(MalformedPacket, match=r"properties are cut short \(need 5 bytes, have 1\)"):
        decode_properties(PacketReader(b"\x05\x21", 0, 2), types.CONNECT)


def test_passed_on_block_leaves_out_what_is_for_one_hop() -> None:
    properties = Properties()
    properties.payload_format_indicator = 1
    properties.message_expiry_interval = 60
    properties.topic_alias = 3
    properties.subscription_identifiers = [7]
    properties.user_properties = [("b", "2"), ("a", "1")]

    passed_on = decode(properties.encode_passed_on(), types.PUBLISH)

    assert passed_on.present() == {
        "payload_format_indicator": 1,
        "user_properties": [("b", "2"), ("a", "1")],
    }


@pytest.mark.parametrize(
    ("name", "value", "packet_type", "message"),
    [
        ("topic_alias", 1, types.CONNECT, "CONNECT cannot carry topic alias"),
        ("receive_maximum", 0, types.CONNECT, "receive maximum 0 is out of range"),
        ("receive_maximum", 65_536, types.CONNECT, "two-byte"),
        ("maximum_qos", 2, types.CONNACK, "maximum qos 2 is out of range"),
        ("subscription_identifiers", [1], types.CONNECT, "CONNECT cannot carry a subscription identifier"),
        ("subscription_identifiers", [0], types.SUBSCRIBE, "subscription identifier 0 does not exist"),
    ],
)
def test_encoding_what_a_packet_cannot_carry_is_a_mistake(
    name: str, value: object, packet_type: int, message: str
) -> None:
    properties = Properties()
    setattr(properties, name, value)

    with pytest.raises(ValueError, match=message):
        properties.encode(packet_type)


def test_properties_show_only_what_is_set() -> None:
    properties = Properties()
    properties.receive_maximum = 10

    assert repr(properties) == "Properties(receive_maximum=10)"
    assert properties != Properties()
