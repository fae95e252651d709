"""MQTT inside WebSocket frames: an adapter between a transport and a connection.

The `websockets` library does the handshake and the framing without IO of its own. To the
connection this looks like a transport; to the event loop it is the protocol. Frames cost more than bytes, so
they are taken apart in slices, between which others have their turn.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import logging
import time
from collections import deque
from collections.abc import Callable
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

logger = logging.getLogger("timebound.node")
# The library says of every client that its connection is open, but not whose.
_library_logger = logging.getLogger("timebound.websocket")
_library_logger.setLevel(logging.WARNING)

# MQTT 5, 6: the subprotocol name; older clients ask for the second.
SUBPROTOCOLS: Final = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]

# What the event loop reads at once is, as small frames, more than a turn's work: hence turns and slices.
# Between two looks at the sockets, for the frames of all connections.
TURN_NS: Final = 2 * MILLISECOND
# Between two looks at the clock. A frame has at least six bytes, so it is up to 340 frames, which
# took 2 ms. Of frames with 500 bytes a KB took 8 us so, and 6.5 us in one piece.
SLICE_BYTES: Final = 2_048
HEAD_END: Final = b"\r\n\r\n"


class Unframing:
    """Takes frames apart, of all connections in turn and for a limited time: one that sends floods waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[WebSocketAdapter] = deque()
        self._is_running = False  # or will be, when the sockets have been looked at

    def add(self, adapter: WebSocketAdapter) -> None:
        """A connection has bytes to take apart; done at once unless others wait."""
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


class WebSocketAdapter(Adapter):
    """One WebSocket: decodes frames into the connection, encodes what it writes.

    The socket is not read while something that was read waits to be taken apart, while the connection
    does not want to read, or while answers to pings pile up that the client does not read.
    """

    def __init__(
        self,
        listener: ListenerConfig,
        packet_size_max: int,
        unframing: Unframing,
        make_connection: Callable[[], Connection],
    ) -> None:
        super().__init__()
        self._listener = listener
        self._unframing = unframing
        self._connection = make_connection()
        self._unread = bytearray()
        self._head_tail = b""  # the last bytes of a request whose end has not come yet
        self._is_asked = False  # the request is complete
        self._is_refused = False  # sent text; what follows is not looked at
        self._is_stopped = False  # the connection does not want to read
        self._is_full = False  # the transport has enough to write
        self._has_pongs = False  # since then it was given answers to pings
        self._is_reading = True
        self.is_waiting = False  # for its turn of `unframing`
        self._protocol = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            select_subprotocol=_select_subprotocol,
            max_size=packet_size_max,
            logger=_library_logger,
        )

    # --- protocol, for the event loop -----------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._go_on()

    def eof_received(self) -> bool:
        try:
            self._protocol.receive_eof()
            self._send()
        except Exception as error:
            self.failed(error)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.clear()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._is_full = True
        self._has_pongs = False
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self._connection.resume_writing()
        self._go_on()

    def failed(self, error: Exception) -> None:
        """An error of the broker's own struck in a callback: the connection ends."""
        self._connection.failed(error)

    # --- taking apart what was read -------------------------------------------------

    def _may_take(self) -> bool:
        if self._is_stopped or (self._is_full and self._has_pongs):
            return False
        return not self._transport.is_closing()

    def _go_on(self) -> None:
        """Take apart what waits, if it may be, and read the socket or do not."""
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
        """Take apart what was read, until it is or the turn is over; True if there is more."""
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
                self._connection.data_received(b"".join(parts))
            if self._is_refused:
                self._unread.clear()
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
            self._send()
            self._limit_reading()
        except Exception as error:
            self.failed(error)
            return False
        return bool(self._unread) and self._may_take()

    def _cut_request(self, data: bytes) -> bytes:
        """The part that belongs to the HTTP request: what comes behind it are frames, once it is answered."""
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
            response = self._protocol.reject(
                http.HTTPStatus.NOT_FOUND, f"MQTT is served at {self._listener.path}\n"
            )
        elif not self._allows(origins, request.headers.get_all("Host")):
            logger.warning("refused a web page of origin %s on %s", ", ".join(origins), self._listener.label)
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
        # An empty piece stands for the end of what is sent.
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
    """Whether an origin is the address that is asked for: some clients that are no browsers say so.

    No page comes from here, so no browser does. But a name could be made to point here by a
    page's owner, to the same effect; so only addresses count, and `localhost`.
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


def _select_subprotocol(protocol: ServerProtocol, offered: Any) -> Subprotocol | None:
    """Take the first subprotocol we know; a client that names none is served all the same."""
    for name in offered:
        if name in SUBPROTOCOLS:
            return Subprotocol(name)
    return None
