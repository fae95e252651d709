"""MQTT inside WebSocket frames: an adapter between a transport and a connection.

The `websockets` library does the handshake and the framing without IO of its own. To the
connection this looks like a transport; to the event loop it is the protocol.
"""

from __future__ import annotations

import http
import ipaddress
import logging
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from timebound.node.config_values import ListenerConfig
from timebound.node.connection import Connection

logger = logging.getLogger("timebound.node")
# The library says of every client that its connection is open, but not whose.
_library_logger = logging.getLogger("timebound.websocket")
_library_logger.setLevel(logging.WARNING)

# MQTT 5, 6: the subprotocol name; older clients ask for the second.
SUBPROTOCOLS: Final = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]


class WebSocketAdapter:
    """One WebSocket: decodes frames into the connection, encodes what it writes."""

    def __init__(
        self, listener: ListenerConfig, packet_size_max: int, make_connection: Callable[[], Connection]
    ) -> None:
        self._listener = listener
        self._make_connection = make_connection
        self._connection: Connection | None = None
        self._transport: Any = None
        self._is_refused = False  # sent text; what follows is not looked at
        self._protocol = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            select_subprotocol=_select_subprotocol,
            max_size=packet_size_max,
            logger=_library_logger,
        )

    # --- protocol, for the event loop -----------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connection = self._make_connection()
        self._connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Frame) and not self._is_refused:
                self._take(event)
        self._send()

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        self._send()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

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

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            if self._connection is not None:
                self._connection.data_received(bytes(frame.data))
        elif frame.opcode == Opcode.TEXT:
            # MQTT 5, 6.0.0-1: control packets come in binary frames.
            self._is_refused = True
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()
        if self._protocol.close_expected():
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

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int) -> None:
        self._transport.set_write_buffer_limits(high)

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)


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
