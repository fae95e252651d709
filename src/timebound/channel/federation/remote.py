"""Gateways between processes: frames over a local socket.

One side listens, the other dials, and dials again whenever the connection is lost. Frames are MessagePack
after a length of four bytes. Sending never blocks a channel: what the socket does not accept at once goes
to a bounded queue, which a thread of its own sends.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from threading import Condition, Event, Lock, Thread, get_ident
from typing import Final, Self

import msgspec

from timebound.channel.base.errors import ChannelError
from timebound.channel.base.realtime import become_real_time
from timebound.channel.base.reports import Kind, Report
from timebound.channel.carrier import Carrier
from timebound.channel.federation.gateway import Hub, hub_of
from timebound.channel.federation.link_state import CHANNELS_MAX, Frame

# A path (Unix socket) or a host and port. Nothing is encrypted or authenticated: stay on one machine.
Address = str | tuple[str, int]

FRAME_LENGTH_MAX: Final = 16 * 1024 * 1024
# Bytes that may wait for a slow peer; further events are dropped and counted.
BACKLOG_BYTES_MAX: Final = 16 * 1024 * 1024
CONNECT_TIMEOUT_S: Final = 5.0
# Time between attempts to dial: it doubles up to the maximum while the peer is unreachable.
RETRY_S_MIN: Final = 0.02
RETRY_S_MAX: Final = 2.0
NAME_LENGTH_MAX: Final = 1_024
_JOIN_S: Final = 5.0
# An idle writer waits this long at a time; it is woken when there is work.
_IDLE_WAIT_S: Final = 60.0
_LENGTH: Final = struct.Struct(">I")
_READ_BYTES: Final = 256 * 1024

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Frame)


def pack(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    if len(body) > FRAME_LENGTH_MAX:
        raise ChannelError(f"event has {len(body)} bytes; a gateway carries at most {FRAME_LENGTH_MAX}")
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Cuts a stream of bytes into bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the bodies that are complete now.

        Raises:
            ChannelError: a frame exceeds the limit of length.
        """
        self._buffer += data
        bodies: list[bytes] = []
        position = 0
        while len(self._buffer) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, position)
            if length > FRAME_LENGTH_MAX:
                raise ChannelError(f"peer announces a frame of {length} bytes (limit {FRAME_LENGTH_MAX})")
            end = position + _LENGTH.size + length
            if end > len(self._buffer):
                break
            bodies.append(bytes(self._buffer[position + _LENGTH.size : end]))
            position = end
        del self._buffer[:position]
        return bodies


