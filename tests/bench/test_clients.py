"""A publisher at the other end of a socket pair: what it really sends, and when."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from timebound.bench.clients import SECOND, Inbox, LoadPublisher, Ring
from timebound.bench.counting import STAMP, STAMP_MARK, Samples
from timebound.bench.handshake import LoadConnection
from timebound.wire import packet_types as types
from timebound.wire.codec import Decoder, encode_ack
from timebound.wire.packets import Ack, Packet, Publish

SIZE = 16


class Pair:
    """A publisher and the broker's end of its connection."""

    def __init__(self, *, qos: int = 0, slots: int = 8, window: int = 0, rate: float = 0.0) -> None:
        sock, self.peer = socket.socketpair()
        sock.setblocking(False)
        self.peer.setblocking(False)
        ring = Ring(["t/0", "t/1"], size=SIZE, qos=qos, version=4, slots=slots, stamp_every=1)
        connection = LoadConnection(sock, "p", 4)
        self.publisher = LoadPublisher(connection, ring, Samples(), Inbox(64), window=window, rate=rate)
        self.decoder = Decoder(4, is_server=True)

    def received(self) -> list[Packet]:
        found: list[Packet] = []
        while True:
            try:
                found += self.decoder.feed(self.peer.recv(1 << 20))
            except BlockingIOError:
                return found

    def acknowledge(self, kind: int, packets: list[Packet]) -> None:
        for packet in packets:
            assert isinstance(packet, (Publish, Ack))
            self.peer.sendall(encode_ack(kind, packet.packet_id, 0, 4))
        assert self.publisher.receive()

    def close(self) -> None:
        self.publisher.sock.close()
        self.peer.close()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made: list[Pair] = []
    yield made
    for pair in made:
        pair.close()


def stamps(packets: list[Packet]) -> list[int]:
    found = []
    for packet in packets:
        assert isinstance(packet, Publish)
        mark, stamp_ns = STAMP.unpack_from(packet.payload)
        assert mark == STAMP_MARK
        found.append(stamp_ns)
    return found


def test_full_speed_fills_the_kernel_and_stops_on_a_whole_packet(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair())
    publisher = pair.publisher
    received = []

    for turn in range(3):
        assert publisher.send(turn)
        assert publisher.is_blocked
        received += pair.received()
    publisher.stop()
    assert publisher.send(3)
    received += pair.received()

    assert publisher.is_idle
    assert publisher.sent == len(received) > 100
    topics = [packet.topic for packet in received if isinstance(packet, Publish)]
    assert topics == ["t/0", "t/1"] * (len(received) // 2) + ["t/0"] * (len(received) % 2)


def test_window_holds_messages_back_until_acknowledged(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(qos=1, slots=4, window=3))
    publisher = pair.publisher

    publisher.send(0)
    first = pair.received()
    pair.acknowledge(types.PUBACK, first[:2])
    publisher.send(0)
    second = pair.received()

    assert [packet.packet_id for packet in first if isinstance(packet, Publish)] == [1, 2, 3]
    assert [packet.packet_id for packet in second if isinstance(packet, Publish)] == [4, 1]
    assert not publisher.is_blocked


def test_qos_2_answers_pubrec_and_waits_for_pubcomp(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(qos=2, slots=2, window=2))
    publisher = pair.publisher
    publisher.send(0)
    first = pair.received()

    pair.acknowledge(types.PUBREC, first)
    publisher.send(0)
    releases = pair.received()
    pair.acknowledge(types.PUBCOMP, releases)
    publisher.send(0)
    second = pair.received()

    assert releases == [Ack(types.PUBREL, 1), Ack(types.PUBREL, 2)]
    assert [packet.packet_id for packet in second if isinstance(packet, Publish)] == [1, 2]


def test_fixed_rate_neither_drifts_nor_bunches(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(rate=1000.0))
    publisher = pair.publisher
    publisher.start(0)
    times = []

    for _ in range(2000):
        now_ns = publisher.next_due_ns()
        publisher.advance(now_ns)
        publisher.send(now_ns)
        times += stamps(pair.received())

    assert times == [number * SECOND // 1000 for number in range(2000)]


def test_waiting_behind_a_full_socket_counts_as_latency(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(rate=1000.0, slots=100_000))
    publisher = pair.publisher
    publisher.start(0)
    now_ns = 60 * SECOND
    publisher.advance(now_ns)
    publisher.send(now_ns)
    assert publisher.is_blocked

    late_ns = now_ns + SECOND
    publisher.advance(late_ns)
    times = []
    while publisher.sent < publisher.due:
        times += stamps(pair.received())
        publisher.send(late_ns)
    times += stamps(pair.received())

    # The first minute was ours, so it does not count; the second after it the socket was full.
    assert times[:60_001] == [now_ns] * 60_001
    assert times[60_001:] == [number * SECOND // 1000 for number in range(60_001, 61_001)]


def test_closed_peer_ends_the_publisher(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(qos=1, slots=4, window=3))
    pair.peer.close()

    assert not pair.publisher.send(0)
    assert not pair.publisher.receive()


def test_topics_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Ring(["a", "bb"], size=SIZE, qos=0, version=4, slots=2, stamp_every=1)


def test_more_topics_than_packet_ids_are_refused() -> None:
    topics = [f"{number:05d}" for number in range(65_536)]

    with pytest.raises(ValueError, match="65536 topics of one publisher are too many"):
        Ring(topics, size=0, qos=1, version=4, slots=1, stamp_every=1)
