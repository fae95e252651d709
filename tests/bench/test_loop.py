"""The loop under a load run: what it counts, sends and gives up, over socket pairs."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from timebound.bench.clients import SECOND, Inbox, LoadClient, LoadPublisher, Ring
from timebound.bench.counting import Samples
from timebound.bench.handshake import LoadConnection
from timebound.bench.loop import ClientLoop
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Disconnect, Packet, Pingreq, Publish

LIMIT_S = 10.0


class Bench:
    """A loop, and the broker's ends of the connections in it."""

    def __init__(self) -> None:
        self.loop = ClientLoop()
        self.peers: list[socket.socket] = []

    def subscriber(self, ping_interval_s: float = 0.0) -> LoadClient:
        connection = self._connection(ping_interval_s)
        client = LoadClient(connection, 16, Samples(), Inbox(64))
        self.loop.add(client)
        return client

    def publisher(self, rate: float = 0.0) -> LoadPublisher:
        ring = Ring(["t"], size=16, qos=0, version=5, slots=8, stamp_every=1)
        connection = self._connection()
        publisher = LoadPublisher(connection, ring, Samples(), Inbox(64), window=0, rate=rate)
        self.loop.add(publisher)
        return publisher

    def _connection(self, ping_interval_s: float = 0.0) -> LoadConnection:
        sock, peer = socket.socketpair()
        sock.setblocking(False)
        peer.settimeout(LIMIT_S)
        self.peers.append(peer)
        connection = LoadConnection(sock, f"c{len(self.peers)}", 5)
        connection.ping_interval_s = ping_interval_s
        return connection

    def turn(self, wait_ns: int = 0) -> None:
        now_ns = time.monotonic_ns()
        self.loop.turn(now_ns, now_ns + wait_ns)

    def received(self, peer: int = 0) -> list[Packet]:
        """What the broker's end has got by now."""
        self.peers[peer].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return Decoder(5, is_server=True).feed(self.peers[peer].recv(1 << 20))
        return []


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close(b"")
    for peer in made.peers:
        peer.close()


def test_messages_are_counted_at_the_client_they_came_to(bench: Bench) -> None:
    first, second = bench.subscriber(), bench.subscriber()
    bench.peers[1].sendall(encode(Publish("t", bytes(16)), 5) * 3)

    bench.turn()

    assert (first.scanner.publishes, second.scanner.publishes) == (0, 3)


def test_acknowledgements_leave_in_the_same_turn(bench: Bench) -> None:
    bench.subscriber()
    bench.peers[0].sendall(encode(Publish("t", bytes(16), 1, packet_id=7), 5))

    bench.turn()

    assert bench.peers[0].recv(16) == b"\x40\x02\x00\x07"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "c1: closed by the server"),
        (encode(Disconnect(0x8B), 5), "c1: closed by the server with reason 0x8b"),
        (b"\x30\xff\xff\xff\xff\x01", "c1: remaining length has more than four bytes"),
    ],
)
def test_lost_connection_is_reported_with_its_reason(bench: Bench, data: bytes, reason: str) -> None:
    client = bench.subscriber()
    bench.peers[0].sendall(data)
    bench.peers[0].close()

    while bench.loop.has_clients():
        bench.turn()

    assert bench.loop.lost == [reason]
    assert not client.is_open


def test_publisher_with_a_fixed_rate_sends_what_is_due_and_no_more(bench: Bench) -> None:
    publisher = bench.publisher(rate=1_000.0)
    now_ns = time.monotonic_ns()
    publisher.start(now_ns)
    bench.loop.add_timer(publisher)

    # The time is handed in: two milliseconds later, three messages are due.
    bench.loop.turn(now_ns + 2 * SECOND // 1_000, 0)
    sent = bench.received()
    bench.loop.stop_timers()
    bench.loop.turn(now_ns + SECOND, 0)

    assert len(sent) == publisher.sent == 3
    assert bench.received() == []


def test_publisher_that_filled_its_socket_goes_on_when_there_is_room(bench: Bench) -> None:
    publisher = bench.publisher()
    full = -1
    while publisher.sent_bytes != full:
        full = publisher.sent_bytes
        bench.loop.serve(publisher, 0)
    bench.turn()
    assert publisher.sent_bytes == full > 0

    drained = 0
    while drained < full:
        drained += len(bench.peers[0].recv(1 << 20))
    bench.turn()

    assert publisher.sent_bytes > full


def test_ping_goes_out_when_the_server_wants_to_see_one(bench: Bench) -> None:
    bench.subscriber(ping_interval_s=5.0)
    now_ns = time.monotonic_ns()

    bench.loop.turn(now_ns + 4 * SECOND, 0)
    assert bench.received() == []
    bench.loop.turn(now_ns + 6 * SECOND, 0)

    assert bench.received() == [Pingreq()]


def test_closing_says_goodbye_on_every_connection(bench: Bench) -> None:
    bench.subscriber()
    bench.subscriber()

    bench.loop.close(encode(Disconnect(), 5))

    assert [peer.recv(16) for peer in bench.peers] == [b"\xe0\x00"] * 2
    assert [peer.recv(16) for peer in bench.peers] == [b""] * 2
