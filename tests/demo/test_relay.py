"""The relay is a link of the rate it was told, small buffers included."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from timebound.demo.relay import ShapingRelay

RATE = 200_000
TIMEOUT_S = 10.0
ATTEMPTS = 10


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        yield listener


def connect(relay: ShapingRelay, server: socket.socket) -> tuple[socket.socket, socket.socket]:
    """A client behind the relay, and the server's end."""
    client = socket.create_connection(("127.0.0.1", relay.port), TIMEOUT_S)
    accepted, _ = server.accept()
    accepted.settimeout(TIMEOUT_S)
    return client, accepted


def read(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = source.recv(65_536)
        assert piece, f"closed after {len(found)} of {count} bytes"
        found += piece
    return found


def measured_rate(source: socket.socket, sink: socket.socket, count: int) -> float:
    """Bytes a second over an idle link."""
    source.setblocking(False)
    left = count
    received = 0
    sink.settimeout(TIMEOUT_S)
    started_s = time.monotonic()
    while received < count:
        if left:
            with contextlib.suppress(BlockingIOError):
                left -= source.send(b"x" * min(left, 65_536))
        received += len(sink.recv(65_536))
    return count / (time.monotonic() - started_s)


def nearest_rate(source: socket.socket, sink: socket.socket, count: int, wanted: float) -> float:
    """The best of some attempts: a busy machine makes a link slower, nothing makes it quicker."""
    best = 0.0
    for _ in range(ATTEMPTS):
        best = max(best, measured_rate(source, sink, count))
        if best >= 0.85 * wanted:
            break
    return best


def test_it_carries_at_its_rate_and_follows_a_change(server: socket.socket) -> None:
    with ShapingRelay(server.getsockname()[1], RATE) as relay:
        client, accepted = connect(relay, server)
        with client, accepted:
            slow = nearest_rate(accepted, client, RATE // 4, RATE)
            relay.rate_bytes_per_s = 4 * RATE
            fast = nearest_rate(accepted, client, RATE, 4 * RATE)

    assert slow == pytest.approx(RATE, rel=0.15)
    assert fast == pytest.approx(4 * RATE, rel=0.15)


def test_the_other_direction_is_not_limited_and_bytes_stay_as_they_are(server: socket.socket) -> None:
    data = bytes(range(256)) * 400
    with ShapingRelay(server.getsockname()[1], RATE) as relay:
        client, accepted = connect(relay, server)
        with client, accepted:
            started_s = time.monotonic()
            client.sendall(data)
            got = read(accepted, len(data))
            took_s = time.monotonic() - started_s
            accepted.sendall(data[:1_000])

            assert read(client, 1_000) == data[:1_000]
    assert got == data
    assert took_s < len(data) / RATE


def test_an_idle_link_delays_a_message_by_its_sending_time_only(server: socket.socket) -> None:
    with ShapingRelay(server.getsockname()[1], RATE) as relay:
        client, accepted = connect(relay, server)
        with client, accepted:
            took = []
            for _ in range(5):
                started_s = time.monotonic()
                accepted.sendall(b"x" * 200)
                read(client, 200)
                took.append(time.monotonic() - started_s)

    # Waiting may end a few microseconds early: a clock's step.
    assert 0.0009 <= min(took) < 0.01


class SlowWriter:
    """A socket whose sender is held up for a while behind what it has sent, as a busy machine does it."""

    def __init__(self, inner: socket.socket, pause_s: float) -> None:
        self._inner = inner
        self._pause_s = pause_s
        self.called_s: list[float] = []
        self.free_s: list[float] = []  # when the sender could go on

    def send(self, content: bytes) -> int:
        self.called_s.append(time.monotonic())
        count = self._inner.send(content)
        time.sleep(self._pause_s)
        self.free_s.append(time.monotonic())
        return count


def test_a_message_starts_no_sooner_than_it_comes(server: socket.socket) -> None:
    with ShapingRelay(server.getsockname()[1], RATE) as relay:
        client, accepted = connect(relay, server)
        with client, accepted:
            accepted.sendall(b"x")
            read(client, 1)
            [shaped] = [flow for flow in relay._flows if flow.is_shaped]
            inner = shaped.writer
            writer = SlowWriter(inner, pause_s=0.02)
            shaped.writer = writer  # type: ignore[assignment]  # what is used of it
            for _ in range(2):
                accepted.sendall(b"x" * 200)
                read(client, 200)
            shaped.writer = inner

    # The second came while the relay was held up, which found it only then.
    assert writer.called_s[1] - writer.free_s[0] > 0.0009


def test_little_is_taken_ahead_of_the_link(server: socket.socket) -> None:
    with ShapingRelay(server.getsockname()[1], 1_000) as relay:
        client, accepted = connect(relay, server)
        with client, accepted:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
            accepted.settimeout(0.3)
            taken = 0
            with contextlib.suppress(TimeoutError):
                while taken < 1_000_000:
                    taken += accepted.send(b"x" * 512)

    assert taken < 32_768


def test_an_end_is_passed_on_both_ways(server: socket.socket) -> None:
    with ShapingRelay(server.getsockname()[1], RATE) as relay:
        first, first_end = connect(relay, server)
        second, second_end = connect(relay, server)
        with first, first_end, second, second_end:
            first.close()
            assert first_end.recv(1) == b""
            second_end.close()
            assert second.recv(1) == b""


def test_cut_breaks_connections_and_new_ones_work(server: socket.socket) -> None:
    with ShapingRelay(server.getsockname()[1], RATE) as relay:
        client, accepted = connect(relay, server)
        with client, accepted:
            # The server's end is accepted before the relay has noted the flow: one byte shows that it has.
            accepted.sendall(b"x")
            assert read(client, 1) == b"x"
            relay.cut()
            assert client.recv(1) == b""
        client, accepted = connect(relay, server)
        with client, accepted:
            accepted.sendall(b"back")
            assert read(client, 4) == b"back"


def test_a_server_that_is_not_there_closes_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        ShapingRelay(port, RATE) as relay,
        socket.create_connection(("127.0.0.1", relay.port), TIMEOUT_S) as client,
    ):
        assert client.recv(1) == b""


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        ShapingRelay(1, 0)


def test_a_hidden_buffer_takes_ahead_what_the_link_has_not_sent(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with ShapingRelay(port, RATE, hidden_bytes=100_000) as relay:
        client, accepted = connect(relay, server)
        with client, accepted:
            started_s = time.monotonic()
            accepted.sendall(b"x" * 100_000)  # without the buffer this waits for the link, half a second
            taken_s = time.monotonic() - started_s
            client.settimeout(TIMEOUT_S)
            assert read(client, 100_000) == b"x" * 100_000
            arrived_s = time.monotonic() - started_s

    assert arrived_s >= 0.45
    assert taken_s < arrived_s / 2
