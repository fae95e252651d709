"""A client's transport, and what this side says on it: deliveries, answers, and the last words.

The half of a connection that writes and ends; `connection.py` has the half that reads. They are one object,
since a call inside one compiled class is a jump, and of what is there only `_leave` is called from here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from timebound.core.sessions.session import Session
from timebound.errors import ProtocolError
from timebound.node.clients.handshake import Door, Refused, address_of
from timebound.node.control.link_models import announced_delay
from timebound.node.driver import Driver
from timebound.node.input.reader import InputReader
from timebound.node.links.meter import LinkMeter
from timebound.outgoing import OutgoingEncoder
from timebound.records import Reason
from timebound.serving.connect import put_first
from timebound.units import SECOND
from timebound.wire import reasons
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Disconnect
from timebound.wire.properties import Properties

logger = logging.getLogger("timebound.node")

# States of a connection.
NEW: Final = 0  # waits for CONNECT
DECIDING: Final = 1  # a password is being checked; packets wait
OPEN: Final = 2
CLOSED: Final = 3

# Most bytes written in one turn to a connection that keeps up. More than is read in a turn from many
# publishers together, or messages would pile up here.
FLUSH_BYTES_MAX: Final = 4 * 1024 * 1024
# A request is answered before what it causes, such as SUBACK before retained messages, if it takes at
# most this many turns: clients are used to it. Deliveries do not wait longer.
HELD_TURNS_MAX: Final = 16
# Unread answers after which a client is no longer read.
UNREAD_REPLIES_MAX: Final = 1_000
# A client that does not read its DISCONNECT is cut off after this time.
CLOSE_TIMEOUT_NS: Final = 5 * SECOND

# Why a socket is not read; it is read again when none of these is left.
STOP_PASSWORD: Final = 1  # before it is known who the client is, it must not fill memory
STOP_ANSWERS: Final = 2  # the client does not read its answers
STOP_TURN: Final = 4  # it sent enough for this turn, or storage is behind
STOP_INPUT: Final = 8  # its input queues are full, or it waits for them
STOP_LINK: Final = 16  # links to other brokers have no room for what it publishes


class ConnectionOutput(InputReader):
    """A client as this side writes to it, from accept to close."""

    def __init__(self, driver: Driver, door: Door) -> None:
        super().__init__()
        self.driver = driver
        self.input = driver.input
        self.broker = driver.broker
        self.entrance = driver.broker.entrance
        self.door = door
        self.number = driver.next_number()
        self.peer = ""
        self.version = 5
        self.session: Session | None = None
        self.outgoing = OutgoingEncoder(5, 0, 0, True)
        self.request_problem_information = True
        self.connect_expiry_s = 0
        self.state = NEW
        self._connack = b""
        self._is_greeted = False  # CONNACK is written
        self.decoder = Decoder(is_server=True, packet_size_max=driver.limits.packet_size_max)
        self._transport: Any = None
        self._is_lost = False  # the transport is closed, but perhaps not all packets are handled
        self._lost_reason = ""
        self._opened_ns = 0
        self._is_paused = False
        self._stops = 0
        self._held_turns = 0  # turns for which deliveries still wait for the answer to a request
        self._silence_max_ns = int(driver.limits.connect_timeout_s * SECOND)
        self._last_heard_ns = 0
        self._meter: LinkMeter | None = None  # made when the session has messages with time limits
        self._pace_timer: asyncio.TimerHandle | None = None  # nothing is written to the link before

    # --- out ------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the session has ready, as far as the socket takes it."""
        session = self.session
        # Deliveries that are taken count as sent, so none are once the transport is closed.
        if session is None or self._transport is None or self._is_paused or not self._may_write(session):
            self._limit_reading(session)
            return
        outgoing = self.outgoing
        frames: list[bytes] = []
        if session.replies:
            for reply in session.replies:
                frames.append(outgoing.encode_reply(reply))
            session.replies.clear()
        now_ns = self.driver.now_ns()
        is_free = True
        if self._held_turns > 0:
            self._held_turns -= 1
        elif session.scheduled is None:
            if self._meter is not None:
                self._end_pacing(self._meter)
            self._flush_parts(session, frames, now_ns)
        else:
            is_free = self._flush_paced(session, frames, now_ns)
        self._write_frames(frames)
        if is_free and not self._is_paused and session.has_work():
            self.broker.put_ready(session)
        self._limit_reading(session)

    def _flush_parts(self, session: Session, frames: list[bytes], now_ns: int) -> None:
        """Write in steps, until the transport begins to buffer.

        Beyond that, data is out of control and takes memory until the client reads it. A step is twice the
        transport's buffer: all that came in one read of a publisher is sent in one write.
        """
        bytes_max = 2 * self.driver.limits.write_buffer_bytes
        for _ in range(max(FLUSH_BYTES_MAX // bytes_max, 1)):
            self._encode(session, frames, bytes_max, now_ns, 0)
            self._write_frames(frames)
            if self._is_paused or not session.has_work():
                return

    def _write_frames(self, frames: list[bytes]) -> None:
        if frames:
            self._write(b"".join(frames) if len(frames) > 1 else frames[0])
            frames.clear()

    def _encode(
        self, session: Session, frames: list[bytes], bytes_max: int, now_ns: int, ahead_ns: int
    ) -> None:
        outgoing = self.outgoing
        for delivery in self.broker.take_deliveries(session, bytes_max, now_ns, ahead_ns):
            frame = outgoing.encode(delivery, now_ns)
            if frame:
                frames.append(frame)
            else:
                self.broker.abandon(session, delivery, Reason.TOO_LARGE, now_ns)

    def _flush_paced(self, session: Session, frames: list[bytes], now_ns: int) -> bool:
        """Take as much as the link may get now; return False if a timer continues later.

        Messages with time limits are written in small amounts, so that the rest can still be reordered.
        """
        if not session.has_work() or self._pace_timer is not None:
            return False
        meter = self._link_meter(session)
        if session.transit is not None:
            meter.limit_pace(session.transit.pace(), now_ns)
        allowed = meter.allow(session.queue_bytes, now_ns)
        delay = meter.changed_delay()
        if delay is not None:
            self.broker.set_delay(session, delay, now_ns)
        if allowed:
            self._encode(session, frames, allowed, now_ns, meter.ahead_ns())
            count = 0
            for frame in frames:
                count += len(frame)
            if meter.written(count, session.queue_bytes, now_ns):
                return True
        if session.has_work():
            self._pace_timer = self.driver.call_at_ns(meter.wake_ns, self._on_pace)
        return False

    def _on_pace(self) -> None:
        self._pace_timer = None
        if self.session is not None:
            self.broker.put_ready(self.session)
            self.driver.schedule()

    def _end_pacing(self, meter: LinkMeter) -> None:
        """Stop pacing, since no message has a time limit any more."""
        meter.release(self.driver.limits.write_buffer_bytes)
        self._meter = None

    def _link_meter(self, session: Session) -> LinkMeter:
        if self._meter is None:
            announced = announced_delay(self.broker, session)
            if announced is not None:
                self.broker.set_delay(session, announced, self.driver.now_ns())
            ceiling = float(self.door.listener.link_bytes_per_second)
            self._meter = LinkMeter(self._transport, session.delay, ceiling)
        return self._meter

    def _may_write(self, session: Session) -> bool:
        """Whether CONNACK is written, or is now the first of the answers."""
        if not self._is_greeted:
            self._is_greeted = put_first(session.replies, self._connack)
        return self._is_greeted

    def _write_answers(self) -> None:
        """Write the answers that are ready, before the connection ends."""
        session = self.session
        # After a take-over the session and its answers belong to another connection.
        if session is None or session.connection != self.number or self._is_paused:
            return
        if self._may_write(session) and session.replies:
            self._write(b"".join([self.outgoing.encode_reply(reply) for reply in session.replies]))
            session.replies.clear()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self.broker.counters.bytes_sent += len(data)
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        try:
            self._write_on()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """End the connection after an internal error in a callback."""
        self.driver.failed(self, error)

    def _write_on(self) -> None:
        """Continue to write, since the transport has room again."""
        if self.session is not None:
            self.broker.put_ready(self.session)
            self.driver.schedule()

    # --- reading or not -------------------------------------------------------------

    def _limit_reading(self, session: Session | None) -> None:
        """Pause reading from a client that does not read its answers; resume when it does."""
        if session is None or self._transport is None:
            return
        unread = len(session.replies) + session.held
        if self._stops == 0 and unread <= UNREAD_REPLIES_MAX and not session.is_pressed:
            return
        if unread > UNREAD_REPLIES_MAX:
            self._stop_reading(STOP_ANSWERS)
        else:
            self._read_on(STOP_ANSWERS)
        # A client with an advertised flow is not paused for its other messages.
        is_slowed = len(session.slowed_by) > 0 and len(self.policers) == 0
        # A client without Receive Maximum does not stop by itself.
        if is_slowed or len(session.awaiting) > self.driver.limits.inflight_max:
            self._stop_reading(STOP_LINK)
        else:
            self._read_on(STOP_LINK)

    def _stop_reading(self, reason: int) -> None:
        """Pause reading until `_read_on` is called for every reason."""
        if self._stops & reason or self._transport is None:
            return
        if self._stops == 0:
            self._transport.pause_reading()
        self._stops |= reason
        if reason == STOP_TURN:
            self.driver.throttled.append(self)

    def _read_on(self, reason: int) -> None:
        if self._stops & reason:
            self._stops &= ~reason
            if self._stops == 0 and self._transport is not None and self.state != CLOSED:
                self._transport.resume_reading()

    def read_again(self) -> None:
        """Resume reading after the turn, since storage keeps up."""
        self._read_on(STOP_TURN)

    # --- closing --------------------------------------------------------------------

    def refuse(self, error: ProtocolError) -> None:
        """Close for a mistake of the peer, with the reason code of the standard."""
        self.close(error.reason_code, str(error))

    def close(self, reason_code: int, reason: str) -> None:
        """Close the connection; an MQTT 5 client gets the reason."""
        if self.state == CLOSED:
            return
        if self.state != OPEN:
            self.note_refused(reason)
        elif reason_code in (0, reasons.ReasonCode.SERVER_SHUTTING_DOWN):
            logger.info("closing %s: %s", self._described(), reason)
        else:
            logger.warning("closing %s: %s (0x%02x)", self._described(), reason, reason_code)
        self._write_answers()
        if self._is_greeted:
            if self.version == 5:
                self._write_disconnect(reason_code, reason)
        else:
            self.broker.counters.connections_refused += 1
            # A CONNECT that could be read in part is answered by MQTT 5 alone: [MQTT-3.1.4-1] of 3.1.1
            # forbids it. While NEW, no CONNECT has been read as a whole.
            if self.decoder.version == 5 or (self.decoder.version and self.state != NEW):
                self._write_refusal(Refused(reason_code, reason), self.decoder.version)
            elif reason_code == reasons.ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                # In the form of 3.1.1, the oldest, which requires the answer [MQTT-3.1.2-2].
                self._write_refusal(Refused(reason_code, reason), 4)
        self._finish()

    def _write_disconnect(self, reason_code: int, reason: str) -> None:
        properties = Properties()
        properties.reason_string = reason
        frame = encode(Disconnect(reason_code, properties), 5)
        if not self.outgoing.fits(frame):
            # [MQTT-3.14.2-3]: a reason string is omitted if it exceeds the client's maximum packet size.
            frame = encode(Disconnect(reason_code), 5)
        if self.outgoing.fits(frame):
            self._write(frame)

    def _write_refusal(self, refused: Refused, version: int) -> None:
        frame = refused.connack(version)
        if not self.outgoing.fits(frame):  # [MQTT-3.2.2-19]
            frame = Refused(refused.reason_code, "").connack(version)
        if self.outgoing.fits(frame):
            self._write(frame)

    def end(self, reason_code: int) -> None:
        """End after DISCONNECT of the client; only reason code 0 removes its will."""
        keep_will = reason_code != reasons.ReasonCode.NORMAL_DISCONNECTION
        how = f"{reasons.describe(reason_code)} (0x{reason_code:02x})" if keep_will else "normally"
        logger.info("%s disconnected: %s", self._described(), how)
        self._write_answers()
        self._leave(keep_will)
        self._finish()

    def cut(self) -> None:
        """End a connection that could not be closed normally."""
        if self._is_lost:
            self._vanish()
            return
        self.state = CLOSED
        try:
            self._leave(keep_will=True)
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop the connection without sending anything."""
        if self._transport is not None:
            self._transport.abort()

    def name(self) -> str:
        """Return the name for logs; a client id may contain line breaks, so it is quoted."""
        return repr(self.session.client_id) if self.session is not None else "a client not yet connected"

    def note(self, reason: str) -> None:
        """Log a refusal; many of one kind become one line."""
        name = self.name()
        self.driver.notices.note(name, f"{name} ({self.peer}) was refused", reason, self.driver.now_ns())

    def hint(self, text: str) -> None:
        """Log a likely mistake in an accepted request; many become one line."""
        name = self.name()
        self.driver.notices.note(name, f"{name} ({self.peer})", text, self.driver.now_ns())

    def note_refused(self, reason: str) -> None:
        """Log a refused connection; many of one address become one line."""
        start = f"refused {self.peer} on {self.door.name}"
        self.driver.notices.note(address_of(self.peer), start, reason, self.driver.now_ns())

    def _described(self) -> str:
        """Return name, address and duration, for logs."""
        opened_s = (self.driver.now_ns() - self._opened_ns) / SECOND
        return f"{self.name()} ({self.peer}) after {opened_s:.1f} s"

    def patrol(self, now_ns: int) -> None:
        """Check that the client is still there; called about once a second."""
        if self.state == CLOSED:
            if now_ns - self._last_heard_ns > CLOSE_TIMEOUT_NS and self._transport is not None:
                self._transport.abort()
        elif self._silence_max_ns and now_ns - self._last_heard_ns > self._silence_max_ns:
            if self.state == OPEN:
                # Data that waits unread here means that the client is not silent.
                if self._stops == 0:
                    self.close(reasons.ReasonCode.KEEP_ALIVE_TIMEOUT, "keep alive timed out")
            elif self.state == NEW:
                self.close(reasons.ReasonCode.UNSPECIFIED_ERROR, "no CONNECT arrived in time")

    def _leave(self, keep_will: bool) -> None:
        if self.driver.is_stopped:
            self.session = None
            return
        if self._pace_timer is not None:
            self._pace_timer.cancel()
            self._pace_timer = None
        session = self.session
        if session is not None:
            self.session = None
            self.driver.authenticated -= 1
            try:
                self.entrance.leave(session.client_id, self)
            finally:
                self.broker.disconnect(session, self.number, keep_will, self.driver.now_ns())
                self.driver.schedule()

    def _finish(self) -> None:
        self._leave(keep_will=True)
        self.state = CLOSED
        self._last_heard_ns = self.driver.now_ns()
        if self._transport is not None:
            self._transport.close()
        elif self._is_lost:
            self._vanish()

    def _vanish(self) -> None:
        """End after the transport was closed and all packets are handled."""
        self.driver.remove(self.number)
        self.door.leave(self.number)
        self._is_lost = False  # not before: after an error it comes here again
        who = self._described() if self.state == OPEN else ""
        self._leave(keep_will=True)
        self.state = CLOSED
        self._meter = None  # behind an adapter they refer to each other, and would wait for a full collection
        if who:
            logger.info("%s disconnected without DISCONNECT: %s", who, self._lost_reason)

    def release_transport(self) -> Any:
        """Return the transport, read again if it was paused, for another protocol; this one is over."""
        transport = self._transport
        self._transport = None
        self.state = CLOSED
        if self._stops:
            self._stops = 0
            transport.resume_reading()
        return transport

    def turn_away(self, refused: Refused) -> None:
        self.note_refused(refused.reason)
        self.broker.counters.connections_refused += 1
        self._write_refusal(refused, self.version)
        self._finish()
