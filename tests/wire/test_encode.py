"""Encoders: exact bytes, short forms, agreement of the fast ways, and mistakes of the caller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.wire import packet_types as types
from timebound.wire.codec import (
    PublishTemplate,
    encode,
    encode_ack,
    encode_property_prefix,
    encode_publish,
    with_topic_alias,
    with_user_property,
)
from timebound.wire.encode import encode_topic
from timebound.wire.packets import (
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
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    Will,
)
from timebound.wire.properties import Properties

from .strategies import packet_ids, payloads, topic_names


def with_reason(text: str) -> Properties:
    properties = Properties()
    properties.reason_string = text
    return properties


@pytest.mark.parametrize(
    ("packet", "version", "expected"),
    [
        (Connect("a"), 5, "10 0e 0004 4d515454 05 02 0000 00 0001 61"),
        (Connect("a", 4, False, 60), 4, "10 0d 0004 4d515454 04 00 003c 0001 61"),
        (Connect("a", 3), 4, "10 0f 0006 4d5149736470 03 02 0000 0001 61"),
        (
            Connect("a", 4, will=Will("w", b"x", 1, True), username="u", password=b"p"),
            4,
            "10 19 0004 4d515454 04 ee 0000 0001 61 0001 77 0001 78 0001 75 0001 70",
        ),
        (Connack(True), 5, "20 03 01 00 00"),
        (Connack(False, 0x87), 4, "20 02 00 05"),
        (Connack(False, 0x87, with_reason("no")), 4, "20 02 00 05"),
        (Publish("a", b"x"), 5, "30 05 0001 61 00 78"),
        (Publish("a", b"x"), 4, "30 04 0001 61 78"),
        (Publish("a", b"x", 2, True, True, 258), 5, "3d 07 0001 61 0102 00 78"),
        (Publish("a", b"", message_expiry_interval=1), 5, "30 09 0001 61 05 02 00000001"),
        (Publish("a", b"", message_expiry_interval=1), 4, "30 03 0001 61"),
        (Ack(types.PUBACK, 1), 5, "40 02 0001"),
        (Ack(types.PUBREL, 1, 0x92), 5, "62 03 0001 92"),
        (Ack(types.PUBREC, 1, 0x87, "no"), 5, "50 09 0001 87 05 1f 0002 6e6f"),
        (Ack(types.PUBREC, 1, 0x87, "no"), 4, "50 02 0001"),
        (Subscribe(1, [SubscribeEntry("a", 1, True, True, 2)]), 5, "82 07 0001 00 0001 61 2d"),
        (Subscribe(1, [SubscribeEntry("a", 1, True, True, 2)]), 4, "82 06 0001 0001 61 01"),
        (Suback(1, [0, 1, 2, 0x87, 0x97]), 5, "90 08 0001 00 00 01 02 87 97"),
        (Suback(1, [0, 1, 2, 0x87, 0x97]), 4, "90 07 0001 00 01 02 80 80"),
        (Unsubscribe(1, ["a", "b"]), 5, "a2 09 0001 00 0001 61 0001 62"),
        (Unsubscribe(1, ["a"]), 4, "a2 05 0001 0001 61"),
        (Unsuback(1, [0, 0x11]), 5, "b0 05 0001 00 00 11"),
        (Unsuback(1, [0, 0x11]), 4, "b0 02 0001"),
        (Pingreq(), 5, "c0 00"),
        (Pingresp(), 4, "d0 00"),
        (Disconnect(), 5, "e0 00"),
        (Disconnect(0x8E), 5, "e0 01 8e"),
        (Disconnect(0x8E, with_reason("x")), 5, "e0 06 8e 04 1f 0001 78"),
        (Disconnect(0x8E, with_reason("x")), 4, "e0 00"),
        (Auth(), 5, "f0 00"),
    ],
)
def test_packets_have_these_bytes(packet: Packet, version: int, expected: str) -> None:
    assert encode(packet, version).hex() == bytes.fromhex(expected).hex()


@given(
    topic_names,
    payloads,
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    packet_ids,
    st.sampled_from([b"", with_user_property(b"", "k", "v" * 130)]),
    st.sampled_from([4, 5]),
)
def test_template_and_single_encoder_agree(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes,
    version: int,
) -> None:
    dup = dup and qos > 0
    template = PublishTemplate(topic, payload, properties, version)

    once = template.encode(qos, retain, dup, packet_id)
    again = template.encode(qos, retain, dup, packet_id)

    assert once == again
    assert once == encode_publish(topic, payload, qos, retain, dup, packet_id, properties, version)


def test_template_serves_different_receivers() -> None:
    template = PublishTemplate("a", b"x", b"", 5)

    assert template.encode(0, False, False, 0).hex() == "30050001610078"
    assert template.encode(1, False, False, 1).hex() == "3207000161000100" + "78"
    assert template.encode(2, True, True, 2).hex() == "3d07000161000200" + "78"
    assert template.encode(0, True, False, 0).hex() == "31050001610078"
    assert template.encode(0, False, False, 0).hex() == "30050001610078"


def test_property_prefix_holds_what_differs_from_hop_to_hop() -> None:
    assert encode_property_prefix() == b""
    assert encode_property_prefix(0).hex() == "0200000000"
    assert encode_property_prefix(60, 2, (1, 300)).hex() == "020000003c" + "230002" + "0b01" + "0bac02"


def test_ack_success_has_four_bytes_for_every_kind() -> None:
    assert encode_ack(types.PUBACK, 0x1234, 0, 5).hex() == "40021234"
    assert encode_ack(types.PUBREC, 0x1234, 0, 5).hex() == "50021234"
    assert encode_ack(types.PUBREL, 0x1234, 0, 4).hex() == "62021234"
    assert encode_ack(types.PUBCOMP, 0x1234, 0, 5).hex() == "70021234"
    assert encode_ack(types.PUBACK, 1, 0x10, 5).hex() == "4003000110"


def test_encoded_topics_are_right_when_their_cache_starts_anew() -> None:
    for number in range(10_000):
        topic = f"topic/{number}"
        assert encode_topic(topic)[2:] == topic.encode()


@pytest.mark.parametrize(
    ("packet", "version", "message"),
    [
        (Auth(0x18), 4, "AUTH exists only in MQTT 5"),
        (Connect("a", 4, password=b"p"), 4, "a password needs a user name in MQTT 3.1.1"),
        (Publish("a" * 65_536, b""), 5, "too long"),
        (Publish("a", b"", 1, packet_id=65_536), 5, "two-byte"),
        (Publish("a\0", b""), 5, "U\\+0000"),
        (SubscribeEntry("a"), 5, "is not a packet of its own"),
    ],
)
def test_what_no_packet_can_carry_is_a_mistake(packet: Packet, version: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(packet, version)


def test_topic_alias_zero_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="topic alias 0 does not exist"):
        with_topic_alias(b"", 0)
