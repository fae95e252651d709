"""A slow link without privileges: a TCP relay with a limited rate.

    with ShapingRelay(broker_port, rate_bytes_per_s=125_000) as relay:
        ...connect to 127.0.0.1:relay.port...
        relay.rate_bytes_per_s = 500_000

The broker's bytes are read in small pieces, at the link's rate, through a small receive buffer:
so the broker's own socket fills up as it would on such a link, and little is beyond its control.
A piece is forwarded when a link of this rate would have sent its last bit. Every connection has a
link of its own. The direction from the client to the broker is not limited.

With `hidden_bytes` the relay buffers that much ahead of its link, as proxies, radios and home
routers do; no socket of the broker shows these bytes.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from types import TracebackType
from typing import Final

# Receive buffer towards the broker, like a modem's. Measured: a sender that writes without pause has 2.4 KB
# beyond its control on average, 3.5 KB at most (28 ms at 1 Mbit/s); with 16 KB the kernel's own limits make
# the rate uneven.
RECEIVE_BUFFER_BYTES: Final = 2_048
# Small segments, as on a real link: those of the loopback have 64 KB and would arrive in lumps.
SEGMENT_BYTES: Final = 536
# A piece is what the link sends in this time: small enough to add no noticeable delay.
PIECE_S: Final = 0.002
PIECE_BYTES_MIN: Final = 64
PIECE_BYTES_MAX: Final = 65_536
# If the relay was late, waiting bytes catch up by at most this time; a longer stall is an outage.
CATCH_UP_S: Final = 0.1
# A client that does not read is tried again after this.
RETRY_S: Final = 0.002
CONNECT_TIMEOUT_S: Final = 5.0
STOP_TIMEOUT_S: Final = 5.0


class _Flow:
    """One direction of one connection."""

    __slots__ = ("due_s", "held", "is_shaped", "pending", "reader", "writer")

    def __init__(self, reader: socket.socket, writer: socket.socket, *, is_shaped: bool) -> None:
        self.reader = reader
        self.writer = writer
        self.is_shaped = is_shaped
        self.held = bytearray()  # buffered ahead of the link
        self.pending = b""  # on the link until `due_s`
        self.due_s = 0.0


class ShapingRelay:
    """Listens on a free port of this machine and relays to another; runs in a thread."""

    def __init__(
        self,
        target_port: int,
        rate_bytes_per_s: float,
        *,
        host: str = "127.0.0.1",
        hidden_bytes: int = 0,
    ) -> None:
        if rate_bytes_per_s <= 0:
            raise ValueError(f"rate_bytes_per_s is {rate_bytes_per_s}; it must be above zero")
        self.rate_bytes_per_s = rate_bytes_per_s  # may be changed at any time
        self.hidden_bytes = hidden_bytes
        self._target = (host, target_port)
        self._listener = socket.create_server((host, 0), backlog=16)
        self.port: Final[int] = self._listener.getsockname()[1]
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._selector = selectors.SelectSelector()  # waits in microseconds; epoll in milliseconds
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
        """Break every connection, like a lost signal; new ones are relayed as before."""
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
                        self._read(key.data)
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

    def _read(self, flow: _Flow) -> None:
        """Read what has arrived: into the hidden buffer if there is one, else the next piece."""
        if not flow.is_shaped or not self.hidden_bytes:
            self._take(flow, time.monotonic())
            return
        data = self._receive(flow, self.hidden_bytes - len(flow.held))
        if not data:
            return
        flow.held += data
        if not flow.pending and flow.held:
            self._start(flow, time.monotonic())
        elif len(flow.held) >= self.hidden_bytes:
            self._selector.unregister(flow.reader)

    def _take(self, flow: _Flow, start_s: float) -> bool:
        """Put the next piece on the link, from `start_s` on; return False if there is none yet."""
        piece = self._receive(flow, self._piece_bytes() if flow.is_shaped else PIECE_BYTES_MAX)
        if not piece:
            return False
        flow.pending = piece
        flow.due_s = start_s + len(piece) / self.rate_bytes_per_s if flow.is_shaped else start_s
        if flow.reader in self._selector.get_map():
            self._selector.unregister(flow.reader)
        return True

    def _start(self, flow: _Flow, start_s: float) -> None:
        """Put the next piece of the hidden buffer on the link, and read again."""
        size = self._piece_bytes()
        flow.pending = bytes(flow.held[:size])
        del flow.held[:size]
        flow.due_s = start_s + len(flow.pending) / self.rate_bytes_per_s
        if flow.reader not in self._selector.get_map():
            self._selector.register(flow.reader, selectors.EVENT_READ, flow)

    def _receive(self, flow: _Flow, size: int) -> bytes:
        """Return up to `size` bytes; none if none have arrived, or the connection has ended."""
        try:
            data = flow.reader.recv(min(size, PIECE_BYTES_MAX))
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._end(flow)
        return data

    def _piece_bytes(self) -> int:
        return min(max(int(self.rate_bytes_per_s * PIECE_S), PIECE_BYTES_MIN), PIECE_BYTES_MAX)

    def _pass_on(self, flow: _Flow) -> None:
        """Forward a piece; the next one starts at once if it was waiting, else when it arrives."""
        now_s = time.monotonic()
        is_waiting = bool(flow.held) or _is_waiting(flow.reader)
        next_s = max(flow.due_s, now_s - CATCH_UP_S) if is_waiting else None
        try:
            count = flow.writer.send(flow.pending)
        except BlockingIOError:
            count = 0
        except OSError:
            self._end(flow)
            return
        flow.pending = flow.pending[count:]
        if flow.pending:
            flow.due_s = now_s + RETRY_S
            return
        # It was not waiting before: when it arrived is unknown, so it starts now.
        start_s = time.monotonic() if next_s is None else next_s
        if flow.held:
            self._start(flow, start_s)
        elif flow.is_shaped and self.hidden_bytes:
            return  # read when it arrives
        elif not self._take(flow, start_s) and flow in self._flows:
            self._selector.register(flow.reader, selectors.EVENT_READ, flow)

    def _end(self, flow: _Flow) -> None:
        """Close both sides of a connection of which one has ended."""
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
