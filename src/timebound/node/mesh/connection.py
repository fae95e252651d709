"""A connection to a neighbour broker after the handshake, whichever side opened it.

The handshake is that of a client (`clients/neighbour.py` accepts it, `dial.py` asks for it). Then the
transport is handed to a `LinkConnection` by `set_protocol`, with the decoder, which may hold the beginning
of a packet, and the packets that were read already. It passes what it reads to the link, and ends it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from mypy_extensions import mypyc_attr

from timebound.config.limits import Limits
from timebound.core.broker import Broker
from timebound.errors import ProtocolError
from timebound.linking.greeting import Greeting
from timebound.linking.link import NeighbourLink
from timebound.linking.mesh import Mesh
from timebound.node.input.buffer import READ_BUFFER, take_read
from timebound.node.input.input import Input
from timebound.node.links.meter import LinkMeter
from timebound.node.mesh.reader import NeighbourReader
from timebound.units import SECOND
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Disconnect, Packet
from timebound.wire.properties import Properties
from timebound.wire.reasons import DISCONNECT_CODES_OF_CLIENT, ReasonCode

logger = logging.getLogger("timebound.node")

# A read of half the buffer means that more is waiting; others get their turn first.
FULL_READ_BYTES: Final = 32 * 1024
# After a smaller read the turn follows at once, as for clients.
SMALL_READ_BYTES: Final = 4 * 1024
# A neighbour that does not read its DISCONNECT is cut off after this time.
CLOSE_TIMEOUT_NS: Final = 5 * SECOND


class LinkDriver(Protocol):
    """What a connection to a neighbour needs of the driver."""

    @property
    def limits(self) -> Limits: ...

    @property
    def broker(self) -> Broker: ...

    @property
    def connections(self) -> dict[int, Any]: ...

    @property
    def input(self) -> Input: ...

    @property
    def throttled(self) -> list[Any]: ...

    @property
    def is_stopped(self) -> bool: ...

    def next_number(self) -> int: ...

    def now_ns(self) -> int: ...

    def schedule(self) -> None: ...

    def turn_now(self) -> None: ...

    def is_storage_behind(self) -> bool: ...

    def remove(self, number: int) -> None: ...

    def failed(self, client: Any, error: Exception) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)  # `Dialled` is not compiled
class BufferedReads:
    """A buffered protocol that all its connections read through one buffer.

    It is an asyncio protocol by its methods. Protocols change on an open transport only between those that
    read alike: an event loop may have chosen the way of reading before.
    """

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        return READ_BUFFER

    def buffer_updated(self, count: int) -> None:
        self.data_received(take_read(count))

    @abstractmethod
    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Note that the transport is full."""

    def resume_writing(self) -> None:
        """Note that the transport has room again."""


class Handshake:
    """The result of a handshake: what is handed over with the transport."""

    def __init__(
        self,
        greeting: Greeting,
        number: int,
        transport: Any,
        decoder: Decoder,
        *,
        keep_alive_ns: int,
        receive_maximum: int,
        packet_size_max: int,
        is_dialled: bool,
    ) -> None:
        self.greeting = greeting  # of the neighbour
        self.number = number  # of the connection, for the driver
        self.transport = transport
        self.decoder = decoder
        self.keep_alive_ns = keep_alive_ns  # 0 = none
        self.receive_maximum = receive_maximum  # of the neighbour, as `packet_size_max`
        self.packet_size_max = packet_size_max
        self.is_dialled = is_dialled  # this side is the client of the connection


