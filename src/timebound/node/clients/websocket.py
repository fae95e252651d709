"""MQTT inside WebSocket frames: an adapter between a transport and a connection.

The `websockets` library does handshake and framing without IO of its own. The adapter is a transport to
the connection and a protocol to the event loop. Decoding frames is expensive, so it is done in slices,
between which other connections get their turn.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from timebound.config.listeners import ListenerConfig
from timebound.node.clients.adapter import Adapter
from timebound.node.clients.connection import Connection
from timebound.units import MILLISECOND

# The library logs every opened connection, but not by whom.
_library_logger = logging.getLogger("timebound.websocket")
_library_logger.setLevel(logging.WARNING)

# MQTT 5, 6: the subprotocol name; older clients offer the second.
SUBPROTOCOLS: Final = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]

# One read of the event loop may contain more small frames than fit a turn: hence turns and slices.
# Time for the frames of all connections before sockets are polled again.
TURN_NS: Final = 2 * MILLISECOND
# Bytes between two readings of the clock. A frame has at least six bytes, so this is up to 340 frames,
# which took 2 ms. With frames of 500 bytes, a KB took 8 us in slices and 6.5 us in one piece.
SLICE_BYTES: Final = 2_048
HEAD_END: Final = b"\r\n\r\n"


class Unframing:
    """Decodes the frames of all connections in turn, for a limited time: one that floods has to wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[WebSocketAdapter] = deque()
        self._is_running = False  # or scheduled, after the next poll of the sockets

    def add(self, adapter: WebSocketAdapter) -> None:
        """Queue a connection with bytes to decode; decode at once if no other waits."""
        if not adapter.is_waiting:
            adapter.is_waiting = True
            self._waiting.append(adapter)
            if not self._is_running:
                self._run()

    def _run(self) -> None:
        self._is_running = True
        until_ns = time.monotonic_ns() + TURN_NS
        while self._waiting:
            adapter = self._waiting.popleft()
            adapter.is_waiting = adapter.take(until_ns)
            if adapter.is_waiting:
                self._waiting.append(adapter)
            if time.monotonic_ns() >= until_ns:
                break
        if self._waiting:
            self._loop.call_soon(self._run)
        else:
            self._is_running = False


