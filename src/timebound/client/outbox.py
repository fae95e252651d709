"""Outgoing messages with QoS 1 and 2: order, packet identifiers, quota, resending.

The outbox outlives connections. On each new one, unacknowledged messages are sent again: as
duplicates if the server still has the session, else as new ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Final

from timebound.client.connection import ClientConnection
from timebound.client.limits import ServerLimits
from timebound.client.refusals import FAILURE_FROM, PublishRefused
from timebound.client.values import budget_text
from timebound.errors import ClientError, ProtocolError, PublishError
from timebound.units import SECOND, format_duration
from timebound.wire import packet_types as types
from timebound.wire.codec import (
    encode_ack,
    encode_property_prefix,
    encode_publish,
    with_user_property,
)
from timebound.wire.packets import Ack

logger = logging.getLogger("timebound.client")

PACKET_ID_MAX: Final = 65_535
_NOT_FOUND: Final = 0x92


class PacketIds:
    """Packet identifiers in use; a freed one is reused as late as possible.

    A resumed session may hold QoS 2 identifiers of an earlier process, for which a message would
    count as a duplicate. So the first is chosen at random, and none is reused early.
    """

    __slots__ = ("_last", "_used")

    def __init__(self, first: int) -> None:
        self._last = (first - 1) % PACKET_ID_MAX
        self._used: set[int] = set()

    def take(self) -> int:
        """Return a free identifier, or 0 when all are in use."""
        if len(self._used) >= PACKET_ID_MAX:
            return 0
        while True:
            self._last = self._last % PACKET_ID_MAX + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return self._last

    def free(self, packet_id: int) -> None:
        self._used.discard(packet_id)


class OutgoingMessage:
    """One message, from `publish` to its last acknowledgement."""

    __slots__ = (
        "answer",
        "created_ns",
        "expiry_s",
        "future",
        "has_quota",
        "is_released",
        "packet_id",
        "passed_on",
        "payload",
        "qos",
        "retain",
        "timeout_ns",
        "topic",
        "was_sent",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        passed_on: bytes,
        *,
        timeout_ns: int = 0,
        expiry_s: int = -1,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.passed_on = passed_on  # encoded properties except the timeout, which shrinks
        self.timeout_ns = timeout_ns  # 0 = none
        self.expiry_s = expiry_s  # -1 = none
        self.created_ns = time.monotonic_ns() if timeout_ns or expiry_s >= 0 else 0
        self.future: asyncio.Future[int] | None = None  # the reason code; None for QoS 0
        self.answer = ""  # the reason string of the acknowledgement
        self.packet_id = 0
        self.was_sent = False
        self.is_released = False  # QoS 2: PUBREC has come, PUBCOMP has not
        self.has_quota = False

    def is_abandoned(self) -> bool:
        """Whether nobody waits for the acknowledgement any more."""
        return self.future is not None and self.future.done()

    def is_late(self, now_ns: int) -> bool:
        return self.timeout_ns > 0 and now_ns - self.created_ns >= self.timeout_ns

    def encode(self, version: int, *, dup: bool) -> bytes:
        """Return the PUBLISH with the time that is left."""
        block = self.passed_on
        if self.created_ns:
            elapsed_ns = time.monotonic_ns() - self.created_ns
            if self.timeout_ns:
                block = with_user_property(block, "timeout", budget_text(self.timeout_ns, elapsed_ns))
            if self.expiry_s >= 0:
                left_s = max(self.expiry_s - elapsed_ns // SECOND, 0)
                block = encode_property_prefix(left_s) + block
        return encode_publish(
            self.topic, self.payload, self.qos, self.retain, dup, self.packet_id, block, version
        )

    def fail(self, error: ClientError) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


def late_error(outgoing: OutgoingMessage) -> PublishError:
    return PublishError(
        f"message on {outgoing.topic!r} timed out before it could be sent "
        f"(timeout {format_duration(outgoing.timeout_ns)})"
    )


class Outbox:
    """All unfinished messages with QoS 1 and 2."""

    def __init__(self, ids: PacketIds) -> None:
        self._ids = ids
        self._inflight: dict[int, OutgoingMessage] = {}  # by packet id, in the order of their first sending
        self._again: deque[OutgoingMessage] = deque()  # in flight, to be sent again on this connection
        self._waiting: deque[OutgoingMessage] = deque()  # without a packet id yet
        self._quota = 0
        self._connection: ClientConnection | None = None
        self._limits = ServerLimits()

    def __len__(self) -> int:
        return len(self._inflight) + len(self._waiting)

    def submit(self, outgoing: OutgoingMessage) -> None:
        """Send a message after those before it, as soon as the server's quota allows."""
        self._waiting.append(outgoing)
        self.pump()

    def abandon(self, outgoing: OutgoingMessage) -> None:
        """Forget a message whose caller gave up, unless it may have reached the server."""
        if outgoing.packet_id == 0 and outgoing in self._waiting:
            self._waiting.remove(outgoing)

    def attach(self, connection: ClientConnection, limits: ServerLimits, *, session_present: bool) -> None:
        """Continue on a new connection: releases first, then unacknowledged messages, in order."""
        self._connection = connection
        self._limits = limits
        self._quota = limits.receive_maximum
        self._again.clear()
        for outgoing in list(self._inflight.values()):
            outgoing.has_quota = False
            if outgoing.is_released:
                self._resume_release(outgoing, session_present)
            elif outgoing.is_abandoned():
                self._forget(outgoing)
            else:
                outgoing.was_sent = outgoing.was_sent and session_present
                self._again.append(outgoing)
        self.pump()

    def detach(self) -> None:
        self._connection = None

    def fail_all(self, error: ClientError) -> None:
        """Fail all waiting calls, each with an error of its own."""
        for outgoing in (*self._inflight.values(), *self._waiting):
            outgoing.fail(type(error)(str(error), reason_code=error.reason_code))
            self._ids.free(outgoing.packet_id)
        self._inflight.clear()
        self._waiting.clear()
        self._again.clear()

    def pump(self) -> None:
        """Send messages while there is quota and the network takes more."""
        connection = self._connection
        while connection is not None and connection.is_open and self._quota and not connection.is_paused:
            outgoing = self._next()
            if outgoing is None:
                return
            self._send(connection, outgoing)

    def handle(self, ack: Ack) -> None:
        """Handle an acknowledgement of the server.

        Raises:
            ProtocolError: its kind does not fit the QoS of its message.
        """
        outgoing = self._inflight.get(ack.packet_id)
        if outgoing is None:
            self._handle_unknown(ack)
        elif (ack.kind == types.PUBACK) != (outgoing.qos == 1):
            raise ProtocolError(0x82, f"{types.NAMES[ack.kind]} for a message with QoS {outgoing.qos}")
        elif ack.kind == types.PUBREC and ack.reason_code < FAILURE_FROM:
            outgoing.is_released = True
            self._write_release(ack.packet_id)
        else:
            self._finish(outgoing, ack)

    def _handle_unknown(self, ack: Ack) -> None:
        # The message is from an earlier process of this session: the server may finish it.
        if ack.kind == types.PUBREC and ack.reason_code < FAILURE_FROM:
            self._write_release(ack.packet_id, _NOT_FOUND)

    def _finish(self, outgoing: OutgoingMessage, ack: Ack) -> None:
        self._forget(outgoing)
        if outgoing.has_quota:
            self._quota += 1
        # PUBCOMP with "packet identifier not found": the server had finished before the PUBREL was repeated.
        if ack.reason_code >= FAILURE_FROM and ack.kind != types.PUBCOMP:
            outgoing.fail(PublishRefused(outgoing.topic, ack.reason_code, ack.reason_string))
        elif outgoing.future is not None and not outgoing.future.done():
            outgoing.answer = ack.reason_string
            if ack.reason_string:
                # Not a warning: some servers add a reason string to every message.
                logger.info("message on %r: %s", outgoing.topic, ack.reason_string)
            outgoing.future.set_result(0 if ack.kind == types.PUBCOMP else ack.reason_code)
        self.pump()

    def _resume_release(self, outgoing: OutgoingMessage, session_present: bool) -> None:
        if session_present:
            self._write_release(outgoing.packet_id)
            return
        self._forget(outgoing)
        outgoing.fail(
            PublishError(
                f"message on {outgoing.topic!r} may be lost: the server forgot the session between "
                "PUBREC and PUBCOMP; set session_expiry"
            )
        )

    def _write_release(self, packet_id: int, reason_code: int = 0) -> None:
        if self._connection is not None:
            version = self._connection.version
            self._connection.write(encode_ack(types.PUBREL, packet_id, reason_code, version))

    def _next(self) -> OutgoingMessage | None:
        """Return the next message to send, with a packet identifier, or None."""
        while self._again:
            outgoing = self._again.popleft()
            if not outgoing.is_abandoned():
                return outgoing
            self._forget(outgoing)
        while self._waiting:
            outgoing = self._waiting[0]
            if not outgoing.is_abandoned():
                outgoing.packet_id = self._ids.take()
                if not outgoing.packet_id:
                    return None
                self._inflight[outgoing.packet_id] = outgoing
                self._waiting.popleft()
                return outgoing
            self._waiting.popleft()
        return None

    def _send(self, connection: ClientConnection, outgoing: OutgoingMessage) -> None:
        if not outgoing.was_sent and outgoing.is_late(time.monotonic_ns()):
            self._forget(outgoing)
            outgoing.fail(late_error(outgoing))
            return
        try:
            frame = outgoing.encode(connection.version, dup=outgoing.was_sent)
            self._limits.check_publish(outgoing.topic, outgoing.qos, outgoing.retain, len(frame))
        except PublishError as error:
            self._forget(outgoing)
            outgoing.fail(error)
            return
        self._quota -= 1
        outgoing.has_quota = True
        outgoing.was_sent = True
        connection.write(frame)

    def _forget(self, outgoing: OutgoingMessage) -> None:
        self._inflight.pop(outgoing.packet_id, None)
        self._ids.free(outgoing.packet_id)