class LinkConnection(BufferedReads):
    """The protocol of one link, from the end of the handshake to the end of the transport."""

    def __init__(
        self, driver: LinkDriver, mesh: Mesh, handshake: Handshake, on_end: Callable[[str], None]
    ) -> None:
        """Take over the transport; `on_end` gets the reason when it has ended, empty if all is well."""
        self._driver = driver
        self._mesh = mesh
        self._name = handshake.greeting.name
        self._number = handshake.number
        self._transport = handshake.transport
        self._decoder = handshake.decoder
        self._keep_alive_ns = handshake.keep_alive_ns
        self._is_dialled = handshake.is_dialled
        self._on_end = on_end
        self._opened_ns = driver.now_ns()
        self._heard_ns = self._opened_ns
        self._pinged_ns = self._opened_ns
        self._is_throttled = False  # not read until the turn is over and storage has caught up
        self._is_full = False  # not read until what was read is in the input queues
        self._reader: NeighbourReader | None = None
        self._is_closed = False
        self.failure = ""  # why the link is down
        self._link: NeighbourLink | None = None
        driver.connections[self._number] = self
        self._transport.set_protocol(self)

    def start(self, handshake: Handshake, packets: list[Packet]) -> None:
        """Open the link, and take what was read with the handshake."""
        try:
            self._open(handshake)
            self._take(packets, self._opened_ns)
            self._driver.schedule()
        except Exception as error:
            self.failed(error)

    def _open(self, handshake: Handshake) -> None:
        self._link = link = self._mesh.make_link(
            self._name,
            self,
            self._number,
            lambda delay: LinkMeter(handshake.transport, delay),
            handshake.receive_maximum,
            handshake.packet_size_max,
            is_dialled=handshake.is_dialled,
            version=handshake.greeting.version,
        )
        driver = self._driver
        self._reader = link.inlet = NeighbourReader(
            self._name,
            driver.broker.entrance,
            driver.broker.counters,
            link.session,
            partial(self._mesh.on_copy, link),
            driver.now_ns,
            self._hold_reading,
            self.failed,
        )
        for name in handshake.greeting.unknown:
            self._mesh.on_unknown(link, f"property {name!r} of the greeting")
        self._mesh.open(link)

    # --- transport callbacks --------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self._take_bytes(data)
        except Exception as error:
            self.failed(error)

    def _take_bytes(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._driver.broker.counters.bytes_received += len(data)
        self._heard_ns = self._driver.now_ns()
        self._take(self._decoder.feed(data), self._heard_ns)
        is_full = len(data) >= FULL_READ_BYTES
        if (is_full or self._driver.is_storage_behind()) and not self._is_throttled and not self._is_closed:
            self._is_throttled = True
            if not self._is_full:
                self._transport.pause_reading()
            self._driver.throttled.append(self)
        if len(data) <= SMALL_READ_BYTES:
            self._driver.turn_now()
        else:
            self._driver.schedule()

    def _take(self, packets: list[Packet], now_ns: int) -> None:
        try:
            if self._link is not None:
                self._link.receive(packets, now_ns)
            self._announce(now_ns)
            if self._decoder.error is not None:
                raise self._decoder.error
        except ProtocolError as error:
            self.failure = str(error)
            self.close(error.reason_code, str(error))
            self._driver.schedule()

    def _announce(self, now_ns: int) -> None:
        """Announce the copies that were read to the input."""
        if self._reader is not None and self._reader.has_packets():
            self._driver.input.begin(now_ns)
            self._driver.input.arrive(self._reader)

    def _hold_reading(self, is_full: bool) -> None:
        """Leave the socket unread while copies wait outside the input queues."""
        if is_full == self._is_full:
            return
        self._is_full = is_full
        if self._is_throttled or self._transport.is_closing():
            return
        if is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        try:
            if self._link is not None:
                self._link.paused()
        except Exception as error:
            self.failed(error)

    def resume_writing(self) -> None:
        try:
            if self._link is not None:
                self._link.resumed(self._driver.now_ns())
        except Exception as error:
            self.failed(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.remove(self._number)
        if exc is not None and not self.failure:
            self.failure = str(exc)
        self._on_end(self.failure)
        if not self._is_closed:
            logger.info("%s disconnected without DISCONNECT: %s", self._described(), exc or "it has ended")
        try:
            self._leave()
        except Exception as error:
            self.failed(error)

    def _leave(self) -> None:
        """End the link; what it carried goes another way."""
        self._is_closed = True
        link = self._link
        self._link = None
        if self._reader is not None:
            self._reader.end()
            self._reader = None
        if link is not None and not self._driver.is_stopped:
            self._mesh.closed(link)

    # --- as the driver and the link see it ------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._driver.broker.counters.bytes_sent += len(data)
            self._transport.write(data)

    def flush(self) -> None:
        """Write the confirmations that storage has released; copies are written by the mesh."""
        if self._link is not None:
            self._link.write_answers()

    def read_again(self) -> None:
        """Resume reading after the turn, since storage keeps up."""
        self._is_throttled = False
        if not self._is_full and not self._transport.is_closing():
            self._transport.resume_reading()

    def patrol(self, now_ns: int) -> None:
        """Ping the neighbour, or give it up if it was silent too long; called about once a second."""
        silent_ns = now_ns - self._heard_ns
        if self._is_closed:
            if silent_ns > CLOSE_TIMEOUT_NS:
                self._transport.abort()
        elif self._keep_alive_ns and silent_ns > self._keep_alive_ns * 3 // 2:
            # Data that waits unread here means that the neighbour is not silent.
            if not self._is_throttled and not self._is_full:
                self._give_up()
        elif self._is_dialled and now_ns - self._pinged_ns >= self._keep_alive_ns // 2:
            self._pinged_ns = now_ns
            if self._link is not None:
                self._link.ping()

    def _give_up(self) -> None:
        self.failure = "silent for longer than the keep-alive allows"
        if self._is_dialled:
            self.abort()  # a client has no code for it
        else:
            self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, self.failure)

    def close(self, reason_code: int, reason: str) -> None:
        """Close the connection with DISCONNECT."""
        if self._is_closed:
            return
        level = logging.INFO
        if reason_code not in (ReasonCode.SUCCESS, ReasonCode.SERVER_SHUTTING_DOWN):
            level = logging.WARNING
        logger.log(level, "closing %s: %s (0x%02x)", self._described(), reason, reason_code)
        self._heard_ns = self._driver.now_ns()  # from here on it has time to read DISCONNECT
        try:
            if self._link is not None:
                self._link.write_answers()
            self.write(disconnect_frame(reason_code, reason, is_client=self._is_dialled))
            self._leave()
        finally:
            self._is_closed = True
            self._transport.close()

    def cut(self) -> None:
        """End the connection after it could not be closed in order."""
        try:
            self._leave()
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop the connection without sending anything."""
        self._transport.abort()

    def name(self) -> str:
        return f"broker {self._name!r}"

    def failed(self, error: Exception) -> None:
        """End the connection after an internal error in a callback."""
        self._driver.failed(self, error)

    def _described(self) -> str:
        """Return name and duration, for logs."""
        return f"{self.name()} after {(self._driver.now_ns() - self._opened_ns) / SECOND:.1f} s"


def disconnect_frame(reason_code: int, reason: str, *, is_client: bool) -> bytes:
    """Return a DISCONNECT; a client may not send all codes (MQTT 5, 3.14.2.1)."""
    properties = Properties()
    properties.reason_string = reason
    if is_client and reason_code == ReasonCode.SERVER_SHUTTING_DOWN:
        reason_code = ReasonCode.NORMAL_DISCONNECTION
    elif is_client and reason_code not in DISCONNECT_CODES_OF_CLIENT:
        reason_code = ReasonCode.UNSPECIFIED_ERROR
    return encode(Disconnect(reason_code, properties), 5)
