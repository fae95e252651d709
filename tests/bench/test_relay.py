"""The relay as a process: it copies whole packets to the subscribers of a publisher's first topic."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from timebound.bench.relay import Peer, first_topic
from timebound.bench.selftest import relay_process
from timebound.wire import packet_types as types
from timebound.wire.codec import Decoder, encode, encode_publish
from timebound.wire.packets import Ack, Connack, Connect, Packet, Publish, Suback, Subscribe, SubscribeEntry

LIMIT_S = 10.0


class Peers:
    """Clients of one relay."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[socket.socket] = []

    def connect(self, *topic_filters: str) -> socket.socket:
        """Return a connection that the relay has accepted, subscribed to the filters."""
        sock = socket.create_connection(("127.0.0.1", self._port), LIMIT_S)
        self._sockets.append(sock)
        sock.sendall(encode(Connect(f"c{len(self._sockets)}"), 5))
        assert read(sock, 1) == [Connack()]
        if topic_filters:
            sock.sendall(encode(Subscribe(1, [SubscribeEntry(one, 1) for one in topic_filters]), 5))
            assert read(sock, 1) == [Suback(1, [1] * len(topic_filters))]
        return sock

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def read(sock: socket.socket, count: int) -> list[Packet]:
    """Return the next packets, exactly this many."""
    decoder = Decoder(5, is_server=False)
    found: list[Packet] = []
    while len(found) < count:
        data = sock.recv(65_536)
        assert data, "the relay closed the connection"
        found += decoder.feed(data)
    assert len(found) == count
    return found


@pytest.fixture
def peers() -> Iterator[Peers]:
    with relay_process() as port:
        made = Peers(port)
        yield made
        made.close()


def test_packets_reach_the_subscribers_of_the_topic_and_are_acknowledged(peers: Peers) -> None:
    exact, wide, other = peers.connect("t/1"), peers.connect("t/#"), peers.connect("u/#")
    publisher = peers.connect()
    messages = [Publish("t/1", b"a", 1, packet_id=1), Publish("t/1", b"b", 1, packet_id=2)]

    publisher.sendall(b"".join(encode(one, 5) for one in messages))

    assert read(publisher, 2) == [Ack(types.PUBACK, 1), Ack(types.PUBACK, 2)]
    assert read(exact, 2) == read(wide, 2) == messages
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)


def test_packet_in_pieces_is_passed_on_whole(peers: Peers) -> None:
    subscriber, publisher = peers.connect("t"), peers.connect()
    data = encode(Publish("t", bytes(1_000_000), 1, packet_id=1), 5)

    for start in range(0, len(data), 300_000):
        publisher.sendall(data[start : start + 300_000])

    (packet,) = read(subscriber, 1)
    assert isinstance(packet, Publish)
    assert len(packet.payload) == 1_000_000


def test_subscriber_that_left_does_not_stop_the_others(peers: Peers) -> None:
    leaving, staying, publisher = peers.connect("t"), peers.connect("t"), peers.connect()
    leaving.close()

    publisher.sendall(encode(Publish("t", b"x", 1, packet_id=1), 5))

    assert read(publisher, 1) == [Ack(types.PUBACK, 1)]
    assert read(staying, 1) == [Publish("t", b"x", 1, packet_id=1)]


@pytest.mark.parametrize("size", [0, 200, 20_000])
def test_first_topic_is_read_behind_a_length_of_any_size(size: int) -> None:
    assert first_topic(bytearray(encode_publish("a/é", bytes(size), 0, False, False, 0, b"", 4))) == "a/é"


def test_filters_match_exactly_or_by_their_beginning() -> None:
    with socket.socket() as sock:
        peer = Peer(sock)
        peer.filters = ["t/1", "u/#"]

        assert [peer.accepts(topic) for topic in ("t/1", "t/12", "u/x", "u", "v")] == [
            True,
            False,
            True,
            False,
            False,
        ]
