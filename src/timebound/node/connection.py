"""One client on one transport: bytes in, calls to the broker; deliveries out, bytes.

This is the hot path between socket and core, compiled where a compiler is at hand. It is
an asyncio protocol by its methods. CONNECT is decided in `handshake`, SUBSCRIBE and the
other seldom packets in `requests`; a mistake of the peer ends this connection and nothing else.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from timebound.core.message import Message
from timebound.core.session import Session
from timebound.errors import ProtocolError
from timebound.node import control, requests
from timebound.node.driver import Driver
from timebound.node.handshake import Accepted, Door, Refused, decide, decide_with_password
from timebound.node.link import LinkMeter
from timebound.node.outgoing import Outgoing
from timebound.node.translate import to_message
from timebound.records import Reason
from timebound.units import SECOND
from timebound.wire import reasons
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Ack, Connect, Disconnect, Packet, Pingreq, Publish
from timebound.wire.properties import Properties

logger = logging.getLogger("timebound.node")

# States of a connection.
NEW: Final = 0  # waits for CONNECT
DECIDING: Final = 1  # a password is being checked; packets wait
OPEN: Final = 2
CLOSED: Final = 3

PINGRESP_FRAME: Final = b"\xd0\x00"
# Encoded at once for one connection. More than is read in a turn from many publishers at once, or
# what comes in would pile up here; bounded, because what is handed to the transport is out of hand.
FLUSH_BYTES_MAX: Final = 4 * 1024 * 1024
# A read that fills its buffer means that more is waiting. The event loop would go on reading this one
# socket, up to 32 times, before anything is written; so it is paused until the turn is over.
# 64 KiB of small messages, as objects, still fit the processor's cache: 256 KiB were a third slower.
READ_BYTES_MAX: Final = 64 * 1024
# After a smaller read the turn follows at once, without going round the loop: latency, not batches.
SMALL_READ_BYTES: Final = 4 * 1024
# Answers that may pile up for a client that does not read them, before it is no longer read.
UNREAD_REPLIES_MAX: Final = 1_000
# A client that was told to go and does not read the news is cut off after this.
CLOSE_TIMEOUT_NS: Final = 5 * SECOND

_READ_BUFFER: Final = memoryview(bytearray(READ_BYTES_MAX))


class Connection:
    """One client of the broker, from accept to close."""

    def __init__(self, driver: Driver, door: Door) -> None:
        self.driver = driver
        self.broker = driver.broker
        self.door = door
        self.number = driver.next_number()
        self.peer = ""
        self.version = 5
        self.session: Session | None = None
        self.outgoing = Outgoing(5, 0, 0, True)
        self.state = NEW
        self.request_problem_information = True
        self.connect_expiry_s = 0
        self._connack = b""
        self._is_greeted = False  # CONNACK is written
        self._decoder = Decoder(is_server=True, packet_size_max=driver.limits.packet_size_max)
        self._transport: Any = None
        self._pending: list[Packet] = []
        self._aliases: dict[int, str] = {}
        self._is_paused = False
        self._is_reading = True
        self._is_throttled = False
        self._silence_max_ns = int(driver.limits.connect_timeout_s * SECOND)
        self._last_heard_ns = 0
        # A shorter topic is within the limits whatever it is made of: a character takes up to four
        # bytes, and there is at most one level more than characters.
        self._topic_unchecked_max = min(
            driver.limits.topic_length_max // 4, driver.limits.topic_levels_max - 1
        )
        self._meter: LinkMeter | None = None  # made when the session has messages with time limits
        self._rate_max = driver.limits.packets_per_second_max
        self._rate_window = 0
        self._rate_count = 0

    # --- transport callbacks --------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._last_heard_ns = self.driver.now_ns()
        transport.set_write_buffer_limits(self.driver.limits.write_buffer_bytes)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        if not self.door.enter(self.peer):
            logger.warning("refused %s on %s: too many connections", self.peer, self.door.name)
            self.broker.counters.connections_refused += 1
            self.state = CLOSED
            transport.abort()
            return
        self.driver.connections[self.number] = self

    def get_buffer(self, size_hint: int) -> memoryview:
        """Where the event loop puts what it reads; all connections share it, one read at a time."""
        return _READ_BUFFER

    def buffer_updated(self, count: int) -> None:
        self.data_received(bytes(_READ_BUFFER[:count]))

    def data_received(self, data: bytes) -> None:
        session = self.session
        # After a take-over the session belongs to another connection, though this one is not closed yet.
        if self.state == CLOSED or (session is not None and session.connection != self.number):
            return
        self.broker.counters.bytes_received += len(data)
        now_ns = self.driver.now_ns()
        if self.state != NEW:  # the time for CONNECT counts from accepting, whatever trickles in
            self._last_heard_ns = now_ns
        received = self._decoder.feed(data)
        if self._rate_max and not self._is_within_rate(len(received), now_ns):
            self.close(reasons.ReasonCode.MESSAGE_RATE_TOO_HIGH, "packets_per_second_max was exceeded")
            return
        if self.state == DECIDING:
            self._pending.extend(received)
        else:
            self._handle(received, now_ns)
        if len(data) >= READ_BYTES_MAX or self.driver.is_storage_behind():
            self._throttle()
        if len(data) <= SMALL_READ_BYTES:
            self.driver.turn_now()
        else:
            self.driver.schedule()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.driver.remove(self.number)
        if self.peer:
            self.door.leave(self.peer)
        self._leave(keep_will=True)
        self.state = CLOSED
        self._transport = None

    def pause_writing(self) -> None:
        self._is_paused = True
        if self._meter is not None:
            self._meter.paused(self.driver.now_ns())

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._meter is not None and self.session is not None:
            now_ns = self.driver.now_ns()
            delay = self._meter.resumed(now_ns)
            if delay is not None:
                self.broker.set_delay(self.session, delay, now_ns)
        if self.session is not None:
            self.broker.put_ready(self.session)
            self.driver.schedule()

    # --- packets in -----------------------------------------------------------------

    def _handle(self, received: list[Packet], now_ns: int) -> None:
        for number, packet in enumerate(received):
            session = self.session
            if session is None:
                if self.state != NEW or not isinstance(packet, Connect):
                    return
                self._open(packet, now_ns)
                if self.state == DECIDING:
                    self._pending.extend(received[number + 1 :])
                    return
            elif isinstance(packet, Publish):
                self._on_publish(session, packet, now_ns)
            elif isinstance(packet, Ack):
                if not self.broker.acknowledge(
                    session, packet.kind, packet.packet_id, packet.reason_code, now_ns
                ):
                    self.close(
                        reasons.ReasonCode.PROTOCOL_ERROR,
                        f"packet id {packet.packet_id} is not acknowledged by packet type {packet.kind}",
                    )
            elif isinstance(packet, Pingreq):
                self.broker.answer(session, PINGRESP_FRAME)
            else:
                requests.handle(self, session, packet, now_ns)
        error = self._decoder.error
        if error is not None and self.state != CLOSED:
            self.refuse(error)

    def _on_publish(self, session: Session, packet: Publish, now_ns: int) -> None:
        topic = packet.topic
        if packet.topic_alias:
            topic = self._resolve_alias(packet)
            if not topic:
                return
        if len(topic) > self._topic_unchecked_max and not self._is_topic_within_limits(packet, topic):
            return
        if topic[0] == "$" and topic.startswith(control.PREFIX):
            self._on_request(session, packet, topic, now_ns)
            return
        if packet.passed_on or packet.message_expiry_interval >= 0:
            if len(packet.user_properties) > self.driver.limits.user_properties_max:
                self.refuse_publish(packet, reasons.ReasonCode.QUOTA_EXCEEDED, "too many user properties")
                return
            try:
                message = to_message(packet, topic, session.client_id, now_ns)
            except ProtocolError as error:
                self.refuse_publish(packet, error.reason_code, str(error))
                return
        else:
            message = Message(topic, packet.payload, packet.qos, packet.retain, now_ns, session.client_id)
        if packet.frame:
            if self.version == 5:
                message.frame_v5 = packet.frame
            else:
                message.frame_v4 = packet.frame
        self.broker.publish(session, message, packet.packet_id, now_ns)
        if packet.qos == 2 and len(session.inbound) > self.driver.limits.inflight_max:
            self.close(
                reasons.ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self.driver.limits.inflight_max} QoS 2 messages are not released",
            )

    def _on_request(self, session: Session, packet: Publish, topic: str, now_ns: int) -> None:
        try:
            control.handle(self, session, packet, topic, now_ns)
        except ProtocolError as error:
            self.refuse_publish(packet, error.reason_code, str(error))

    def _resolve_alias(self, packet: Publish) -> str:
        """The topic that an alias stands for; the connection is closed where it stands for none."""
        alias = packet.topic_alias
        if alias > self.driver.limits.topic_alias_max:
            self.close(
                reasons.ReasonCode.TOPIC_ALIAS_INVALID,
                f"topic alias {alias} is above the maximum {self.driver.limits.topic_alias_max}",
            )
            return ""
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet.topic
        topic = self._aliases.get(alias, "")
        if not topic:
            self.close(reasons.ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was never set")
        return topic

    def _is_topic_within_limits(self, packet: Publish, topic: str) -> bool:
        limits = self.driver.limits
        fault = requests.topic_fault(topic, limits.topic_length_max, limits.topic_levels_max)
        if fault:
            self.refuse_publish(packet, reasons.ReasonCode.TOPIC_NAME_INVALID, fault)
        return not fault

    def refuse_publish(self, packet: Publish, reason_code: int, reason: str) -> None:
        """Turn down one message: by its acknowledgement, or for QoS 0, which has none, by closing."""
        if packet.qos == 0 or self.session is None:
            self.close(reason_code, reason)
            return
        self.broker.counters.publishes_refused += 1
        self.broker.counters.drop(Reason.QUOTA)
        self.broker.refuse_publish(self.session, packet.qos, packet.packet_id, reason_code, reason)

    def _is_within_rate(self, count: int, now_ns: int) -> bool:
        window = now_ns // SECOND
        if window != self._rate_window:
            self._rate_window = window
            self._rate_count = 0
        self._rate_count += count
        return self._rate_count <= self._rate_max

    # --- opening --------------------------------------------------------------------

    def _open(self, packet: Connect, now_ns: int) -> None:
        self.version = packet.protocol_version
        self.outgoing = Outgoing(self.version, packet.properties.maximum_packet_size or 0, 0, True)
        decision = decide(packet, self.door, self._transport)
        if decision is None:
            self.state = DECIDING
            # Nobody fills the memory before it is known who it is.
            self._is_reading = False
            self._transport.pause_reading()
            decide_with_password(packet, self.door, self._on_decided)
        elif isinstance(decision, Accepted):
            self._accept(packet, decision, now_ns)
        elif isinstance(decision, Refused):
            self._turn_away(decision)

    def _on_decided(self, packet: Connect, decision: Accepted | Refused) -> None:
        """The password has been checked in another thread; back on the loop."""
        if self.state != DECIDING:
            return
        now_ns = self.driver.now_ns()
        self.state = NEW
        self._is_reading = True
        self._transport.resume_reading()
        if isinstance(decision, Accepted):
            self._accept(packet, decision, now_ns)
        else:
            self._turn_away(decision)
        pending = self._pending
        self._pending = []
        self._handle(pending, now_ns)
        self.driver.schedule()

    def _accept(self, packet: Connect, accepted: Accepted, now_ns: int) -> None:
        mark = self.broker.mark()
        session, is_present = self.broker.connect(
            accepted.client_id,
            accepted.user,
            packet.clean_start,
            accepted.expiry_interval_s,
            accepted.receive_maximum,
            accepted.will,
            self.number,
            now_ns,
        )
        self.broker.bind(session, self.door.listener.label, self.door.scheduling, self.door.delay, now_ns)
        self.session = session
        self.state = OPEN
        self._last_heard_ns = now_ns
        self.driver.authenticated += 1
        self.connect_expiry_s = accepted.expiry_interval_s
        self.request_problem_information = accepted.wants_reasons
        self._silence_max_ns = accepted.keep_alive_s * SECOND * 3 // 2
        self.outgoing = Outgoing(
            self.version, accepted.packet_size_max, accepted.topic_alias_maximum, accepted.wants_reasons
        )
        self._connack = accepted.connack(is_present, self.version)
        self.broker.reply(session, self._connack, mark)
        logger.info("%r connected as %r from %s", accepted.client_id, accepted.user, self.peer)

    def _turn_away(self, refused: Refused) -> None:
        logger.warning("refused %s on %s: %s", self.peer, self.door.name, refused.reason)
        self.broker.counters.connections_refused += 1
        self._write_refusal(refused, self.version)
        self._finish()

    # --- packets out ----------------------------------------------------------------

    def flush(self) -> None:
        """Write what the session has ready, as far as the socket takes it."""
        session = self.session
        if session is None or self._is_paused or not self._may_write(session):
            self._limit_reading(session)
            return
        outgoing = self.outgoing
        frames: list[bytes] = []
        if session.replies:
            for reply in session.replies:
                frames.append(outgoing.encode_reply(reply))
            session.replies.clear()
        now_ns = self.driver.now_ns()
        budget = FLUSH_BYTES_MAX
        ahead_ns = 0
        if session.link is not None:
            # Little at once where messages have time limits, to stay in control of them.
            meter = self._link_meter(session)
            meter.written(now_ns)
            budget = meter.budget()
            ahead_ns = meter.ahead_ns()
        for delivery in self.broker.take_deliveries(session, budget, now_ns, ahead_ns):
            frame = outgoing.encode(delivery, now_ns)
            if frame:
                frames.append(frame)
            else:
                self.broker.abandon(session, delivery, Reason.TOO_LARGE, now_ns)
        if frames:
            self._write(b"".join(frames) if len(frames) > 1 else frames[0])
        if not self._is_paused and session.has_work():
            self.broker.put_ready(session)
        self._limit_reading(session)

    def _link_meter(self, session: Session) -> LinkMeter:
        if self._meter is None:
            self._meter = LinkMeter(self._transport, session.delay)
        return self._meter

    def _may_write(self, session: Session) -> bool:
        """Whether CONNACK is written or is among the answers, and then first [MQTT-3.2.0-1].

        It may wait for storage, while what the session is owed from before does not.
        """
        if self._is_greeted:
            return True
        for reply in session.replies:
            if reply.frame is self._connack:
                session.replies.remove(reply)
                session.replies.insert(0, reply)
                self._is_greeted = True
                return True
        return False

    def _write_answers(self) -> None:
        """Write the answers that are ready, before the connection ends."""
        session = self.session
        # After a take-over the session and its answers belong to another connection.
        if session is None or session.connection != self.number or self._is_paused:
            return
        if self._may_write(session) and session.replies:
            self._write(b"".join([self.outgoing.encode_reply(reply) for reply in session.replies]))
            session.replies.clear()

    def _limit_reading(self, session: Session | None) -> None:
        """Stop reading from a client that does not read its answers; go on when it does."""
        if session is None or self._transport is None:
            return
        unread = len(session.replies) + session.held
        if self._is_reading and unread > UNREAD_REPLIES_MAX:
            self._is_reading = False
            if not self._is_throttled:
                self._transport.pause_reading()
        elif not self._is_reading and unread <= UNREAD_REPLIES_MAX:
            self._is_reading = True
            if not self._is_throttled:
                self._transport.resume_reading()

    def _throttle(self) -> None:
        """Read no more before the turn is over and storage keeps up."""
        if self._is_reading and not self._is_throttled and self._transport is not None:
            self._is_throttled = True
            self._transport.pause_reading()
            self.driver.throttled.append(self)

    def read_again(self) -> None:
        """The turn is over: a connection that was throttled may be read again."""
        self._is_throttled = False
        if self._is_reading and self._transport is not None and self.state != CLOSED:
            self._transport.resume_reading()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self.broker.counters.bytes_sent += len(data)
            self._transport.write(data)

    # --- closing --------------------------------------------------------------------

    def refuse(self, error: ProtocolError) -> None:
        """Close for a mistake of the peer, with the reason the standard names."""
        self.close(error.reason_code, str(error))

    def close(self, reason_code: int, reason: str) -> None:
        """End the connection from this side; an MQTT 5 client is told why."""
        if self.state == CLOSED:
            return
        log = logger.info if reason_code in (0, reasons.ReasonCode.SERVER_SHUTTING_DOWN) else logger.warning
        log("closing %s (%s): %s", self.name(), self.peer, reason)
        self._write_answers()
        if self._is_greeted:
            if self.version == 5:
                self._write_disconnect(reason_code, reason)
        else:
            self.broker.counters.connections_refused += 1
            if self._decoder.version:  # it got as far as a CONNECT that could be read in part
                self._write_refusal(Refused(reason_code, reason), self._decoder.version)
            elif reason_code == reasons.ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                # The form of 3.1.1, which demands the answer [MQTT-3.1.2-2] and is the oldest.
                self._write_refusal(Refused(reason_code, reason), 4)
        self._finish()

    def _write_disconnect(self, reason_code: int, reason: str) -> None:
        properties = Properties()
        properties.reason_string = reason
        frame = encode(Disconnect(reason_code, properties), 5)
        # [MQTT-3.14.2-3]: a reason string gives way to the client's maximum packet size.
        self._write(frame if self.outgoing.fits(frame) else encode(Disconnect(reason_code), 5))

    def _write_refusal(self, refused: Refused, version: int) -> None:
        frame = refused.connack(version)
        if not self.outgoing.fits(frame):  # [MQTT-3.2.2-19]
            frame = Refused(refused.reason_code, "").connack(version)
        self._write(frame)

    def end(self, keep_will: bool) -> None:
        """The client said goodbye."""
        self._write_answers()
        self._leave(keep_will)
        self._finish()

    def abort(self) -> None:
        """Drop the connection without another word."""
        if self._transport is not None:
            self._transport.abort()

    def name(self) -> str:
        """For logs: a client id may hold line breaks, so it is quoted."""
        return repr(self.session.client_id) if self.session is not None else "a client not yet connected"

    def patrol(self, now_ns: int) -> None:
        """Called about once a second: is the client still there?"""
        if self.state == CLOSED:
            if now_ns - self._last_heard_ns > CLOSE_TIMEOUT_NS and self._transport is not None:
                self._transport.abort()
        elif self._silence_max_ns and now_ns - self._last_heard_ns > self._silence_max_ns:
            if self.state == OPEN:
                # Data that waits unread here is no silence of the client.
                if self._is_reading and not self._is_throttled:
                    self.close(reasons.ReasonCode.KEEP_ALIVE_TIMEOUT, "keep alive timed out")
            elif self.state == NEW:
                self.close(reasons.ReasonCode.UNSPECIFIED_ERROR, "no CONNECT arrived in time")

    def _leave(self, keep_will: bool) -> None:
        session = self.session
        if session is not None:
            self.session = None
            self.driver.authenticated -= 1
            self.broker.disconnect(session, self.number, keep_will, self.driver.now_ns())
            self.driver.schedule()

    def _finish(self) -> None:
        self._leave(keep_will=True)
        self.state = CLOSED
        self._pending.clear()
        self._last_heard_ns = self.driver.now_ns()
        if self._transport is not None:
            self._transport.close()
