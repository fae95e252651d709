"""Open links to the neighbours that have an address, and reopen them when they fail.

This broker connects as an MQTT 5 client that names itself a broker in CONNECT. If CONNACK names the expected
broker in return, the mesh takes the connection as a link.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any, Final, Protocol

from timebound.config.limits import Limits
from timebound.config.mesh import NeighbourConfig
from timebound.core.broker import Broker
from timebound.errors import ConfigError, ProtocolError
from timebound.linking.codec import BROKER_PROPERTY, link_packet_size_max
from timebound.linking.link import NeighbourLink
from timebound.node.mesh.mesh import Mesh
from timebound.units import SECOND
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Disconnect, Packet
from timebound.wire.properties import Properties
from timebound.wire.reasons import DISCONNECT_CODES_OF_CLIENT, ReasonCode

logger = logging.getLogger("timebound.node")

# Between attempts; a neighbour that is back is noticed after the longest at the latest.
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0


class LinkDriver(Protocol):
    """What a connection to a neighbour needs of the driver."""

    @property
    def limits(self) -> Limits: ...

    @property
    def broker(self) -> Broker: ...

    @property
    def connections(self) -> dict[int, Any]: ...

    @property
    def throttled(self) -> list[Any]: ...

    def next_number(self) -> int: ...

    def now_ns(self) -> int: ...

    def schedule(self) -> None: ...

    def is_storage_behind(self) -> bool: ...

    def remove(self, number: int) -> None: ...

    def failed(self, client: Any, error: Exception) -> None: ...


class Dialled(asyncio.Protocol):
    """A connection to a neighbour that this broker opened."""

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
        self._link: NeighbourLink | None = None
        self._keep_alive_ns = config.keep_alive_s * SECOND
        self._heard_ns = driver.now_ns()
        self._pinged_ns = self._heard_ns
        self._is_throttled = False  # not read until storage has caught up
        self.ended = asyncio.Event()
        self.failure = ""  # why the link is down

    # --- transport callbacks --------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._driver.connections[self._number] = self
        config = self._config
        properties = Properties()
        properties.receive_maximum = self._driver.limits.inflight_max
        properties.maximum_packet_size = self._packet_size_max
        properties.user_properties.append((BROKER_PROPERTY, self._mesh.member.name))
        packet = Connect(
            f"broker-{self._mesh.member.name}",
            keep_alive=config.keep_alive_s,
            username=config.user or None,
            password=self._password,
            properties=properties,
        )
        transport.write(encode(packet, 5))

    def data_received(self, data: bytes) -> None:
        try:
            self._take_bytes(data)
        except Exception as error:
            self._driver.failed(self, error)

    def _take_bytes(self, data: bytes) -> None:
        now_ns = self._driver.now_ns()
        self._heard_ns = now_ns
        packets = self._decoder.feed(data)
        try:
            if self._link is None and packets:
                self._open(packets.pop(0))
            if self._link is not None:
                self._link.receive(packets, now_ns)
            if self._decoder.error is not None:
                raise self._decoder.error
        except ProtocolError as error:
            self.failure = str(error)
            self.close(error.reason_code, str(error))
        if self._driver.is_storage_behind() and not self._is_throttled:
            self._is_throttled = True
            self._transport.pause_reading()
            self._driver.throttled.append(self)
        self._driver.schedule()

    def pause_writing(self) -> None:
        try:
            if self._link is not None:
                self._link.paused()
        except Exception as error:
            self._driver.failed(self, error)

    def resume_writing(self) -> None:
        try:
            if self._link is not None:
                self._link.resumed(self._driver.now_ns())
        except Exception as error:
            self._driver.failed(self, error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.remove(self._number)
        if exc is not None and not self.failure:
            self.failure = str(exc)
        self.ended.set()
        try:
            self._leave()
        except Exception as error:
            self._driver.failed(self, error)

    def _leave(self) -> None:
        if self._link is not None:
            link = self._link
            self._link = None
            self._mesh.closed(link)

    def _open(self, packet: Packet) -> None:
        """Check the answer to CONNECT, and open the link.

        Raises:
            ProtocolError: the packet is not CONNACK, refuses, or is not from the expected broker.
        """
        name = self._config.name
        if not isinstance(packet, Connack):
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, f"{name!r} did not answer CONNECT")
        if packet.reason_code:
            reason = packet.properties.reason_string or f"reason code 0x{packet.reason_code:02x}"
            raise ProtocolError(packet.reason_code, f"{name!r} refused the link: {reason}")
        called = dict(packet.properties.user_properties).get(BROKER_PROPERTY, "")
        if called != name:
            raise ProtocolError(
                ReasonCode.NOT_AUTHORIZED, f"expected broker {name!r}, but the peer is {called!r}"
            )
        if self._mesh.gives_way(name):
            self.close(ReasonCode.SUCCESS, "the neighbour has already opened a link")
            return
        granted = packet.properties
        if granted.server_keep_alive:
            self._keep_alive_ns = granted.server_keep_alive * SECOND
        self._link = self._mesh.make_link(
            name,
            self,
            self._number,
            self._transport,
            granted.receive_maximum or 65_535,
            granted.maximum_packet_size or 0,
            is_dialled=True,
        )
        self._mesh.open(self._link)

    # --- as the driver and the link see it ------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._driver.broker.counters.bytes_sent += len(data)
            self._transport.write(data)

    def close(self, reason_code: int, reason: str) -> None:
        """Close the connection with DISCONNECT."""
        if self._transport is None or self._transport.is_closing():
            return
        logger.info("closing the connection to broker %r: %s", self._config.name, reason)
        properties = Properties()
        properties.reason_string = reason
        # This side is the client, which may not send all codes (MQTT 5, 3.14.2.1).
        if reason_code == ReasonCode.SERVER_SHUTTING_DOWN:
            reason_code = ReasonCode.NORMAL_DISCONNECTION
        elif reason_code not in DISCONNECT_CODES_OF_CLIENT:
            reason_code = ReasonCode.UNSPECIFIED_ERROR
        self._transport.write(encode(Disconnect(reason_code, properties), 5))
        self._transport.close()

    def cut(self) -> None:
        """End the connection after it could not be closed in order."""
        try:
            self._leave()
        finally:
            self.abort()

    def name(self) -> str:
        return f"broker {self._config.name!r}"

    def abort(self) -> None:
        self._transport.abort()

    def flush(self) -> None:
        """Write the confirmations that storage has released; copies are written by the mesh."""
        if self._link is not None:
            self._link.write_answers()

    def read_again(self) -> None:
        """Read on: storage has caught up."""
        self._is_throttled = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def patrol(self, now_ns: int) -> None:
        """Ping the neighbour, or abort if it was silent too long; called about once a second."""
        if now_ns - self._heard_ns > self._keep_alive_ns * 3 // 2:
            self.failure = "silent for longer than the keep-alive allows"
            self._transport.abort()
        elif self._link is not None and now_ns - self._pinged_ns >= self._keep_alive_ns // 2:
            self._pinged_ns = now_ns
            self._link.ping()


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
        # Log the same failure once; after a link that worked, log any.
        self._failure = dialled.failure
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX) if dialled.failure else RETRY_S_MIN

    async def _connect(self, dialled: Dialled) -> None:
        config = self._config
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: dialled, config.host, config.port, ssl=self._context)


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
