"""Readings of TCP_INFO from real sockets."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

import pytest

from timebound.node.links import tcp_info

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is Linux's own")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection over the loopback interface: the side that opened it, and the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with opened, accepted:
            yield opened, accepted


def test_what_is_written_and_not_read_is_seen_on_a_socket(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sending, receiving = pair
    receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sending.setblocking(False)
    written = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            written += sending.send(bytes(10_000))

    reading = tcp_info.read(sending)

    assert reading is not None
    assert reading.unsent > 0
    assert reading.segment_bytes > 500
    # Where this side opened the connection, one byte of what was acknowledged was its beginning.
    assert reading.bytes_acked + reading.in_flight + reading.unsent in (written, written + 1)


def test_what_the_other_side_has_read_is_acknowledged(pair: tuple[socket.socket, socket.socket]) -> None:
    opened, accepted = pair
    before = tcp_info.read(accepted)
    accepted.sendall(bytes(5_000))
    left = 5_000
    while left:
        left -= len(opened.recv(left))
    opened.sendall(b"x")  # carries the acknowledgement
    accepted.recv(1)

    after = tcp_info.read(accepted)

    assert before is not None
    assert after is not None
    assert after.bytes_acked - before.bytes_acked == 5_000
    assert (after.in_flight, after.unsent) == (0, 0)


def test_the_shortest_round_trip_is_no_longer_than_the_mean(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    opened, accepted = pair
    for _ in range(10):
        opened.sendall(b"x")
        accepted.recv(1)
        accepted.sendall(b"y")
        opened.recv(1)

    reading = tcp_info.read(opened)

    assert reading is not None
    assert 0 < reading.rtt_min_ns <= reading.rtt_ns < 1_000_000_000


def test_a_closed_connection_or_another_kind_of_socket_gives_no_reading(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    opened, _ = pair
    assert tcp_info.read(opened) is not None
    opened.close()
    local, other = socket.socketpair()

    with local, other:
        assert tcp_info.read(local) is None
    assert tcp_info.read(opened) is None
    assert tcp_info.read(None) is None
