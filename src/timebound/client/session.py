"""What outlives a connection: subscriptions, unfinished messages, packet identifiers.

A session is attached to one connection after the other. `keeper.py` makes them, and calls
`end` when there will be no further one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from random import Random
from typing import Final

from timebound.client.advertising import Advertised
from timebound.client.connection import ClientConnection
from timebound.client.limits import ServerLimits, read_limits
from timebound.client.message import Message
from timebound.client.options import ClientOptions
from timebound.client.outbox import PACKET_ID_MAX, Outbox, OutgoingMessage, PacketIds, late_error
from timebound.client.receipts import Receipt, Receipts
from timebound.client.refusals import FAILURE_FROM, SubscribeRefused, explain
from timebound.client.router import SubscriptionRouter
from timebound.client.subscription import State, Subscription
from timebound.errors import ClientError, NotConnected, ProtocolError, PublishError, SubscribeError
from timebound.units import SECOND
from timebound.wire import packet_types as types
from timebound.wire.packets import Ack, Connack, Packet, Publish, Suback, Unsuback, Unsubscribe

logger = logging.getLogger("timebound.client")

# Messages with QoS 0 sent in a row before other tasks get a turn.
_TURN_PUBLISHES_MAX: Final = 64


class ClientSession:
    """The client's half of an MQTT session."""

    def __init__(self, options: ClientOptions, random: Random) -> None:
        self.advertised = Advertised()
        self.limits = ServerLimits()
        self.failure: ClientError | None = NotConnected("client is not connected; call connect() first")
        self._operation_timeout_s = options.operation_timeout_s
        self._keeps_session = options.keeps_session
        self._ids = PacketIds(random.randrange(PACKET_ID_MAX))
        self._outbox = Outbox(self._ids)
        self._receipts = Receipts(options.receive_maximum)
        self._router = SubscriptionRouter(keeps_session=options.keeps_session)
        self._connection: ClientConnection | None = None
        self._subscribing: dict[int, Subscription] = {}  # by packet id, on this connection
        self._unsubscribing: dict[int, asyncio.Future[None]] = {}
        self._to_unsubscribe: list[Subscription] = []  # ended while there was no connection
        self._is_resumed = False  # the server has subscriptions of an earlier process
        self._online = asyncio.Event()  # there is a connection, or there will be none again
        self._writable = asyncio.Event()
        self._published_in_turn = 0

    @property
    def connection(self) -> ClientConnection | None:
        return self._connection

    # From connection to connection

    def begin(self) -> None:
        """Expect a connection: from now on calls wait for one instead of failing."""
        self.advertised = Advertised()
        self.failure = None
        self._online.clear()

    def attach(self, connection: ClientConnection, connack: Connack, *, is_first: bool) -> None:
        """Continue on an accepted connection."""
        present = connack.session_present
        self.limits = read_limits(connack, connection.version)
        self._connection = connection
        self._is_resumed = present and (is_first or self._is_resumed)
        self._receipts.attach(connection, session_present=present)
        for subscription in self._to_unsubscribe if present else ():
            self._send_unsubscribe(connection, subscription)
        self._to_unsubscribe.clear()
        for subscription in self._router.subscriptions():
            if subscription.state is State.STARTING or not present:
                self._send_subscribe(connection, subscription)
        self._writable.set()
        self._online.set()
        self._outbox.attach(connection, self.limits, session_present=present)
        for outgoing in [] if is_first else self.advertised.renewals():
            self._outbox.submit(outgoing)

    def detach(self) -> None:
        """Note that the connection is lost; another may follow."""
        self._connection = None
        self._online.clear()
        self._writable.set()
        self._outbox.detach()
        for packet_id in (*self._subscribing, *self._unsubscribing):
            self._ids.free(packet_id)
        self._subscribing.clear()
        for future in self._unsubscribing.values():
            if not future.done():
                future.set_result(None)
        self._unsubscribing.clear()

    def end(self, failure: ClientError, *, is_wanted: bool) -> None:
        """Fail all waiting calls: there will be no further connection."""
        self.failure = failure
        self._connection = None
        self._online.set()
        self._writable.set()
        self._outbox.fail_all(failure)
        for subscription in self._router.subscriptions():
            self._router.remove(subscription)
            is_starting = subscription.state is State.STARTING
            subscription.end(self._gone() if is_starting or not is_wanted else None)
            if self._keeps_session:
                subscription.drop_unacknowledged()
        self._receipts.forget_unread()
        self._router.take_unclaimed()
        self._to_unsubscribe.clear()

    def _gone(self) -> NotConnected:
        assert self.failure is not None, "asked why there is no connection while there may be one"
        return NotConnected(str(self.failure), reason_code=self.failure.reason_code)

    async def wait_online(self, limit_s: float) -> ClientConnection:
        """Return the connection, waiting for the next one if it was lost.

        Raises:
            NotConnected: there was none within the limit.
        """
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    if self.failure is not None:
                        raise self._gone()
                    if self._connection is not None:
                        return self._connection
                    await self._online.wait()
        except TimeoutError:
            raise NotConnected(f"no connection within {limit_s:g}s") from None

    async def ping(self) -> float:
        """Send a PINGREQ and return the seconds until its answer.

        Raises:
            NotConnected: the connection ended before the answer, with the server's reason if it gave one.
        """
        connection = await self.wait_online(self._operation_timeout_s)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                await connection.ping()
        except TimeoutError:
            raise NotConnected(
                f"server did not answer PINGREQ within {self._operation_timeout_s:g}s"
            ) from None
        return time.monotonic() - began

    # Called by the keeper

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._handle_publish(packet)
        elif isinstance(packet, Ack):
            if packet.kind == types.PUBREL:
                self._receipts.handle_release(packet)
            else:
                self._outbox.handle(packet)
        elif isinstance(packet, Suback):
            self._handle_suback(packet)
        elif isinstance(packet, Unsuback):
            self._handle_unsuback(packet)
        else:
            raise ProtocolError(0x82, f"unexpected {type(packet).__name__.upper()}")

    def writable(self) -> None:
        self._writable.set()
        self._outbox.pump()

    def _handle_publish(self, publish: Publish) -> None:
        receipt: Receipt | None = None
        if publish.qos:
            receipt = self._receipts.accept(publish)
            if receipt is None:
                return
        message = Message(publish.topic, publish)
        found = self._router.find(message)
        if found:
            if receipt is not None:
                receipt.takers = len(found)
            for subscription in found:
                subscription.deliver(message, receipt)
        elif self._is_resumed and not self._router.was_ended(message.topic):
            self._router.keep(message, receipt)
        elif receipt is not None:
            # Sent before its subscription ended: nobody will read it.
            self._receipts.take(receipt)

    def _handle_suback(self, packet: Suback) -> None:
        subscription = self._subscribing.pop(packet.packet_id, None)
        self._ids.free(packet.packet_id)
        if subscription is None or subscription.state is State.ENDED:
            return
        if len(packet.reason_codes) != len(subscription.topic_filters):
            raise ProtocolError(
                0x82,
                f"SUBACK has {len(packet.reason_codes)} reason codes "
                f"for {len(subscription.topic_filters)} topic filters",
            )
        subscription.reason_string = packet.properties.reason_string or ""
        for topic_filter, code in zip(subscription.topic_filters, packet.reason_codes, strict=True):
            if code >= FAILURE_FROM:
                self.forget(subscription, SubscribeRefused(topic_filter, code, subscription.reason_string))
                return
        if subscription.reason_string:
            logger.warning(
                "subscription to %s: %s", ", ".join(subscription.topic_filters), subscription.reason_string
            )
        subscription.granted_qos = tuple(packet.reason_codes)
        subscription.state = State.ACTIVE
        subscription.settled.set()

    def _handle_unsuback(self, packet: Unsuback) -> None:
        future = self._unsubscribing.pop(packet.packet_id, None)
        self._ids.free(packet.packet_id)
        reason_string = packet.properties.reason_string or ""
        refusals = [code for code in packet.reason_codes if code >= FAILURE_FROM]
        for code in refusals:
            logger.warning("server refused to unsubscribe (%s)", explain(code, reason_string))
        if reason_string and not refusals:
            logger.warning("unsubscribing: %s", reason_string)
        if future is not None and not future.done():
            future.set_result(None)

    # Publishing

    async def publish(self, outgoing: OutgoingMessage) -> int:
        """Send a message; with QoS 1 and 2 wait for the acknowledgement and return its reason code.

        Raises:
            PublishError: the server refused it, it is too large, or its time ran out.
            NotConnected: there was no connection in time.
        """
        if outgoing.qos == 0:
            await self._publish_unconfirmed(outgoing)
            return 0
        if self.failure is not None:
            raise self._gone()
        outgoing.future = asyncio.get_running_loop().create_future()
        self._outbox.submit(outgoing)
        try:
            return await self._wait_acknowledged(outgoing, outgoing.future)
        finally:
            self._outbox.abandon(outgoing)

    async def _publish_unconfirmed(self, outgoing: OutgoingMessage) -> None:
        connection = self._connection
        if connection is None:
            limit_s = self._operation_timeout_s
            if outgoing.timeout_ns:
                limit_s = min(limit_s, outgoing.timeout_ns / SECOND)
            connection = await self.wait_online(limit_s)
            if outgoing.is_late(time.monotonic_ns()):
                raise late_error(outgoing)
        frame = outgoing.encode(connection.version, dup=False)
        self.limits.check_publish(outgoing.topic, 0, outgoing.retain, len(frame))
        connection.write(frame)
        if connection.is_paused:
            await self._wait_writable(connection)
        self._published_in_turn += 1
        if self._published_in_turn >= _TURN_PUBLISHES_MAX:
            self._published_in_turn = 0
            await asyncio.sleep(0)

    async def _wait_writable(self, connection: ClientConnection) -> None:
        """Make the caller wait while the network takes no more."""
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                while connection.is_paused and connection is self._connection:
                    self._writable.clear()
                    await self._writable.wait()
        except TimeoutError:
            raise PublishError(f"server read nothing for {self._operation_timeout_s:g}s") from None

    async def _wait_acknowledged(self, outgoing: OutgoingMessage, future: asyncio.Future[int]) -> int:
        limit_s = self._operation_timeout_s
        if outgoing.timeout_ns and not outgoing.was_sent:
            # If its timeout passes before it is sent, the message is worthless: the caller is told at once.
            await asyncio.wait([future], timeout=min(limit_s, outgoing.timeout_ns / SECOND))
            if not future.done() and not outgoing.was_sent:
                raise late_error(outgoing)
        try:
            async with asyncio.timeout(limit_s):
                return await future
        except TimeoutError:
            if self._connection is None:
                raise NotConnected(f"no connection within {limit_s:g}s") from None
            raise PublishError(
                f"message on {outgoing.topic!r} was not acknowledged within {limit_s:g}s"
            ) from None

    # Subscribing: called by Subscription

    async def start(self, subscription: Subscription) -> None:
        """Subscribe, unless that is done, and wait for the answer.

        Raises:
            SubscribeError: the server refused, did not answer, or the filter is in use.
            NotConnected: there was no connection in time.
        """
        if subscription.state is State.NEW:
            if self.failure is not None:
                raise self._gone()
            self._router.insert(subscription)
            subscription.state = State.STARTING
            if self._connection is not None:
                self._send_subscribe(self._connection, subscription)
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                await subscription.settled.wait()
        except TimeoutError:
            error = self._no_answer(subscription)
            self.forget(subscription, error)
            raise error from None
        if subscription.failure is not None:
            raise subscription.failure

    async def stop(self, subscription: Subscription) -> None:
        """Unsubscribe and wait for the answer; without a connection, do so on the next one."""
        subscription.end(None)
        is_subscribed = self._router.remove(subscription)
        subscription.discard()
        if not is_subscribed:
            return
        if self._connection is None:
            self._to_unsubscribe.append(subscription)
            return
        future = self._send_unsubscribe(self._connection, subscription)
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                await future
        except TimeoutError:
            logger.warning("server did not answer UNSUBSCRIBE of %s", ", ".join(subscription.topic_filters))

    def forget(self, subscription: Subscription, failure: ClientError | None = None) -> None:
        """End a subscription at once, without waiting for the server."""
        subscription.end(failure)
        is_subscribed = self._router.remove(subscription)
        if failure is None:
            subscription.discard()
        # A server that refused the only filter has no subscription to end.
        if isinstance(failure, SubscribeRefused) and len(subscription.topic_filters) == 1:
            return
        if is_subscribed and self._connection is not None:
            self._send_unsubscribe(self._connection, subscription)

    def take(self, receipt: Receipt) -> None:
        self._receipts.take(receipt)

    def _no_answer(self, subscription: Subscription) -> ClientError:
        limit = f"within {self._operation_timeout_s:g}s"
        if self._connection is None:
            return NotConnected(f"no connection {limit}")
        return SubscribeError(f"no answer to SUBSCRIBE of {', '.join(subscription.topic_filters)} {limit}")

    def _send_subscribe(self, connection: ClientConnection, subscription: Subscription) -> None:
        packet_id = self._take_id()
        self._subscribing[packet_id] = subscription
        has_identifiers = self.limits.has_subscription_identifiers
        connection.send(subscription.packet(packet_id, with_identifier=has_identifiers))

    def _send_unsubscribe(
        self, connection: ClientConnection, subscription: Subscription
    ) -> asyncio.Future[None]:
        packet_id = self._take_id()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsubscribing[packet_id] = future
        packet = Unsubscribe(packet_id, list(subscription.topic_filters))
        if connection.version == 5:
            # Also where it is empty: other subscriptions to the filters, with other names, go on.
            packet.properties.user_properties.append(("name", subscription.name))
        connection.send(packet)
        return future

    def _take_id(self) -> int:
        packet_id = self._ids.take()
        if not packet_id:
            raise ClientError(f"all {PACKET_ID_MAX} packet identifiers are in use")
        return packet_id