class MqttProtocol(ServerProtocol):
    """The server's side of a WebSocket.

    Given as an argument, the function below would refer to the protocol that keeps it.
    """

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Select the first known subprotocol; a client that offers none is served as well."""
        for name in subprotocols:
            if name in SUBPROTOCOLS:
                return Subprotocol(name)
        return None


class WebSocketAdapter(Adapter):
    """One WebSocket: decodes frames into the connection, encodes what it writes.

    The socket is not read while earlier data waits to be decoded, while the connection has paused
    reading, or while pongs pile up that the client does not read.
    """

    def __init__(
        self,
        listener: ListenerConfig,
        packet_size_max: int,
        unframing: Unframing,
        make_connection: Callable[[], Connection],
    ) -> None:
        super().__init__(make_connection())
        self._listener = listener
        self._unframing = unframing
        self._unread = bytearray()
        self._head_tail = b""  # last bytes of an incomplete request
        self._is_asked = False  # the request is complete
        self._is_refused = False  # for a text frame; further data is ignored
        self._is_stopped = False  # by the connection: reading is paused
        self._is_full = False  # the transport has paused writing
        self._has_pongs = False  # written since then
        self._is_reading = True
        self.is_waiting = False  # for its turn of `unframing`
        self._protocol = MqttProtocol(
            subprotocols=SUBPROTOCOLS,
            max_size=packet_size_max,
            logger=_library_logger,
        )

    # --- protocol, for the event loop -----------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._inner.connection_made(self)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._try_on()

    def eof_received(self) -> bool:
        try:
            self._protocol.receive_eof()
            self._send()
        except Exception as error:
            self.failed(error)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.clear()
        # These refer to the protocol, and it to them: left so, all would wait for a full collection.
        self._protocol.parser.close()
        self._protocol.parser_exc = None
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._is_full = True
        self._has_pongs = False
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self._inner.resume_writing()
        self._try_on()

    def failed(self, error: Exception) -> None:
        """End the connection after an internal error in a callback."""
        self._inner.failed(error)

    # --- decoding ---------------------------------------------------------------------

    def _may_take(self) -> bool:
        if self._is_stopped or (self._is_full and self._has_pongs):
            return False
        return not self._transport.is_closing()

    def _try_on(self) -> None:
        """Go on, in a callback of the event loop."""
        try:
            self._go_on()
        except Exception as error:
            self.failed(error)

    def _go_on(self) -> None:
        """Decode what waits, if allowed, and pause or resume reading."""
        if self._unread and self._may_take():
            self._unframing.add(self)
        self._limit_reading()

    def _limit_reading(self) -> None:
        wants_more = not self._unread and self._may_take()
        if wants_more != self._is_reading and not self._transport.is_closing():
            self._is_reading = wants_more
            if wants_more:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def take(self, until_ns: int) -> bool:
        """Decode what was read, until the turn is over; return whether there is more."""
        parts: list[bytes] = []
        try:
            while self._unread and self._may_take() and not self._is_refused:
                data = bytes(self._unread[:SLICE_BYTES])
                if not self._is_asked:
                    data = self._cut_request(data)
                del self._unread[: len(data)]
                self._receive(data, parts)
                if time.monotonic_ns() >= until_ns:
                    break
            if parts:
                self._inner.data_received(b"".join(parts))
            if self._is_refused:
                self._unread.clear()
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
            self._send()
            self._limit_reading()
            return bool(self._unread) and self._may_take()
        except Exception as error:
            self.failed(error)
            return False

    def _cut_request(self, data: bytes) -> bytes:
        """Return the part that belongs to the HTTP request; frames follow once it is answered."""
        joined = self._head_tail + data
        end = joined.find(HEAD_END)
        if end < 0:
            self._head_tail = joined[-len(HEAD_END) + 1 :]
            return data
        self._is_asked = True
        return data[: end + len(HEAD_END) - len(self._head_tail)]

    def _receive(self, data: bytes, parts: list[bytes]) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Frame) and not self._is_refused:
                self._take(event, parts)

    def _answer(self, request: Request) -> None:
        origins = request.headers.get_all("Origin")
        if request.path.partition("?")[0] != self._listener.path:
            self._inner.note_refused(f"path {request.path!r} is not that of the listener")
            response = self._protocol.reject(
                http.HTTPStatus.NOT_FOUND, f"MQTT is served at {self._listener.path}\n"
            )
        elif not self._allows(origins, request.headers.get_all("Host")):
            self._inner.note_refused(f"origin {', '.join(origins)} is not in the listener's origins")
            response = self._protocol.reject(
                http.HTTPStatus.FORBIDDEN, f"origin {', '.join(origins)} is not in the listener's origins\n"
            )
        else:
            response = self._protocol.accept(request)
        self._protocol.send_response(response)

    def _allows(self, origins: list[str], hosts: list[str]) -> bool:
        if not origins:
            return self._listener.allows_origin(None)
        if len(origins) > 1 or len(hosts) != 1:
            return False
        return self._listener.allows_origin(origins[0]) or _is_own_origin(origins[0], hosts[0])

    def _take(self, frame: Frame, parts: list[bytes]) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            if frame.data:
                parts.append(bytes(frame.data))
        elif frame.opcode == Opcode.TEXT:
            self._is_refused = True  # MQTT 5, 6.0.0-1: control packets come in binary frames.
        elif frame.opcode == Opcode.PING:
            self._has_pongs = self._is_full

    def _send(self) -> None:
        written = self._protocol.data_to_send()
        data = b"".join(written)
        if self._transport.is_closing():
            return
        if data:
            self._transport.write(data)
        # An empty piece marks the end of output.
        if b"" in written or self._protocol.close_expected():
            self._transport.close()

    # --- transport, for the connection ----------------------------------------------

    def write(self, data: bytes) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._send()

    def close(self) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._send()
        else:
            self._transport.close()

    def pause_reading(self) -> None:
        self._is_stopped = True
        self._limit_reading()

    def resume_reading(self) -> None:
        self._is_stopped = False
        self._go_on()

    def is_reading(self) -> bool:
        return self._is_reading


def _is_own_origin(origin: str, host: str) -> bool:
    """Whether an origin is the requested address itself, as some clients other than browsers send it.

    No page is served here, so no browser does. But the owner of a page could make a name point here, to
    the same effect; so only addresses count, and `localhost`.
    """
    if origin not in (f"http://{host}", f"https://{host}"):
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name != "localhost":
            ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