class SocketLink:
    """One connection: a reader thread, and a writer thread for what could not be sent at once."""

    def __init__(self, hub: Hub, connection: socket.socket, neighbour: str) -> None:
        self._hub = hub
        self._socket = connection
        self._neighbour = neighbour
        self._unpacker = Unpacker()
        self._condition = Condition()
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._is_closed = False
        self.dropped = 0
        self._writer = Thread(target=self._write_backlog, name=f"timebound-to-{neighbour}", daemon=True)
        self._writer.start()

    def send(self, frame: Frame) -> None:
        data = pack(frame)
        with self._condition:
            if self._is_closed:
                return
            if self._backlog:
                self._queue(data)
                return
            try:
                sent = self._socket.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # the reader gets the same error and ends the link
            if sent < len(data):
                self._queue(data[sent:], must=sent > 0)

    def _queue(self, data: bytes, *, must: bool = False) -> None:
        """Keep bytes for later; the rest of a frame already begun must be sent, others may be dropped."""
        if not must and self._backlog_bytes + len(data) > BACKLOG_BYTES_MAX:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:
                message = f"peer is too slow; {self.dropped} frames dropped so far"
                self._hub.channel.report(Report(Kind.QUEUE_FULL, f"gateway to {self._neighbour}", message))
            return
        self._backlog.append(data)
        self._backlog_bytes += len(data)
        self._condition.notify()

    def _write_backlog(self) -> None:
        while True:
            with self._condition:
                while not self._backlog and not self._is_closed:
                    self._condition.wait(_IDLE_WAIT_S)
                if self._is_closed:
                    return
                data = self._backlog[0]
            try:
                self._socket.sendall(data)
            except OSError:
                return
            with self._condition:
                self._backlog.popleft()
                self._backlog_bytes -= len(data)

    def read_all(self) -> None:
        """Pass every frame to the hub until the connection ends."""
        while data := self._socket.recv(_READ_BYTES):
            for body in self._unpacker.feed(data):
                self._hub.receive(self._neighbour, _decoder.decode(body))

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        _shut(self._socket)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # already disconnected
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _receive_exactly(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionError("peer closed the connection before sending its name")
        data += more
    return data


def _exchange_names(connection: socket.socket, own: str) -> str:
    connection.settimeout(CONNECT_TIMEOUT_S)
    name = own.encode()
    connection.sendall(_LENGTH.pack(len(name)) + name)
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    if length > NAME_LENGTH_MAX:
        raise ChannelError(f"peer announces a name of {length} bytes (limit {NAME_LENGTH_MAX})")
    neighbour = _receive_exactly(connection, length).decode()
    connection.settimeout(None)
    return neighbour


class RemoteGateway:
    """Base of both ends: runs connections of one channel until it is closed."""

    def __init__(self, channel: Carrier, address: Address, *, priority: int | None = None) -> None:
        """Prepare a gateway; with a `priority`, events are received at that real-time priority.

        It should be just above that of the lanes. Do not set it for reactive channels, where the receiving
        thread runs the consumers.
        """
        self.address = address
        self._priority = priority
        self._hub = hub_of(channel)
        self._closing = Event()
        self._lock = Lock()
        self._links: list[SocketLink] = []

    def wait_joined(self, limit_s: float = 10.0) -> bool:
        """Wait until a peer is joined and what it wants is routed to it; return False after `limit_s`."""
        until = time.monotonic() + limit_s
        while not self._closing.wait(0.005):
            is_known = any(self._hub.advert_of(name) is not None for name in self._hub.neighbours())
            if is_known and self._hub.has_settled():
                return True
            if time.monotonic() > until:
                return False
        return False

    def _serve(self, connection: socket.socket) -> None:
        """Join the peer at the other end, and carry frames until one side closes the connection."""
        if self._priority is not None:
            become_real_time(self._priority)
        try:
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            neighbour = _exchange_names(connection, self._hub.channel.name)
            link = SocketLink(self._hub, connection, neighbour)
            with self._lock:
                self._links.append(link)
            try:
                self._hub.add_link(neighbour, link)
                link.read_all()
            finally:
                self._hub.remove_link(neighbour, link)
                link.close()
                with self._lock:
                    self._links.remove(link)
        except (OSError, ChannelError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            if not self._closing.is_set():
                message = f"connection at {self.address!r} ended: {error}"
                self._hub.channel.report(Report(Kind.NOTICE, "", message))
        finally:
            connection.close()

    def close(self) -> None:
        """End all connections; the channel itself continues."""
        self._closing.set()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class ListeningGateway(RemoteGateway):
    """Accepts channels of other processes; with port 0 the system chooses one, which `address` then has."""

    def __init__(self, channel: Carrier, address: Address, *, priority: int | None = None) -> None:
        super().__init__(channel, address, priority=priority)
        if isinstance(address, str):
            Path(address).unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX)
        else:
            self._listener = socket.socket(socket.AF_INET)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind(address)
            self._listener.listen(CHANNELS_MAX)
        except OSError:
            self._listener.close()
            raise
        if not isinstance(address, str):
            self.address = self._listener.getsockname()
        self._acceptor = Thread(target=self._accept, name="timebound-gateway", daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            Thread(target=self._serve, args=(connection,), name="timebound-from-peer", daemon=True).start()

    def close(self) -> None:
        super().close()
        _shut(self._listener)
        self._acceptor.join(_JOIN_S)
        if isinstance(self.address, str):
            Path(self.address).unlink(missing_ok=True)


class DiallingGateway(RemoteGateway):
    """Joins a channel of another process, and again whenever the connection is lost."""

    def __init__(self, channel: Carrier, address: Address, *, priority: int | None = None) -> None:
        super().__init__(channel, address, priority=priority)
        self._dialler = Thread(target=self._dial, name="timebound-gateway", daemon=True)
        self._dialler.start()

    def _dial(self) -> None:
        retry_s = RETRY_S_MIN
        while not self._closing.is_set():
            connection = socket.socket(socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET)
            connection.settimeout(CONNECT_TIMEOUT_S)
            try:
                connection.connect(self.address)
            except OSError:
                connection.close()
                retry_s = min(2 * retry_s, RETRY_S_MAX)
            else:
                retry_s = RETRY_S_MIN
                self._serve(connection)
            self._closing.wait(retry_s)

    def close(self) -> None:
        super().close()
        if self._dialler.ident != get_ident():
            self._dialler.join(_JOIN_S)
