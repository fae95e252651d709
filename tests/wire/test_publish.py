"""PUBLISH packets: what is passed on, what may be forwarded as it is, and the caches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.wire import packet_types as types
from timebound.wire import publish
from timebound.wire.codec import (
    Decoder,
    encode,
    encode_publish,
    with_message_expiry_interval,
    with_subscription_identifier,
    with_topic_alias,
    with_user_property,
)
from timebound.wire.packets import Publish
from timebound.wire.primitives import PacketReader, encode_varint
from timebound.wire.properties import Properties, decode_properties

from .strategies import publishes


def decode(data: bytes, version: int = 5, *, is_server: bool = True) -> Publish:
    decoder = Decoder(version, is_server=is_server)
    packets = decoder.feed(data)
    assert decoder.error is None
    (packet,) = packets
    assert isinstance(packet, Publish)
    return packet


def publish_with(block: bytes, *, topic: str = "a/b") -> bytes:
    return encode_publish(topic, b"payload", 0, False, False, 0, block, 5)


def test_properties_passed_on_keep_their_bytes_and_order() -> None:
    before = b"\x01\x01" + with_user_property(b"", "b", "2")
    between = b"\x09\x00\x02id" + with_user_property(b"", "a", "1")
    after = b"\x03\x00\x04json"
    block = before + with_message_expiry_interval(b"", 60) + between + with_topic_alias(b"", 3) + after

    packet = decode(publish_with(block))

    assert packet.passed_on == before + between + after
    assert packet.user_properties == (("b", "2"), ("a", "1"))
    assert packet.message_expiry_interval == 60
    assert packet.topic_alias == 3


@given(publishes(5, from_server=True))
def test_decoded_block_agrees_with_the_general_decoder(packet: Publish) -> None:
    data = encode(packet, 5)
    reader = PacketReader(data, 1, len(data))
    reader.varint("remaining length")
    reader.string("topic")
    if packet.qos:
        reader.u16("packet identifier")

    expected = decode_properties(reader, types.PUBLISH)

    assert decode(data, is_server=False).properties() == expected


def test_frame_is_kept_when_the_packet_can_be_forwarded_as_it_is() -> None:
    plain = publish_with(b"")
    with_attributes = publish_with(with_user_property(b"", "site", "7"))
    old = encode_publish("a/b", b"payload", 0, False, False, 0, b"", 4)

    assert decode(plain).frame == plain
    assert decode(plain).frame == plain, "the second one comes from the fast path"
    assert decode(with_attributes).frame == with_attributes
    assert decode(old, 4).frame == old
    assert decode(old, 4).frame == old


def test_frame_is_empty_when_something_is_for_this_hop_only() -> None:
    changed = [
        encode_publish("a/b", b"payload", 1, False, False, 7, b"", 5),
        encode_publish("a/b", b"payload", 0, True, False, 0, b"", 5),
        publish_with(with_topic_alias(b"", 1)),
        publish_with(with_topic_alias(b"", 1), topic=""),
        publish_with(with_message_expiry_interval(b"", 0)),
        publish_with(with_subscription_identifier(b"", 5)),
    ]

    for data in changed:
        assert decode(data, is_server=False).frame == b""


def test_alias_may_stand_for_the_topic() -> None:
    packet = decode(publish_with(with_topic_alias(b"", 9), topic=""))

    assert packet.topic == ""
    assert packet.topic_alias == 9
    assert packet.payload == b"payload"


def test_empty_payload_and_shortest_packets_are_read() -> None:
    for _ in range(2):
        assert decode(bytes.fromhex("30 04 0001 61 00")) == Publish("a", b"")
        assert decode(bytes.fromhex("30 03 0001 61"), 4) == Publish("a", b"")
        assert decode(bytes.fromhex("30 04 0001 61 00"), 4) == Publish("a", b"\0")


@given(st.integers(0, 40_000), st.sampled_from([4, 5]))
def test_payload_of_any_size_comes_through_both_ways(size: int, version: int) -> None:
    data = encode_publish("plant/7/temp", b"x" * size, 0, False, False, 0, b"", version)

    assert len(decode(data, version).payload) == size
    assert decode(data, version).frame == data


def test_caches_are_bounded_and_start_anew() -> None:
    decoder = Decoder(5, is_server=True)

    for number in range(20_000):
        block = with_user_property(b"", "n", str(number))
        (packet,) = decoder.feed(publish_with(block, topic=f"topic/{number}"))
        assert isinstance(packet, Publish)
        assert packet.topic == f"topic/{number}"
        assert packet.user_properties == (("n", str(number)),)

    assert 0 < len(publish.TOPICS) <= 8_192


def test_bad_topics_and_blocks_are_refused_each_time() -> None:
    for bad in (b"\x30\x05\x00\x01#\x00x", publish_with(b"\x01\x02")):
        for _ in range(2):
            decoder = Decoder(5, is_server=True)
            assert decoder.feed(bad) == []
            assert decoder.error is not None


def test_cached_block_with_a_subscription_identifier_is_still_refused_from_a_client() -> None:
    data = publish_with(with_subscription_identifier(b"", 5))
    assert decode(data, is_server=False).subscription_identifiers == (5,)

    decoder = Decoder(5, is_server=True)
    decoder.feed(data)

    assert decoder.error is not None
    assert decoder.error.reason_code == 0x82


def test_general_properties_of_a_block_may_be_read_later() -> None:
    properties = Properties()
    properties.content_type = "json"
    properties.response_topic = "answers/7"
    properties.correlation_data = b"\x00\x01"
    data = publish_with(properties.encode_passed_on())

    assert decode(data).properties() == properties


def test_length_prefix_is_not_part_of_what_is_passed_on() -> None:
    block = with_user_property(b"", "k", "v" * 200)

    packet = decode(publish_with(block))

    assert packet.passed_on == block
    assert encode_varint(len(block)) + block in publish_with(block)
