"""Clients of a broker in process, over each kind of transport: plain, WebSocket, TLS, and both.

A client holds the outermost protocol, the connection behind it, and the transport below. It frames or
encrypts what it sends, and decodes what was written to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from tests.conftest import Certificates
from tests.node.doubles import House, RecordingTransport
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from timebound.config.listeners import ListenerConfig
from timebound.node.clients.connection import Connection
from timebound.node.clients.tls import TlsAdapter
from timebound.node.clients.websocket import Unframing, WebSocketAdapter
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Packet

# More than the longest request takes when each of its steps has a turn of its own.
TURNS_MAX = 10_000


class PlainClient:
    """A client whose packets go to the connection as they are."""

    def __init__(self, house: House, host: str) -> None:
        self.house = house
        self.connection = Connection(house.driver, house.door)
        self.transport = RecordingTransport(host)
        self.protocol: Any = self.wrap(self.connection)
        self.protocol.connection_made(self.transport)
        self.open()

    def wrap(self, connection: Connection) -> Any:
        """Return the protocol that the event loop would call."""
        return connection

    def open(self) -> None:
        """Go through the handshakes below MQTT."""

    def send(self, *packets: Packet) -> None:
        if not self.transport.is_closed:
            self.protocol.data_received(self.encoded(b"".join(encode(packet, 5) for packet in packets)))
        # A SUBSCRIBE may take longer than a turn, on a busy machine.
        for _ in range(TURNS_MAX):
            if not self.connection.is_deferred:
                return
            self.house.driver.turn()
        raise AssertionError("a long request was never continued to its end")

    def encoded(self, data: bytes) -> bytes:
        return data

    def packets(self) -> list[Packet]:
        """Take what was written to the client since the last call."""
        data = self.decoded(bytes(self.transport.written))
        self.transport.written.clear()
        decoder = Decoder(5, is_server=False)
        found = decoder.feed(data)
        assert decoder.error is None, decoder.error
        return found

    def decoded(self, data: bytes) -> bytes:
        return data

    def lose(self) -> None:
        """The transport is closed."""
        if self.connection._transport is not None:
            self.protocol.eof_received()
            self.protocol.connection_lost(None)


class WebSocketClient(PlainClient):
    """A client whose packets come in frames."""

    def wrap(self, connection: Connection) -> Any:
        self.client = ClientProtocol(parse_uri("ws://127.0.0.1/mqtt"))
        unframing = Unframing(asyncio.get_running_loop())
        self.listener = ListenerConfig(path="/mqtt")
        return WebSocketAdapter(self.listener, 1 << 20, unframing, lambda: connection)

    def open(self) -> None:
        self.client.send_request(self.client.connect())
        self.protocol.data_received(b"".join(self.client.data_to_send()))
        self.decoded(bytes(self.transport.written))
        self.transport.written.clear()

    def encoded(self, data: bytes) -> bytes:
        # Two frames and a PING, so that all kinds of them are met.
        self.client.send_binary(data[:1])
        self.client.send_ping(b"")
        self.client.send_binary(data[1:])
        return b"".join(self.client.data_to_send())

    def decoded(self, data: bytes) -> bytes:
        self.client.receive_data(data)
        frames = [event for event in self.client.events_received() if isinstance(event, Frame)]
        return b"".join([bytes(frame.data) for frame in frames if frame.opcode is Opcode.BINARY])


class TlsClient(PlainClient):
    """A client that encrypts; `contexts` are those of the server and of the client."""

    def __init__(self, house: House, host: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
        self.contexts = contexts
        super().__init__(house, host)

    def wrap(self, connection: Connection) -> Any:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = self.contexts[1].wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        return TlsAdapter(self.contexts[0], self.house.driver, "here", lambda: connection)

    def open(self) -> None:
        for _ in range(6):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            if data := self.outgoing.read():
                self.protocol.data_received(data)
            self.incoming.write(bytes(self.transport.written))
            self.transport.written.clear()

    def encoded(self, data: bytes) -> bytes:
        with contextlib.suppress(ssl.SSLError):  # the handshake has failed: it is not sent
            self.client.write(data)
        return self.outgoing.read()

    def decoded(self, data: bytes) -> bytes:
        self.incoming.write(data)
        parts: list[bytes] = []
        with contextlib.suppress(ssl.SSLError):  # nothing more to read, or the end
            while part := self.client.read(1 << 16):
                parts.append(part)
        return b"".join(parts)


MakeClient = Callable[[House, str], PlainClient]


def client_maker(kind: str, certificates: Certificates) -> MakeClient:
    """Return what makes clients of a kind: `plain`, `websocket` or `tls`."""
    if kind == "plain":
        return PlainClient
    if kind == "websocket":
        return WebSocketClient
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.certificate, certificates.key)
    contexts = server, ssl.create_default_context(cafile=str(certificates.ca))
    return lambda house, host: TlsClient(house, host, contexts)
