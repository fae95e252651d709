"""The codec as a whole: round trips, pieces, limits, order of packets, speed of growth."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.errors import MalformedPacket, ProtocolError
from timebound.wire.codec import Decoder, clear_caches, encode, encode_publish
from timebound.wire.packets import Connect, Packet, Pingreq, Pingresp, Publish, make_publish
from timebound.wire.properties import Properties

from .strategies import connects, packets_to_client, packets_to_server

VERSIONS = st.sampled_from([4, 5])


def decode_one(data: bytes, version: int, *, is_server: bool) -> Packet:
    decoder = Decoder(version, is_server=is_server)
    packets = decoder.feed(data)
    assert decoder.error is None
    assert len(packets) == 1
    return packets[0]


@settings(max_examples=150)
@given(st.data(), VERSIONS)
def test_packets_to_a_server_survive_a_round_trip(data: st.DataObject, version: int) -> None:
    packet = data.draw(packets_to_server(version))

    assert decode_one(encode(packet, version), version, is_server=True) == packet


@settings(max_examples=150)
@given(st.data(), VERSIONS)
def test_packets_to_a_client_survive_a_round_trip(data: st.DataObject, version: int) -> None:
    packet = data.draw(packets_to_client(version))

    assert decode_one(encode(packet, version), version, is_server=False) == packet


@given(st.data(), VERSIONS)
def test_connect_survives_a_round_trip_and_sets_the_version(data: st.DataObject, version: int) -> None:
    packet = data.draw(connects(version))
    decoder = Decoder(is_server=True)

    assert decoder.feed(encode(packet, version)) == [packet]
    assert decoder.error is None
    assert decoder.version == version


@given(st.data(), VERSIONS, st.booleans())
def test_every_proper_prefix_is_incomplete(data: st.DataObject, version: int, is_server: bool) -> None:
    packets = packets_to_server(version) if is_server else packets_to_client(version)
    encoded = encode(data.draw(packets), version)

    for size in range(len(encoded)):
        decoder = Decoder(version, is_server=is_server)
        assert decoder.feed(encoded[:size]) == []
        assert decoder.error is None
        assert len(decoder.feed(encoded[size:])) == 1


@given(connects(5) | connects(4))
def test_every_proper_prefix_of_a_connect_is_incomplete(packet: Connect) -> None:
    encoded = encode(packet, packet.protocol_version)

    for size in range(len(encoded)):
        decoder = Decoder(is_server=True)
        assert decoder.feed(encoded[:size]) == []
        assert decoder.error is None


@settings(max_examples=150)
@given(st.data(), VERSIONS)
def test_pieces_of_any_size_give_the_same_packets(data: st.DataObject, version: int) -> None:
    packets = data.draw(st.lists(packets_to_client(version), max_size=6))
    stream = b"".join(encode(packet, version) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = Decoder(version, is_server=False)

    received: list[Packet] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:stop])

    assert received == packets
    assert decoder.error is None


@settings(max_examples=150)
@given(st.data(), VERSIONS)
def test_pieces_leave_frames_and_every_other_detail_alone(data: st.DataObject, version: int) -> None:
    topics = st.sampled_from(["a", "plant/7/temp", "ä" * 70])
    messages = data.draw(
        st.lists(st.tuples(topics, st.integers(0, 400), st.integers(0, 2), st.booleans()), max_size=20)
    )
    encoded = [
        encode_publish(topic, b"x" * size, qos, retain, False, 9 if qos else 0, b"", version)
        for topic, size, qos, retain in messages
    ]
    stream = b"".join(encoded)
    step = data.draw(st.integers(1, 300))
    decoder = Decoder(version, is_server=True)

    received: list[Packet] = []
    for start in range(0, len(stream), step):
        received += decoder.feed(stream[start : start + step])

    assert decoder.error is None
    frames = [packet.frame for packet in received if isinstance(packet, Publish)]
    plain = [
        frame if qos == 0 and not retain else b""
        for frame, (_, _, qos, retain) in zip(encoded, messages, strict=True)
    ]
    assert frames == plain


@settings(max_examples=200)
@given(st.binary(max_size=300), st.sampled_from([0, 4, 5]))
def test_random_bytes_never_raise_at_a_server(data: bytes, version: int) -> None:
    decoder = Decoder(version, is_server=True)

    decoder.feed(data)

    assert decoder.error is None or decoder.error.reason_code >= 0x81


@settings(max_examples=200)
@given(st.data(), VERSIONS, st.booleans())
def test_changed_bytes_never_raise(data: st.DataObject, version: int, is_server: bool) -> None:
    packets = packets_to_server(version) if is_server else packets_to_client(version)
    encoded = bytearray(encode(data.draw(packets), version))
    for position in data.draw(st.lists(st.integers(0, len(encoded) - 1), min_size=1, max_size=4)):
        encoded[position] = data.draw(st.integers(0, 255))
    decoder = Decoder(version, is_server=is_server)

    for packet in decoder.feed(bytes(encoded)):
        # Whatever was accepted is a packet that can be written.
        assert encode(packet, version)
    assert decoder.error is None or decoder.error.reason_code >= 0x81


def test_packets_before_a_mistake_are_returned_and_nothing_after_it() -> None:
    decoder = Decoder(5, is_server=True)
    good = encode(Pingreq(), 5)

    packets = decoder.feed(good + good + b"\xc1\x00" + good)

    assert packets == [Pingreq(), Pingreq()]
    assert isinstance(decoder.error, MalformedPacket)
    assert str(decoder.error) == "flags of PINGREQ are 0x1 (must be 0x0)"
    assert decoder.feed(good) == []


def test_packet_over_the_limit_is_refused_from_its_header_alone() -> None:
    decoder = Decoder(5, is_server=True, packet_size_max=1_000)

    assert decoder.feed(b"\x30\xe6\x07") == []

    assert decoder.error is not None
    assert decoder.error.reason_code == 0x95
    assert str(decoder.error) == "PUBLISH of 1001 bytes is too large (at most 1000)"


@pytest.mark.parametrize(("payload_size", "accepted"), [(992, True), (993, False)])
def test_limit_counts_the_whole_packet_also_on_known_topics(payload_size: int, accepted: bool) -> None:
    Decoder(5, is_server=True).feed(encode_publish("a/b", b"", 0, False, False, 0, b"", 5))
    decoder = Decoder(5, is_server=True, packet_size_max=1_001)
    encoded = encode_publish("a/b", b"x" * payload_size, 0, False, False, 0, b"", 5)

    packets = decoder.feed(encoded)

    assert (len(encoded) <= 1_001) is accepted
    assert (len(packets) == 1) is accepted
    assert (decoder.error is None) is accepted


def test_first_packet_to_a_server_must_be_connect() -> None:
    decoder = Decoder(is_server=True)

    assert decoder.feed(b"\xc0") == []

    assert isinstance(decoder.error, ProtocolError)
    assert decoder.error.reason_code == 0x82
    assert str(decoder.error) == "first packet is PINGREQ, not CONNECT"


def test_second_connect_is_refused() -> None:
    decoder = Decoder(is_server=True)
    connect = encode(Connect("a"), 5)

    assert len(decoder.feed(connect + connect)) == 1

    assert decoder.error is not None
    assert decoder.error.reason_code == 0x82


def test_version_is_known_when_the_rest_of_a_connect_is_bad() -> None:
    decoder = Decoder(is_server=True)

    decoder.feed(b"\x10\x0c\x00\x04MQTT\x05\x01\x00\x00\x00\x00")

    assert decoder.version == 5
    assert decoder.error is not None
    assert decoder.error.reason_code == 0x81


def test_packets_behind_a_connect_are_read_in_its_version() -> None:
    decoder = Decoder(is_server=True)
    publish = Publish("a/b", b"\0payload", message_expiry_interval=7)

    packets = decoder.feed(encode(Connect("a", 5), 5) + encode(publish, 5))

    assert packets[1] == publish


def test_long_packet_in_many_small_pieces_costs_linear_time() -> None:
    # Quadratic growth would copy 2 TB here and run into the time limit of the test.
    payload = bytes(10_000_000)
    encoded = encode_publish("a/b", payload, 0, False, False, 0, b"", 5)
    decoder = Decoder(5, is_server=True)

    received: list[Packet] = []
    for start in range(0, len(encoded), 25):
        received += decoder.feed(encoded[start : start + 25])

    assert [packet.payload for packet in received if isinstance(packet, Publish)] == [payload]


def test_overlong_remaining_length_is_malformed_in_mqtt_5_only() -> None:
    in_five = Decoder(5, is_server=False)
    in_four = Decoder(4, is_server=False)

    assert in_five.feed(b"\xd0\x80\x00") == []
    assert in_four.feed(b"\xd0\x80\x00") == [Pingresp()]

    assert in_five.error is not None
    assert str(in_five.error) == "remaining length is not in its shortest form (value 0)"
    assert in_four.error is None


@pytest.mark.parametrize(("version", "is_server"), [(0, False), (3, True), (6, True)])
def test_decoder_for_an_impossible_version_is_a_mistake(version: int, is_server: bool) -> None:
    with pytest.raises(ValueError, match=r"decoder version \d is invalid"):
        Decoder(version, is_server=is_server)


def test_cleared_caches_fill_again_and_change_no_packet() -> None:
    properties = Properties()
    properties.user_properties.append(("unit", "bar"))
    frame = encode(make_publish("plant/pressure", b"1", 0, False, 0, properties), 5)
    before = Decoder(5, is_server=True).feed(frame)[0]

    clear_caches()

    assert encode(make_publish("plant/pressure", b"1", 0, False, 0, properties), 5) == frame
    after = Decoder(5, is_server=True).feed(frame)[0]
    assert isinstance(before, Publish)
    assert isinstance(after, Publish)
    assert (after.topic, after.user_properties) == (before.topic, before.user_properties)
