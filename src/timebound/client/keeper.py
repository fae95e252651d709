"""Makes connections to the server, one after the other, and attaches the session to each.

The first attempt reports its failure to the caller. After that a task reconnects whenever the
connection is lost, until `close` is called or the server's reason rules it out.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Final

from timebound.client.backoff import Backoff
from timebound.client.connection import CLOSE_TIMEOUT_S, ClientConnection
from timebound.client.options import ClientOptions
from timebound.client.refusals import FAILURE_FROM, explain
from timebound.client.session import ClientSession
from timebound.errors import ClientError, ConnectError, NotConnected
from timebound.wire.packets import Connack, Disconnect, Packet

logger = logging.getLogger("timebound.client")

# After a connection that lasted this long, the next attempt starts with the shortest delay.
_STABLE_S: Final = 5.0
# Trying again cannot help, or (0x8E, session taken over) would fight another client for the session.
_FINAL_CODES: Final = frozenset({0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8E, 0x9C, 0x9D})


class Keeper:
    """Keeps one session connected."""

    def __init__(self, options: ClientOptions, session: ClientSession, random: Random) -> None:
        self.client_id = options.client_id
        self.connack: Connack | None = None
        self.reconnects = 0
        self.last_failure: ClientError | None = None
        self._options = options
        self._session = session
        self._backoff = Backoff(random, delay_s_max=options.reconnect_delay_s_max)
        self._is_open = False  # between open() and close()
        self._is_first = True
        self._runner: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, and stay connected from then on.

        Raises:
            ConnectError: the server refused, or could not be reached in time.
        """
        if self._is_open:
            raise ConnectError("client is already connected; call disconnect() first")
        await self._stop_runner()
        self._is_open = True
        self._is_first = True
        self._backoff.reset()
        self._session.begin()
        try:
            connection = await self._establish()
        except BaseException as error:
            self._is_open = False
            self._session.end(NotConnected(f"client is not connected ({error})"), is_wanted=True)
            raise
        self._runner = asyncio.create_task(self._run(connection), name=f"timebound-client {self.client_id}")

    async def close(self, packet: Disconnect) -> None:
        """Send the packet, close, and fail all waiting calls."""
        self._is_open = False
        reason = NotConnected("client is not connected (disconnect was called)")
        await self._stop_runner()
        connection = self._session.connection
        if connection is not None:
            connection.close(packet, reason)
        self._session.end(reason, is_wanted=True)
        if connection is not None:
            await connection.wait_closed()

    async def _stop_runner(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            await asyncio.wait([runner])

    async def _establish(self) -> ClientConnection:
        """Make one connection up to its CONNACK.

        Raises:
            ConnectError: with the server's reason code if it refused.
        """
        options = self._options
        where = f"{options.address.host}:{options.address.port}"
        connection = ClientConnection(
            self,
            options.version,
            packet_size_max=options.maximum_packet_size,
            topic_alias_maximum=options.topic_alias_maximum,
            loop=asyncio.get_running_loop(),
        )
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                await self._open_transport(connection)
                connection.send(options.connect_packet(self.client_id, is_first=self._is_first))
                connack = await connection.connack
        except TimeoutError:
            await _drop(connection)
            raise ConnectError(f"{where} did not answer within {options.connect_timeout_s:g}s") from None
        except OSError as error:
            await _drop(connection)
            raise ConnectError(f"{where} cannot be reached ({error})") from error
        except BaseException:
            await _drop(connection)
            raise
        if connack.reason_code >= FAILURE_FROM:
            await _drop(connection)
            reason = explain(connack.reason_code, connack.properties.reason_string or "")
            raise ConnectError(f"{where} refused the client ({reason})", reason_code=connack.reason_code)
        return connection

    async def _open_transport(self, connection: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        address, tls = self._options.address, self._options.tls
        if tls is None:
            await loop.create_connection(lambda: connection, address.host, address.port)
            return
        await loop.create_connection(
            lambda: connection,
            address.host,
            address.port,
            ssl=tls,
            server_hostname=address.host,
            ssl_handshake_timeout=self._options.connect_timeout_s,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )

    async def _run(self, connection: ClientConnection) -> None:
        """Reconnect until closed, or until the server's reason rules it out."""
        loop = asyncio.get_running_loop()
        while True:
            connected_at = loop.time()
            await asyncio.shield(connection.closed)
            assert connection.failure is not None, "a connection that ended has a reason"
            self.last_failure = connection.failure
            if loop.time() - connected_at >= _STABLE_S:
                self._backoff.reset()
            if not self._options.reconnect or connection.failure.reason_code in _FINAL_CODES:
                self._give_up(connection.failure)
                return
            logger.warning("%s; reconnecting", connection.failure)
            following = await self._reconnect()
            if following is None:
                return
            connection = following

    async def _reconnect(self) -> ClientConnection | None:
        """Try until a connection is accepted; return None if the server's reason rules it out."""
        while True:
            await asyncio.sleep(self._backoff.next_delay_s())
            try:
                connection = await self._establish()
            except ConnectError as error:
                self.last_failure = error
                if error.reason_code in _FINAL_CODES:
                    self._give_up(error)
                    return None
                logger.info("%s", error)
            else:
                self.reconnects += 1
                return connection

    def _give_up(self, failure: ClientError) -> None:
        logger.warning("%s; not reconnecting", failure)
        self._is_open = False
        self._session.end(NotConnected(str(failure), reason_code=failure.reason_code), is_wanted=False)

    # Called by the connection

    def connected(self, connection: ClientConnection, connack: Connack) -> None:
        """Attach an accepted connection, in the same turn: messages may follow the CONNACK."""
        if connack.reason_code >= FAILURE_FROM:
            return
        self.connack = connack
        if connack.properties.reason_string:
            logger.warning("connected: %s", connack.properties.reason_string)
        self.client_id = connack.properties.assigned_client_identifier or self.client_id
        keep_alive = connack.properties.server_keep_alive
        connection.start_keep_alive(self._options.keep_alive if keep_alive is None else keep_alive)
        self._session.attach(connection, connack, is_first=self._is_first)
        self._is_first = False

    def handle(self, packet: Packet) -> None:
        self._session.handle(packet)

    def writable(self) -> None:
        self._session.writable()

    def lost(self, connection: ClientConnection) -> None:
        if connection is self._session.connection:
            self._session.detach()


async def _drop(connection: ClientConnection) -> None:
    """Close a connection that got no CONNACK, or was refused."""
    connection.connack.cancel()
    connection.abort(ConnectError("the connection attempt was abandoned"))
    await connection.wait_closed()
