"""One network connection: bytes to packets and back, write batching, keep-alive.

It lives from TCP connect to its end and is never reused; `session.py` has what outlasts it.
The first write of a loop turn is sent at once, the later ones of the turn together: a single
message is not delayed, and a burst does not cost one system call per message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol, cast

from timebound.client.refusals import explain
from timebound.errors import ClientError, ConnectError, NotConnected, ProtocolError
from timebound.wire.codec import PACKET_SIZE_MAX, Decoder, encode
from timebound.wire.packets import Auth, Connack, Disconnect, Packet, Pingreq, Pingresp, Publish
from timebound.wire.properties import Properties

# Bytes collected in one loop turn before they are sent in the middle of it.
_BATCH_BYTES_MAX: Final = 64 * 1024
# A server counts the keep-alive from when it read our last packet: a quarter is left for the network.
_PING_AT: Final = 0.75
# A live server answers a PINGREQ in a round trip; satellites need about a second.
PING_TIMEOUT_S: Final = 10.0
# Limit for a closing connection to hand its last bytes to the network.
CLOSE_TIMEOUT_S: Final = 5.0
_TOPIC_ALIAS_INVALID: Final = 0x94


class PacketReceiver(Protocol):
    """Gets the packets of a connection, and its end."""

    def connected(self, connection: ClientConnection, connack: Connack) -> None: ...

    def handle(self, packet: Packet) -> None: ...

    def writable(self) -> None: ...

    def lost(self, connection: ClientConnection) -> None: ...


class ClientConnection(asyncio.Protocol):
    """The client's end of a connection, from CONNECT on."""

    def __init__(
        self,
        receiver: PacketReceiver,
        version: int,
        *,
        packet_size_max: int,
        topic_alias_maximum: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.version = version
        self.failure: ClientError | None = None  # why it ended, once it did
        self.is_open = False
        self.is_paused = False
        self.connack: asyncio.Future[Connack] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._receiver = receiver
        self._loop = loop
        self._decoder = Decoder(version, is_server=False, packet_size_max=packet_size_max or PACKET_SIZE_MAX)
        self._topic_alias_maximum = topic_alias_maximum
        self._topics: dict[int, str] = {}
        self._transport: asyncio.Transport | None = None
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._has_written = False  # in this loop turn
        self._sent_at = 0.0
        self._received_at = 0.0
        self._pinged_at = 0.0  # 0 = no PINGREQ of the keep-alive is unanswered
        self._pings: deque[asyncio.Future[None]] = deque()  # unanswered PINGREQs, oldest first
        self._keep_alive_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an assertion: uvloop's transports do not derive from asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._received_at = self._sent_at = self._loop.time()

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        for packet in self._decoder.feed(data):
            if not self.is_open:
                return
            try:
                self._handle(packet)
            except ProtocolError as error:
                self._refuse(error)
        if self._decoder.error is not None and self.is_open:
            self._refuse(self._decoder.error)

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._receiver.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self.is_paused = False
        if self._timer is not None:
            self._timer.cancel()
        if self.failure is None:
            why = f" ({exc})" if exc is not None else ""
            self.failure = NotConnected(f"connection was closed by the server{why}")
        if not self.connack.done():
            self.connack.set_exception(ConnectError(str(self.failure), reason_code=self.failure.reason_code))
        if not self.closed.done():
            self.closed.set_result(None)
        self._fail_pings(self.failure)
        self._receiver.lost(self)

    # What the client calls

    def send(self, packet: Packet) -> None:
        self.write(encode(packet, self.version))

    def write(self, data: bytes) -> None:
        """Send bytes now, or with the other bytes of this loop turn."""
        if self._transport is None or not self.is_open:
            return
        if self._has_written:
            self._batch.append(data)
            self._batch_bytes += len(data)
            if self._batch_bytes >= _BATCH_BYTES_MAX:
                self._flush()
            return
        self._has_written = True
        self._loop.call_soon(self._end_turn)
        self._sent_at = self._loop.time()
        self._transport.write(data)

    def ping(self) -> asyncio.Future[None]:
        """Send a PINGREQ; the future completes with its answer, or fails with the connection."""
        answered: asyncio.Future[None] = self._loop.create_future()
        self._pings.append(answered)
        self.send(Pingreq())
        return answered

    def start_keep_alive(self, keep_alive_s: int) -> None:
        """Send a PINGREQ whenever one direction was idle for most of this time."""
        self._keep_alive_s = float(keep_alive_s)
        if keep_alive_s:
            self._arm(self._keep_alive_s * _PING_AT)

    def close(self, packet: Disconnect, reason: ClientError) -> None:
        """Send the packet, and close when everything is written."""
        if self.is_open and self._transport is not None:
            self.send(packet)
            self._flush()
            self.is_open = False
            self.failure = reason
            self._transport.close()

    def abort(self, reason: ClientError) -> None:
        """Close at once; unwritten bytes are lost."""
        if self.failure is None:
            self.failure = reason
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport is closed; a peer that does not read is cut off."""
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.shield(self.closed)
        except TimeoutError:
            self._transport.abort()
            await asyncio.shield(self.closed)

    # Inside

    def _end_turn(self) -> None:
        self._has_written = False
        self._flush()

    def _flush(self) -> None:
        if self._batch and self._transport is not None and self.is_open:
            self._sent_at = self._loop.time()
            self._transport.write(b"".join(self._batch))
        self._batch.clear()
        self._batch_bytes = 0

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.topic_alias:
                self._resolve_alias(packet)
            self._check_connected(packet)
            self._receiver.handle(packet)
        elif isinstance(packet, Connack):
            if self.connack.done():
                raise ProtocolError(0x82, "CONNACK is sent a second time")
            self.connack.set_result(packet)
            self._receiver.connected(self, packet)
        elif isinstance(packet, Pingresp):
            self._pinged_at = 0.0
            # A server answers in order: this answers the oldest.
            if self._pings and not (answered := self._pings.popleft()).done():
                answered.set_result(None)
        elif isinstance(packet, Disconnect):
            self._handle_disconnect(packet)
        elif isinstance(packet, Auth):
            raise ProtocolError(0x82, "AUTH without an authentication method in CONNECT")
        else:
            self._check_connected(packet)
            self._receiver.handle(packet)

    def _check_connected(self, packet: Packet) -> None:
        if not self.connack.done():
            raise ProtocolError(0x82, f"{type(packet).__name__.upper()} before CONNACK")

    def _resolve_alias(self, packet: Publish) -> None:
        alias = packet.topic_alias
        if alias > self._topic_alias_maximum:
            raise ProtocolError(
                _TOPIC_ALIAS_INVALID,
                f"topic alias {alias} is above the maximum of {self._topic_alias_maximum}",
            )
        if packet.topic:
            self._topics[alias] = packet.topic
        elif alias in self._topics:
            packet.topic = self._topics[alias]
        else:
            raise ProtocolError(_TOPIC_ALIAS_INVALID, f"topic alias {alias} was never given a topic")

    def _handle_disconnect(self, packet: Disconnect) -> None:
        reason = explain(packet.reason_code, packet.properties.reason_string or "")
        if packet.properties.server_reference:
            reason += f", use {packet.properties.server_reference}"
        self.abort(NotConnected(f"server ended the connection ({reason})", reason_code=packet.reason_code))

    def _refuse(self, error: ProtocolError) -> None:
        """End the connection after a mistake of the server; in MQTT 5 it is told which."""
        reason = NotConnected(
            f"server broke the protocol ({explain(error.reason_code, str(error))})",
            reason_code=error.reason_code,
        )
        if self.version == 5 and self.connack.done():
            properties = Properties()
            properties.reason_string = str(error)
            self.close(Disconnect(error.reason_code, properties), reason)
        self.abort(reason)

    def _fail_pings(self, reason: ClientError) -> None:
        while self._pings:
            if not (unanswered := self._pings.popleft()).done():
                unanswered.set_exception(NotConnected(str(reason), reason_code=reason.reason_code))
                # The keep-alive awaits no answer; retrieved here, or asyncio logs an error for its PINGREQ.
                unanswered.exception()

    def _arm(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._check_keep_alive)

    def _check_keep_alive(self) -> None:
        if not self.is_open:
            return
        now = self._loop.time()
        timeout_s = min(PING_TIMEOUT_S, self._keep_alive_s)
        if self._pinged_at:
            if self._received_at > self._pinged_at:
                # Any packet shows that the server is alive, even while its PINGRESP waits behind others.
                self._pinged_at = 0.0
            elif now - self._pinged_at >= timeout_s:
                silence_s = now - self._received_at
                self.abort(NotConnected(f"server was silent for {silence_s:.1f}s and did not answer PINGREQ"))
                return
        due_at = min(self._sent_at, self._received_at) + self._keep_alive_s * _PING_AT
        if self._pinged_at:
            self._arm(max(self._pinged_at + timeout_s - now, 0.001))
        elif now >= due_at:
            self._pinged_at = now
            self.ping()
            self._arm(timeout_s)
        else:
            self._arm(due_at - now)
