"""A slow link without privileges: a TCP relay that passes on only so many bytes a second.

    with ShapingRelay(broker_port, rate_bytes_per_s=125_000) as relay:
        ...connect to 127.0.0.1:relay.port...
        relay.rate_bytes_per_s = 500_000

What the broker sends is read in small pieces, at the link's rate, through a small receive buffer:
so the broker's own socket fills up as it would on such a link, and little is beyond its reach.
A piece is passed on when a link of this rate would have sent its last bit. Every connection has
a link of its own. The other direction, from the client to the broker, is not limited.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from types import TracebackType
from typing import Final

# What the relay's end of the broker's connection takes ahead, as a modem would. Measured: a sender that
# writes without pause has 2.4 KB beyond its reach on average, 3.5 KB at most (28 ms at 1 Mbit/s); with
# 16 KB the kernel's own limits make the rate uneven.
RECEIVE_BUFFER_BYTES: Final = 2_048
# Small segments, as on a real link: the loopback's own have 64 KB and would come in lumps.
SEGMENT_BYTES: Final = 536
# A piece is what the link sends in this time: fine enough to add no delay of its own.
PIECE_S: Final = 0.002
PIECE_BYTES_MIN: Final = 64
PIECE_BYTES_MAX: Final = 65_536
# Time by which the relay was late is made good for what was waiting, up to this; a longer stop is an outage.
CATCH_UP_S: Final = 0.1
# A client that does not read is asked again after this.
RETRY_S: Final = 0.002
CONNECT_TIMEOUT_S: Final = 5.0
STOP_TIMEOUT_S: Final = 5.0


class _Flow:
    """One direction of one connection."""

    __slots__ = ("due_s", "is_shaped", "pending", "reader", "writer")

    def __init__(self, reader: socket.socket, writer: socket.socket, *, is_shaped: bool) -> None:
        self.reader = reader
        self.writer = writer
        self.is_shaped = is_shaped
        self.pending = b""  # on the link until `due_s`
        self.due_s = 0.0


class ShapingRelay:
    """Listens on a free port of this machine and relays to another; runs in a thread."""

    def __init__(self, target_port: int, rate_bytes_per_s: float, *, host: str = "127.0.0.1") -> None:
        if rate_bytes_per_s <= 0:
            raise ValueError(f"rate_bytes_per_s is {rate_bytes_per_s}; it must be above zero")
        self.rate_bytes_per_s = rate_bytes_per_s  # may be changed at any time
        self.bytes_carried = 0  # towards clients, since the start
        self._target = (host, target_port)
        self._listener = socket.create_server((host, 0), backlog=16)
        self.port: Final[int] = self._listener.getsockname()[1]
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._selector = selectors.SelectSelector()  # waits microseconds; epoll whole milliseconds
        self._flows: list[_Flow] = []
        self._thread = threading.Thread(target=self._run, name="timebound-relay", daemon=True)

    def __enter__(self) -> ShapingRelay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_writer.send(b"x")
        self._thread.join(STOP_TIMEOUT_S)
        for flow in self._flows:
            flow.reader.close()
        for each in (self._listener, self._stop_reader, self._stop_writer):
            each.close()

    def cut(self) -> None:
        """Break every connection, as a lost signal would; new ones are relayed as before."""
        for flow in list(self._flows):
            with contextlib.suppress(OSError):
                flow.reader.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        with self._selector as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stop_reader, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(self._wait_s()):
                    if key.fileobj is self._stop_reader:
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.data in self._flows:
                        self._take(key.data, time.monotonic())
                now_s = time.monotonic()
                for flow in list(self._flows):
                    if flow.pending and flow.due_s <= now_s:
                        self._pass_on(flow)

    def _wait_s(self) -> float | None:
        due = [flow.due_s for flow in self._flows if flow.pending]
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        broker = socket.socket()
        # Before connecting: the handshake announces the first window.
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        broker.settimeout(CONNECT_TIMEOUT_S)
        try:
            broker.connect(self._target)
        except OSError:
            client.close()
            broker.close()
            return
        for each in (client, broker):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for flow in (_Flow(broker, client, is_shaped=True), _Flow(client, broker, is_shaped=False)):
            self._flows.append(flow)
            self._selector.register(flow.reader, selectors.EVENT_READ, flow)

    def _take(self, flow: _Flow, start_s: float) -> bool:
        """Put the next piece on the link, from `start_s` on; False if there is none yet."""
        rate = self.rate_bytes_per_s
        size = min(max(int(rate * PIECE_S), PIECE_BYTES_MIN), PIECE_BYTES_MAX)
        try:
            piece = flow.reader.recv(size if flow.is_shaped else PIECE_BYTES_MAX)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self._end(flow)
            return False
        flow.pending = piece
        flow.due_s = start_s + len(piece) / rate if flow.is_shaped else start_s
        if flow.reader in self._selector.get_map():
            self._selector.unregister(flow.reader)
        return True

    def _pass_on(self, flow: _Flow) -> None:
        """The piece has arrived; the next one starts at once if it is here, else when it comes."""
        now_s = time.monotonic()
        next_s = max(flow.due_s, now_s - CATCH_UP_S) if _is_waiting(flow.reader) else None
        try:
            count = flow.writer.send(flow.pending)
        except BlockingIOError:
            count = 0
        except OSError:
            self._end(flow)
            return
        if flow.is_shaped:
            self.bytes_carried += count
        flow.pending = flow.pending[count:]
        if flow.pending:
            flow.due_s = now_s + RETRY_S
            return
        # What was not here yet has come since, after who knows how long: it starts now.
        start_s = time.monotonic() if next_s is None else next_s
        if not self._take(flow, start_s) and flow in self._flows:
            self._selector.register(flow.reader, selectors.EVENT_READ, flow)

    def _end(self, flow: _Flow) -> None:
        """One side has closed: so does the other."""
        for each in [one for one in self._flows if one.reader in (flow.reader, flow.writer)]:
            self._flows.remove(each)
            if each.reader in self._selector.get_map():
                self._selector.unregister(each.reader)
        flow.reader.close()
        flow.writer.close()


def _is_waiting(reader: socket.socket) -> bool:
    try:
        return bool(reader.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
