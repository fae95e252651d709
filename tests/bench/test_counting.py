"""The scanner against the codec: whatever the pieces, it counts and answers what decoding would."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.bench.counting import STAMP, STAMP_MARK, STAMP_SIZE, Samples, Scanner, run_length
from timebound.errors import MalformedPacket
from timebound.wire import packet_types as types
from timebound.wire.codec import Decoder, encode, encode_ack
from timebound.wire.packets import Ack, Disconnect, Packet, Pingresp, Publish

NOW_NS = 10**15
SIZE = 20
REPLIES = {types.PUBREC: types.PUBREL, types.PUBREL: types.PUBCOMP}


def stamped(stamp_ns: int) -> bytes:
    return STAMP.pack(STAMP_MARK, stamp_ns) + bytes(SIZE - STAMP_SIZE)


payloads = st.one_of(st.just(bytes(SIZE)), st.integers(0, NOW_NS).map(stamped))
publishes = st.builds(
    lambda topic, payload, qos, packet_id, dup: Publish(
        topic, payload, qos, False, dup and qos > 0, packet_id if qos else 0
    ),
    st.sampled_from(["a", "b/1", "b/2", "t" * 120]),
    payloads,
    st.integers(0, 2),
    st.integers(1, 65535),
    st.booleans(),
)
acknowledgements = st.one_of(
    st.builds(
        Ack,
        st.sampled_from([types.PUBACK, types.PUBREC]),
        st.integers(1, 65535),
        st.sampled_from([0, 0, 0x10, 0x87, 0x97]),
    ),
    st.builds(Ack, st.sampled_from([types.PUBREL, types.PUBCOMP]), st.integers(1, 65535), st.just(0)),
)
packets = st.one_of(publishes, acknowledgements, st.just(Pingresp()))
# Runs are what the scanner is built for, so many packets come several times in a row.
streams = st.lists(st.tuples(packets, st.integers(1, 5)), max_size=12).map(
    lambda runs: [packet for packet, times in runs for _ in range(times)]
)


def scan_in_pieces(scanner: Scanner, data: bytes, cuts: list[int]) -> bytes:
    """Feed the data cut at these places, as a connection would; return what is left."""
    rest = b""
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    for start, stop in itertools.pairwise(places):
        buffer = bytearray(rest + data[start:stop] + b"\x30\x7f stale bytes behind the end")
        end = len(rest) + stop - start
        taken = scanner.scan(buffer, end, NOW_NS)
        rest = bytes(buffer[taken:end])
    return rest


def naive_replies(stream: list[Packet]) -> bytes:
    replies = []
    for packet in stream:
        if isinstance(packet, Publish) and packet.qos:
            replies.append((types.PUBACK if packet.qos == 1 else types.PUBREC, packet.packet_id))
        elif isinstance(packet, Ack) and packet.kind in REPLIES and packet.reason_code < 0x80:
            replies.append((REPLIES[packet.kind], packet.packet_id))
    return b"".join(encode_ack(kind, packet_id, 0, 5) for kind, packet_id in replies)


def is_final(packet: Packet) -> bool:
    if not isinstance(packet, Ack):
        return False
    return packet.kind in (types.PUBACK, types.PUBCOMP) or (
        packet.kind == types.PUBREC and packet.reason_code >= 0x80
    )


@given(streams, st.lists(st.integers(0, 10_000), max_size=8), st.sampled_from([4, 5]))
def test_any_pieces_count_like_decoded_packets(stream: list[Packet], cuts: list[int], version: int) -> None:
    data = b"".join(encode(packet, version) for packet in stream)
    decoded = Decoder(version, is_server=False).feed(data)
    samples = Samples()
    samples.is_open = True
    scanner = Scanner(SIZE, samples)

    rest = scan_in_pieces(scanner, data, cuts)

    received = [packet for packet in decoded if isinstance(packet, Publish)]
    assert rest == b""
    assert scanner.publishes == len(received)
    assert scanner.replies == naive_replies(decoded)
    assert scanner.acknowledged == sum(is_final(packet) for packet in decoded)
    assert scanner.refused == sum(
        isinstance(packet, Ack) and packet.reason_code >= 0x80 for packet in decoded
    )
    assert list(samples.latencies_ns) == [
        NOW_NS - STAMP.unpack_from(packet.payload)[1] for packet in received if any(packet.payload)
    ]


@given(st.integers(1, 40))
def test_proper_prefix_of_a_packet_is_left_for_later(length: int) -> None:
    packet = encode(Publish("topic", bytes(40)), 4)
    scanner = Scanner(40, Samples())

    taken = scanner.scan(bytearray(packet + packet[:length]), len(packet) + length, NOW_NS)

    assert taken == len(packet)
    assert scanner.publishes == 1


@given(st.binary(max_size=200))
def test_random_bytes_are_counted_or_refused(data: bytes) -> None:
    scanner = Scanner(SIZE, Samples())

    try:
        taken = scanner.scan(bytearray(data), len(data), NOW_NS)
    except MalformedPacket:
        return

    assert 0 <= taken <= len(data)


@given(st.lists(st.sampled_from([b"\x30\x02ab", b"\x30\x02cd", b"\x40\x02ab", b"\x30\x03ab"]), min_size=1))
def test_run_ends_where_the_header_changes(pieces: list[bytes]) -> None:
    data = bytearray(b"".join(piece[:4] for piece in pieces))

    found = run_length(data, 0, 2, 4, len(pieces))

    same = itertools.takewhile(lambda piece: piece[:2] == pieces[0][:2], pieces)
    assert found == len(list(same))


def test_closed_samples_take_no_latency() -> None:
    samples = Samples()
    scanner = Scanner(SIZE, samples)
    packet = encode(Publish("t", stamped(1)), 4)

    scanner.scan(bytearray(packet), len(packet), NOW_NS)

    assert scanner.publishes == 1
    assert len(samples.latencies_ns) == 0


@pytest.mark.parametrize(("packet", "reason"), [(Disconnect(0x8B), 0x8B), (Disconnect(), 0)])
def test_reason_of_a_disconnect_is_kept(packet: Disconnect, reason: int) -> None:
    scanner = Scanner(SIZE, Samples())
    data = encode(packet, 5)

    scanner.scan(bytearray(data), len(data), NOW_NS)

    assert scanner.disconnect_reason == reason


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x30\xff\xff\xff\xff\x01", "remaining length has more than four bytes"),
        (b"\x40\x01\x00", "PUBACK of 3 bytes has no room for its packet id"),
        (b"\x32\x03\x00\x01t", "PUBLISH of 5 bytes has no room for its packet id"),
        (b"\x32\x01\x00", "PUBLISH of 3 bytes has no room for its packet id"),
    ],
)
def test_malformed_bytes_are_named(data: bytes, message: str) -> None:
    scanner = Scanner(SIZE, Samples())

    with pytest.raises(MalformedPacket, match=message):
        scanner.scan(bytearray(data), len(data), NOW_NS)
