"""Open links to the neighbours that have an address, and reopen them when they fail.

This broker connects as an MQTT 5 client that names itself a broker in CONNECT. If CONNACK names the expected
broker in return, the connection is handed over to a link (`connection.py`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any, Final

from timebound.config.mesh import NeighbourConfig
from timebound.errors import ConfigError, ProtocolError
from timebound.linking.codec import link_packet_size_max
from timebound.linking.greeting import greeting_properties, read_greeting
from timebound.linking.mesh import Mesh
from timebound.node.mesh.connection import (
    BufferedReads,
    Handshake,
    LinkConnection,
    LinkDriver,
    disconnect_frame,
)
from timebound.units import SECOND
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Packet
from timebound.wire.properties import Properties
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.node")

# Between attempts; a neighbour that is back is noticed after the longest at the latest.
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0


class Dialled(BufferedReads):
    """A connection to a neighbour that this broker opened, until it is handed over to a link."""

    def __init__(
        self, mesh: Mesh, config: NeighbourConfig, driver: LinkDriver, password: bytes | None
    ) -> None:
        self._mesh = mesh
        self._config = config
        self._driver = driver
        self._password = password
        self._number = driver.next_number()
        self._packet_size_max = link_packet_size_max(driver.limits.packet_size_max)
        self._decoder = Decoder(5, is_server=False, packet_size_max=self._packet_size_max)
        self._transport: Any = None
        self._dialled_ns = driver.now_ns()
        self.ended = asyncio.Event()
        self.failure = ""  # why there is no link

    # --- transport callbacks --------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._driver.connections[self._number] = self
        config = self._config
        properties = Properties()
        properties.receive_maximum = self._driver.limits.inflight_max
        properties.maximum_packet_size = self._packet_size_max
        properties.user_properties += greeting_properties(self._mesh.member.name)
        packet = Connect(
            f"broker-{self._mesh.member.name}",
            keep_alive=config.keep_alive_s,
            username=config.user or None,
            password=self._password,
            properties=properties,
        )
        self._write(encode(packet, 5))

    def data_received(self, data: bytes) -> None:
        try:
            self._take_bytes(data)
        except Exception as error:
            self._driver.failed(self, error)

    def _take_bytes(self, data: bytes) -> None:
        self._driver.broker.counters.bytes_received += len(data)
        packets = self._decoder.feed(data)
        try:
            if packets:
                self._open(packets[0], packets[1:])
            elif self._decoder.error is not None:
                raise self._decoder.error
        except ProtocolError as error:
            self.failure = str(error)
            self.close(error.reason_code, str(error))
        self._driver.schedule()

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.remove(self._number)
        self._end(self.failure or (str(exc) if exc is not None else ""))

    def _end(self, failure: str) -> None:
        self.failure = failure
        self.ended.set()

    def _open(self, packet: Packet, rest: list[Packet]) -> None:
        """Check the answer to CONNECT, and hand the connection over to a link.

        Raises:
            ProtocolError: the packet is not CONNACK, refuses, or is not from the expected broker.
        """
        name = self._config.name
        granted = self._check(packet, name)
        if self._mesh.gives_way(name):
            self.close(ReasonCode.SUCCESS, "the neighbour has already opened a link")
            return
        handshake = Handshake(
            read_greeting(granted.user_properties),
            self._number,
            self._transport,
            self._decoder,
            keep_alive_ns=(granted.server_keep_alive or self._config.keep_alive_s) * SECOND,
            receive_maximum=granted.receive_maximum or 65_535,
            packet_size_max=granted.maximum_packet_size or 0,
            is_dialled=True,
        )
        LinkConnection(self._driver, self._mesh, handshake, self._end).start(handshake, rest)

    def _check(self, packet: Packet, name: str) -> Properties:
        """Return what CONNACK grants, if it is from the expected broker."""
        if not isinstance(packet, Connack):
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, f"{name!r} did not answer CONNECT")
        if packet.reason_code:
            reason = packet.properties.reason_string or f"reason code 0x{packet.reason_code:02x}"
            raise ProtocolError(packet.reason_code, f"{name!r} refused the link: {reason}")
        called = read_greeting(packet.properties.user_properties).name
        if called != name:
            raise ProtocolError(
                ReasonCode.NOT_AUTHORIZED, f"expected broker {name!r}, but the peer is {called!r}"
            )
        return packet.properties

    # --- as the driver sees it --------------------------------------------------------

    def _write(self, data: bytes) -> None:
        self._driver.broker.counters.bytes_sent += len(data)
        self._transport.write(data)

    def close(self, reason_code: int, reason: str) -> None:
        """Close the connection with DISCONNECT."""
        if self._transport is None or self._transport.is_closing():
            return
        logger.info("closing the connection to broker %r: %s", self._config.name, reason)
        self._write(disconnect_frame(reason_code, reason, is_client=True))
        self._transport.close()

    def cut(self) -> None:
        """End the connection after it could not be closed in order."""
        self.abort()

    def name(self) -> str:
        return f"broker {self._config.name!r}"

    def abort(self) -> None:
        self._transport.abort()

    def flush(self) -> None:
        """Write nothing: without a link there are no answers."""

    def read_again(self) -> None:
        """Go on: reading is not paused before there is a link."""

    def patrol(self, now_ns: int) -> None:
        """Give up a neighbour that does not answer; called about once a second."""
        if now_ns - self._dialled_ns > self._config.keep_alive_s * SECOND * 3 // 2:
            self.failure = self.failure or "CONNECT was not answered in time"
            self.abort()


class Dialler:
    """Keep the link to one neighbour open."""

    def __init__(self, mesh: Mesh, config: NeighbourConfig, driver: LinkDriver) -> None:
        """Read the certificates and the password of the link.

        Raises:
            ConfigError: a certificate or password cannot be read.
        """
        self._mesh = mesh
        self._config = config
        self._driver = driver
        self._context = client_context(config)
        self._password = read_password(config)
        self._retry_s = RETRY_S_MIN
        self._failure = ""

    async def run(self) -> None:
        """Open the link whenever it is down, until cancelled."""
        while True:
            if self._config.name not in self._mesh.links:
                await self._dial()
            await asyncio.sleep(self._retry_s)

    async def _dial(self) -> None:
        dialled = Dialled(self._mesh, self._config, self._driver, self._password)
        try:
            await asyncio.wait_for(self._connect(dialled), self._driver.limits.connect_timeout_s)
            await dialled.ended.wait()
        except (OSError, TimeoutError) as error:
            dialled.failure = str(error) or "no answer in time"
        if dialled.failure and dialled.failure != self._failure:
            logger.warning("no link to broker %r: %s", self._config.name, dialled.failure)
        # Log the same failure once, until a link has worked.
        self._failure = dialled.failure
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX) if dialled.failure else RETRY_S_MIN

    async def _connect(self, dialled: Dialled) -> None:
        config = self._config
        loop = asyncio.get_running_loop()
        protocol: Any = dialled  # by its methods
        await loop.create_connection(lambda: protocol, config.host, config.port, ssl=self._context)


def client_context(config: NeighbourConfig) -> ssl.SSLContext | None:
    """Return the TLS context of a link; None without TLS.

    Raises:
        ConfigError: the certificates cannot be used.
    """
    tls = config.tls
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(tls.ca))
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"certificates for {config.name!r} cannot be used: {error}", key="neighbours"
        ) from error
    return context


def read_password(config: NeighbourConfig) -> bytes | None:
    """Return the password for a neighbour, without the line end that editors add.

    Raises:
        ConfigError: its file cannot be read.
    """
    if config.password_file is None:
        return None
    try:
        return config.password_file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        text = f"password for {config.name!r} cannot be read: {error.strerror}"
        raise ConfigError(text, key="neighbours.password_file") from error
