"""A server that does what a test says, packet by packet, over a real socket.

For what a well-behaved broker never does: stay silent, forget sessions, break the protocol.
Every wait has a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from timebound.client.client import Client
from timebound.client.connection import ClientConnection
from timebound.client.options import Address, ClientOptions
from timebound.errors import NotConnected
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Packet, Publish, Suback, Subscribe

LIMIT_S = 10.0

P = TypeVar("P", bound=Packet)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something that gives no sign of itself is so."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.001)


class ScriptedPeer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder(0, is_server=True)
        self._received: list[Packet] = []

    @property
    def version(self) -> int:
        return self._decoder.version or 5

    async def receive(self) -> Packet | None:
        """Return the next packet, or None when the client closed."""
        while not self._received:
            async with asyncio.timeout(LIMIT_S):
                data = await self._reader.read(65_536)
            if not data:
                return None
            self._received += self._decoder.feed(data)
            assert self._decoder.error is None, f"the client broke the protocol: {self._decoder.error}"
        return self._received.pop(0)

    async def expect(self, kind: type[P]) -> P:
        packet = await self.receive()
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet!r}"
        return packet

    def send(self, *packets: Packet) -> None:
        """Send packets, all in one piece."""
        self._writer.write(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def accept(self, connack: Connack | None = None) -> Connect:
        connect = await self.expect(Connect)
        self.send(connack or Connack())
        return connect

    async def grant(self, reason_code: int = 0) -> Subscribe:
        """Answer the next packet, a SUBSCRIBE, with one reason code for all filters."""
        packet = await self.expect(Subscribe)
        self.send(Suback(packet.packet_id, [reason_code] * len(packet.entries)))
        return packet

    def cut(self) -> None:
        """End the connection without a word."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._writer.wait_closed()
        except OSError:
            pass  # the client was faster


class ScriptedServer:
    """Listens on a free port and hands out its connections in order."""

    def __init__(self) -> None:
        self.port = 0
        self._server: asyncio.Server | None = None
        self._arrived: asyncio.Queue[ScriptedPeer] = asyncio.Queue()
        self._peers: list[ScriptedPeer] = []

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self._peers:
            await peer.close()

    async def next_peer(self) -> ScriptedPeer:
        """Return the next connection, before its CONNECT is read."""
        async with asyncio.timeout(LIMIT_S):
            return await self._arrived.get()

    async def accept(self, connack: Connack | None = None) -> ScriptedPeer:
        """Return the next connection, with its CONNECT answered."""
        peer = await self.next_peer()
        await peer.accept(connack)
        return peer

    async def connect(self, client: Client, connack: Connack | None = None) -> ScriptedPeer:
        """Connect a client and return the server's end."""
        peer, _ = await asyncio.gather(self.accept(connack), client.connect())
        return peer

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = ScriptedPeer(reader, writer)
        self._peers.append(peer)
        self._arrived.put_nowait(peer)


def limits(**values: object) -> Connack:
    """Return a CONNACK whose properties have these values."""
    connack = Connack()
    for name, value in values.items():
        setattr(connack.properties, name, value)
    return connack


def durable(server: ScriptedServer) -> Client:
    """Return a client that keeps its session and reconnects fast."""
    return Client(port=server.port, client_id="c", session_expiry="1h", reconnect_delay_max="10ms")


async def published(peer: ScriptedPeer) -> Publish:
    return await peer.expect(Publish)


@asynccontextmanager
async def lone_client(
    server: ScriptedServer, *, keep_alive: int = 60
) -> AsyncIterator[tuple[Client, ScriptedPeer]]:
    """Yield a connected client that does not reconnect, and the server's end."""
    client = Client(port=server.port, reconnect=False, keep_alive=keep_alive)
    peer = await server.connect(client)
    try:
        yield client, peer
    finally:
        await client.disconnect()


def options(port: int, **changes: Any) -> ClientOptions:
    """Return what a client without wishes of its own asks for."""
    plain = ClientOptions(
        address=Address("127.0.0.1", port, False, None, None),
        client_id="c",
        username=None,
        password=None,
        tls=None,
        keep_alive=60,
        clean_start=True,
        session_expiry_s=0,
        will=None,
        version=5,
        reconnect=True,
        reconnect_delay_s_max=0.01,
        connect_timeout_s=LIMIT_S,
        operation_timeout_s=LIMIT_S,
        receive_maximum=10,
        maximum_packet_size=0,
        topic_alias_maximum=8,
    )
    return replace(plain, **changes)


class RecordingReceiver:
    """Keeps what a connection hands over."""

    def __init__(self) -> None:
        self.connacks: list[Connack] = []
        self.packets: list[Packet] = []
        self.lost_connections: list[ClientConnection] = []

    def connected(self, connection: ClientConnection, connack: Connack) -> None:
        self.connacks.append(connack)

    def handle(self, packet: Packet) -> None:
        self.packets.append(packet)

    def writable(self) -> None:
        pass

    def lost(self, connection: ClientConnection) -> None:
        self.lost_connections.append(connection)


@asynccontextmanager
async def bare_connection(
    server: ScriptedServer, *, version: int = 5
) -> AsyncIterator[tuple[ClientConnection, ScriptedPeer, RecordingReceiver]]:
    """Yield an accepted connection without a session, the server's end, and what was handed over."""
    loop = asyncio.get_running_loop()
    receiver = RecordingReceiver()
    connection = ClientConnection(receiver, version, packet_size_max=0, topic_alias_maximum=8, loop=loop)
    await loop.create_connection(lambda: connection, "127.0.0.1", server.port)
    connection.send(Connect("c", version))
    peer = await server.accept()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.shield(connection.connack)
    try:
        yield connection, peer, receiver
    finally:
        connection.abort(NotConnected("the test is over"))
        await connection.wait_closed()
