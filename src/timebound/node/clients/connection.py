"""One client on one transport: bytes in, calls to the broker. What goes out is in `output.py`.

This is the hot path between socket and core, compiled if a compiler is available. It is an asyncio
protocol by its methods. CONNECT is decided in `handshake`, SUBSCRIBE and the other rare packets in
`serving/requests.py`; a mistake of the peer ends this connection and nothing else.

Packets wait in `_packets` for the turn (`input/input.py`). A single publisher's packets pass straight
through; otherwise its PUBLISHes go into the input queues, and whatever depends on their order (SUBSCRIBE,
DISCONNECT, PINGREQ, requests, the end of the connection) waits until these are empty.

Long, since a call inside one compiled class is a jump, and all of this is hot.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from timebound.core.input.entrance import EXCESS, TURNED_DOWN
from timebound.core.input.publisher import InputMessage
from timebound.core.publishing import DENIED, REFUSED
from timebound.core.sessions.session import Session
from timebound.core.values.message import FRAME_KEPT_MAX, Message
from timebound.errors import ProtocolError
from timebound.node.clients import neighbour
from timebound.node.clients.adapter import Adapter
from timebound.node.clients.handshake import (
    Accepted,
    Door,
    Refused,
    decide,
    decide_with_password,
    source_of_client,
)
from timebound.node.clients.output import (
    CLOSED,
    DECIDING,
    HELD_TURNS_MAX,
    NEW,
    OPEN,
    STOP_INPUT,
    STOP_PASSWORD,
    STOP_TURN,
    ConnectionOutput,
)
from timebound.node.control import requests as control
from timebound.node.driver import Driver
from timebound.node.input.buffer import READ_BUFFER, READ_BYTES_MAX, take_read
from timebound.outgoing import OutgoingEncoder
from timebound.records import Reason
from timebound.serving import requests
from timebound.serving.inquiry import Inquiry, reason_of
from timebound.topics import topic_fault
from timebound.translate import to_message
from timebound.units import SECOND
from timebound.wire import reasons
from timebound.wire.packets import Ack, Connect, Packet, Pingreq, Publish, Subscribe, Unsubscribe
from timebound.wire.terms import publish_hint

logger = logging.getLogger("timebound.node")

PINGRESP_FRAME: Final = b"\xd0\x00"
# After a smaller read the turn follows at once, without another round of the loop, for low latency.
SMALL_READ_BYTES: Final = 4 * 1024

# Packets between two readings of the clock, and packets handled at once: bounds on what one
# publisher can do in a turn before others are served.
CLOCK_EVERY: Final = 32
TAKEN_IN_MAX: Final = 64

# A read that fills its buffer means that more is waiting. The event loop would continue to read this
# socket, up to 32 times, before anything is written; so it is paused until the turn is over.
# With several publishers in one turn, less is read of each: together they should fit the cache.
SHARED_READ_BYTES: Final = 32 * 1024

# Distinct property names per client that are checked for misspelling: programs use few, and a client that
# makes up names is not worth the time.
NAMES_SEEN_MAX: Final = 64

_SHARED_READ_BUFFER: Final = READ_BUFFER[:SHARED_READ_BYTES]


class Connection(ConnectionOutput):
    """One client of the broker, from accept to close."""

    def __init__(self, driver: Driver, door: Door) -> None:
        super().__init__(driver, door)
        self._publishing = driver.broker.publishing  # asked for every message
        self._packets: list[Packet] = []  # those from `_next` on are not yet handled
        self._next = 0
        self._arrived_ns = 0
        self._full_shift = 0
        self._long_messages = 0  # of all clients, at the last message of this one
        # In progress over several turns; later packets wait.
        self._request: requests.Request | Inquiry | None = None
        self._aliases: dict[int, str] = {}
        self._usual_topic: str | None = None  # of the last message: within limits, and no request
        # A shorter topic is always within the limits: a character takes up to four bytes, and there is
        # at most one level more than characters.
        self._topic_unchecked_max = min(
            driver.limits.topic_length_max // 4, driver.limits.topic_levels_max - 1
        )
        self._names_seen: set[str] = set()  # of properties
        self._names_unseen = NAMES_SEEN_MAX
        self._rate_max = driver.limits.packets_per_second_max
        self._rate_window = 0
        self._rate_count = 0

    # --- transport callbacks --------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        try:
            self._enter(transport)
        except Exception as error:
            self.failed(error)

    def _enter(self, transport: Any) -> None:
        self._last_heard_ns = self.driver.now_ns()
        transport.set_write_buffer_limits(self.driver.limits.write_buffer_bytes)
        # Of a full read, frames and records leave less: from half of it on, more may be waiting.
        self._full_shift = 1 if isinstance(transport, Adapter) else 0
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        if not self.door.enter(self.number, self.peer):
            self.note_refused("too many connections")
            self.broker.counters.connections_refused += 1
            self.state = CLOSED
            transport.abort()
            return
        self.driver.connections[self.number] = self

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read; all connections share it."""
        return _SHARED_READ_BUFFER if self.input.is_contended else READ_BUFFER

    def buffer_updated(self, count: int) -> None:
        self.data_received(take_read(count))

    def data_received(self, data: bytes) -> None:
        try:
            self._take_bytes(data)
        except Exception as error:
            self.failed(error)

    def _take_bytes(self, data: bytes) -> None:
        session = self.session
        # After a take-over the session belongs to another connection; this one is not closed yet.
        if self.state == CLOSED or (session is not None and session.connection != self.number):
            return
        self.broker.counters.bytes_received += len(data)
        now_ns = self.driver.now_ns()
        if self.state != NEW:  # the time limit for CONNECT runs from accept
            self._last_heard_ns = now_ns
        received = self.decoder.feed(data)
        if self._rate_max and not self._is_within_rate(len(received), now_ns):
            self.close(reasons.ReasonCode.MESSAGE_RATE_TOO_HIGH, "packets_per_second_max was exceeded")
            return
        if self._packets:
            self._packets.extend(received)
        else:
            self._packets = received
            self._arrived_ns = now_ns
        self.input.begin(now_ns)
        if not self.is_arrived and self.state != DECIDING:
            self._handle_first(now_ns)
        bytes_max = SHARED_READ_BYTES if self.input.is_contended else READ_BYTES_MAX
        if len(data) >= bytes_max >> self._full_shift or self.driver.is_storage_behind():
            self._stop_reading(STOP_TURN)
        if len(data) <= SMALL_READ_BYTES:
            self.driver.turn_now()
        else:
            self.driver.schedule()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost_reason = str(exc) if exc is not None else "the connection ended"
        self._is_lost = True
        if self.session is not None and (self._packets or self.client_input.waiting > 0):
            # What the client sent is handled before its will, and in its order among other clients.
            self.input.arrive(self)
            self.driver.schedule()
            return
        try:
            self._vanish()
        except Exception as error:
            self.failed(error)
            if self._is_lost:
                self.cut()

    # --- packets in -----------------------------------------------------------------

    def _handle_first(self, now_ns: int) -> None:
        """Handle the packets before the first PUBLISH or long request, which need not wait."""
        packets = self._packets
        count = min(len(packets), TAKEN_IN_MAX)
        index = 0
        while index < count and self.state != DECIDING:
            packet = packets[index]
            if isinstance(packet, (Publish, Subscribe, Unsubscribe)) and self.session is not None:
                break
            index += 1
            session = self.session
            if session is not None:
                self._on_other(session, packet, now_ns)
            elif self.state == NEW and isinstance(packet, Connect):
                self._next = index
                self._open(packet, now_ns)
            else:
                index = len(packets)
        self._next = index
        if self.session is None and self.state != DECIDING:
            self._next = len(packets)
        if self._next < len(packets):
            if self.state != DECIDING:
                self.input.arrive(self)
        elif not self._end_packets():
            self.input.arrive(self)

    def has_packets(self) -> bool:
        return len(self._packets) > 0

    def pass_through(self, now_ns: int, until_ns: int) -> int:
        try:
            return self._pass_through(now_ns, until_ns)
        except Exception as error:
            self._packets = []
            self._next = 0
            self.failed(error)
            return 1

    def _pass_through(self, now_ns: int, until_ns: int) -> int:
        packets = self._packets
        count = len(packets)
        index = self._next
        started = index
        look_at = index + CLOCK_EVERY
        while index < count:
            if index >= look_at:
                now_ns = self.driver.now_ns()
                if now_ns >= until_ns:
                    break
                look_at = index + CLOCK_EVERY
            session = self.session
            # After a take-over the session belongs to another connection.
            if session is None or session.connection != self.number:
                index = count
                break
            packet = packets[index]
            index += 1
            if isinstance(packet, Publish):
                self._on_publish(session, packet, now_ns)
                if self.is_slow:
                    self.is_slow = False
                    look_at = index
                    if self._request is not None:
                        break
            elif isinstance(packet, (Subscribe, Unsubscribe)):
                self._begin_request(session, packet, until_ns)
                if self._request is not None:
                    break
                look_at = index
            else:
                self._on_other(session, packet, now_ns)
        self._next = index
        if index < count or self._request is not None:
            self._stop_reading(STOP_INPUT)
        else:
            self._end_packets()
        return index - started

    def take_in(self, now_ns: int) -> bool:
        try:
            return self._take_in(now_ns)
        except Exception as error:
            self._packets = []
            self._next = 0
            self.failed(error)
            return True

    def _take_in(self, now_ns: int) -> bool:
        entrance = self.entrance
        if entrance.is_preceded(self):
            return False
        client = self.client_input
        packets = self._packets
        count = len(packets)
        index = self._next
        limit = min(count, index + TAKEN_IN_MAX)
        waiting_max = entrance.quanta_max
        while index < limit and client.waiting < waiting_max:
            session = self.session
            if session is None or session.connection != self.number:
                index = count
                break
            packet = packets[index]
            if isinstance(packet, Publish):
                if not self._queue_publish(session, packet, now_ns):
                    break
                if self.is_slow:
                    self.is_slow = False
                    index += 1
                    break
            elif isinstance(packet, (Subscribe, Unsubscribe)):
                if client.waiting == 0:
                    self._begin_request(session, packet, now_ns)
                    index += 1
                break  # it may have taken long
            elif isinstance(packet, Ack) or client.waiting == 0:
                self._on_other(session, packet, now_ns)
            else:
                break
            index += 1
        self._next = index
        if index < count or self._request is not None or not self._end_packets():
            self._stop_reading(STOP_INPUT)
            return False
        return True

    def _end_packets(self) -> bool:
        """Finish after the last packet; return False if the queues have to be served first."""
        self._packets = []
        self._next = 0
        error = self.decoder.error
        has_end = self._is_lost or error is not None
        if has_end and self.session is not None and self.client_input.waiting > 0:
            return False
        if self._is_lost:
            self._vanish()
        elif error is not None and self.state != CLOSED:
            self.refuse(error)
        else:
            self._read_on(STOP_INPUT)
        return True

    def _begin_request(self, session: Session, packet: Subscribe | Unsubscribe, until_ns: int) -> None:
        """Begin a request; it stays in `_request` if it is not complete."""
        # Assigned first: after an error, the rest of it ends with the client.
        self._request = request = requests.Request(self, session, packet)
        if request.begin(until_ns):
            self._request = None
        else:
            self._held_turns = HELD_TURNS_MAX
            self.input.defer(self)

    def failed(self, error: Exception) -> None:
        """End the connection after an internal error; where it waits in the input, it waits no longer."""
        self.is_deferred = False
        self.is_arrived = False
        super().failed(error)

    def continue_request(self, until_ns: int) -> bool:
        try:
            return self._go_on(until_ns)
        except Exception as error:
            self.failed(error)
            self._request = None
            self._held_turns = 0
            return True

    def _go_on(self, until_ns: int) -> bool:
        request = self._request
        if request is not None and not request.continue_request(until_ns):
            return False
        self._request = None
        self._held_turns = 0
        if isinstance(request, Inquiry):
            note = request.note()
            if note:
                logger.info("%s", note)
            error = request.error()
            if isinstance(error, ProtocolError):
                self._refuse_publish(request.packet, error.reason_code, str(error), reason_of(error))
            elif error is not None:
                raise error
        return True

    def _leave(self, keep_will: bool) -> None:
        request = self._request
        if request is not None:
            request.cancel()
            if isinstance(request, Inquiry):  # the broker will not come back to it
                self._request = None
                self.is_deferred = False
                self.is_arrived = False
        super()._leave(keep_will)

    def _on_other(self, session: Session, packet: Packet, now_ns: int) -> None:
        if isinstance(packet, Ack):
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
            requests.handle(self, session, packet)

    def _on_publish(self, session: Session, packet: Publish, now_ns: int) -> None:
        """Publish a message at once."""
        topic = packet.topic
        if topic is not self._usual_topic or packet.topic_alias:
            topic = self._topic_of(packet)
            if not topic:
                return
            if topic[0] == "$" and topic.startswith(control.PREFIX):
                self._on_request(session, packet, topic, now_ns)
                return
            self._usual_topic = topic
        if self.policers and self._police(session, packet, topic) == TURNED_DOWN:
            return
        message = self._message_of(session, packet, topic)
        if message is not None:
            self._publish(session, message, packet.packet_id, now_ns)

    def _queue_publish(self, session: Session, packet: Publish, now_ns: int) -> bool:
        """Queue a message; return False if it has to wait until the queues are empty."""
        if not self.entrance.may_queue(self):
            return False
        topic = packet.topic
        if topic is not self._usual_topic or packet.topic_alias:
            topic = self._topic_of(packet)
            if not topic:
                return True
            if topic[0] == "$" and topic.startswith(control.PREFIX):
                if self.client_input.waiting > 0:
                    return False
                self._on_request(session, packet, topic, now_ns)
                return True
            self._usual_topic = topic
        if packet.qos == 2 and packet.packet_id in session.inbound:
            # Sent again. It must not wait where the PUBREL that answers its first PUBREC would overtake it.
            known = Message(topic, b"", 2, False, now_ns, session.client_id)
            self._publish(session, known, packet.packet_id, now_ns)
            return True
        is_excess = False
        if self.policers:
            verdict = self._police(session, packet, topic)
            if verdict == TURNED_DOWN:
                return True
            is_excess = verdict == EXCESS
        message = self._message_of(session, packet, topic)
        if message is not None:
            self.entrance.push(InputMessage(self, session, message, packet.packet_id), is_excess)
        return True

    def publish_queued(self, queued: InputMessage, now_ns: int) -> None:
        try:
            self._publish(queued.session, queued.message, queued.packet_id, now_ns)
        except Exception as error:
            self.failed(error)

    def _publish(self, session: Session, message: Message, packet_id: int, now_ns: int) -> None:
        broker = self.broker
        # One that is sent again is answered, or a client that knows no limit (MQTT 3.1.1) never releases it.
        is_new = message.qos == 2 and packet_id not in session.inbound
        outcome = self._publishing.publish(session, message, packet_id, now_ns)
        if outcome == DENIED:
            self.note(f"{Reason.NOT_AUTHORIZED.value}: publishing to {message.topic!r} is not allowed")
        elif outcome == REFUSED:
            self._turn_down(session, message, packet_id)
        elif session.is_pressed:
            self._limit_reading(session)
        if broker.counters.long_messages != self._long_messages:
            self._long_messages = broker.counters.long_messages
            self.is_slow = True
        if is_new and len(session.inbound) > self.driver.limits.inflight_max and self.session is session:
            self.close(
                reasons.ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self.driver.limits.inflight_max} QoS 2 messages are not released",
            )

    def _turn_down(self, session: Session, message: Message, packet_id: int) -> None:
        """Refuse a QoS 1 or 2 message for which links to other brokers have no room."""
        self.broker.counters.refuse(Reason.QUOTA)
        code = reasons.ReasonCode.QUOTA_EXCEEDED
        text = f"{Reason.QUOTA.value}: {self.broker.refusal(message)}"
        if self.version == 5:
            self.broker.refuse_publish(session, message.qos, packet_id, code, text)
        elif self.session is session:
            # Before MQTT 5 an acknowledgement cannot refuse; without one, the client sends the message again.
            self.close(code, text)

    def _police(self, session: Session, packet: Publish, topic: str) -> int:
        return self.broker.police(
            self, session, topic, len(packet.payload), packet.qos, packet.packet_id, self._arrived_ns
        )

    def _topic_of(self, packet: Publish) -> str:
        """Return the topic with its alias resolved; empty if the packet was refused."""
        topic = packet.topic
        if packet.topic_alias:
            topic = self._resolve_alias(packet)
            if not topic:
                return ""
        if len(topic) > self._topic_unchecked_max and not self._is_topic_within_limits(packet, topic):
            return ""
        return topic

    def _message_of(self, session: Session, packet: Publish, topic: str) -> Message | None:
        """Make the message of a packet, with the time it was read; None if it was refused."""
        if len(packet.passed_on) > 0 or packet.message_expiry_interval >= 0:
            if len(packet.user_properties) > self.driver.limits.user_properties_max:
                text = "too many user properties"
                self._refuse_publish(packet, reasons.ReasonCode.QUOTA_EXCEEDED, text, Reason.QUOTA)
                return None
            if self._names_unseen and packet.user_properties:
                self._look_at_names(session, packet, topic)
            try:
                message = to_message(packet, topic, session.client_id, self._arrived_ns)
            except ProtocolError as error:
                session.remarks.pop(packet.packet_id, None)
                self._refuse_publish(packet, error.reason_code, str(error), Reason.MALFORMED)
                return None
        else:
            message = Message(
                topic, packet.payload, packet.qos, packet.retain, self._arrived_ns, session.client_id
            )
        if self.policers:
            message.promised_ns = self.promised_ns
        if packet.dup:
            message.is_repeated = True
        frame = packet.frame
        if len(frame) <= FRAME_KEPT_MAX:
            if self.version == 5:
                message.frame_v5 = frame
            else:
                message.frame_v4 = frame
        return message

    def _look_at_names(self, session: Session, packet: Publish, topic: str) -> None:
        """Log a property whose name is close to a known one, and answer with it: once per client and name."""
        for name, _ in packet.user_properties:
            if name not in self._names_seen and self._names_unseen:
                self._names_unseen -= 1
                self._names_seen.add(name)
                text = publish_hint(name)
                if text:
                    self.hint(f"message to {topic!r}: {text}")
                    if packet.qos:
                        session.remarks[packet.packet_id] = text

    def _on_request(self, session: Session, packet: Publish, topic: str, now_ns: int) -> None:
        self.is_slow = True
        try:
            self._request = control.handle(self.driver, self, session, packet, topic, now_ns)
        except ProtocolError as error:
            self._refuse_publish(packet, error.reason_code, str(error), reason_of(error))
        if self._request is not None:
            self.input.wait(self)

    def _resolve_alias(self, packet: Publish) -> str:
        """Return the topic of an alias; close the connection if there is none."""
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
        fault = topic_fault(topic, limits.topic_length_max, limits.topic_levels_max)
        if fault:
            self._refuse_publish(packet, reasons.ReasonCode.TOPIC_NAME_INVALID, fault, Reason.QUOTA)
        return not fault

    def _refuse_publish(self, packet: Publish, reason_code: int, text: str, reason: Reason) -> None:
        """Refuse one message by its acknowledgement, or for QoS 0, which has none, by closing."""
        self.broker.counters.refuse(reason)
        if packet.qos == 0 or self.session is None:
            self.close(reason_code, text)
            return
        self.note(text)
        self.broker.refuse_publish(self.session, packet.qos, packet.packet_id, reason_code, text)

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
        self.outgoing = OutgoingEncoder(self.version, packet.properties.maximum_packet_size or 0, 0, True)
        decision = decide(packet, self.door, self._transport)
        if decision is None:
            self.state = DECIDING
            self._stop_reading(STOP_PASSWORD)
            decide_with_password(packet, self.door, self.peer, self._on_decided)
        elif isinstance(decision, Accepted):
            self._accept(packet, decision, now_ns)
        elif isinstance(decision, Refused):
            self.turn_away(decision)

    def _on_decided(self, packet: Connect, decision: Accepted | Refused) -> None:
        """Continue on the loop after the password was checked in another thread."""
        try:
            self._take_decision(packet, decision)
        except Exception as error:
            self.failed(error)

    def _take_decision(self, packet: Connect, decision: Accepted | Refused) -> None:
        if self.state != DECIDING:
            return
        now_ns = self.driver.now_ns()
        self.state = NEW
        self._read_on(STOP_PASSWORD)
        if isinstance(decision, Accepted):
            self._accept(packet, decision, now_ns)
        else:
            self.turn_away(decision)
        del self._packets[: self._next]
        self._arrived_ns = now_ns
        self._handle_first(now_ns)
        self.driver.schedule()

    def _accept(self, packet: Connect, accepted: Accepted, now_ns: int) -> None:
        if accepted.broker_name:
            rest, self._packets = self._packets[self._next :], []
            neighbour.accept(self, accepted, rest)
            return
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
        self.session = session
        self.state = OPEN
        self._opened_ns = now_ns
        self.driver.authenticated += 1
        self.broker.bind(session, self.door.listener.label, self.door.scheduling, self.door.delay, now_ns)
        self.source = source_of_client(self.door, accepted.user, self.peer)
        self.entrance.join(session.client_id, self)
        self._last_heard_ns = now_ns
        self.connect_expiry_s = accepted.expiry_interval_s
        self.request_problem_information = accepted.wants_reasons
        self._silence_max_ns = accepted.keep_alive_s * SECOND * 3 // 2
        self.outgoing = OutgoingEncoder(
            self.version, accepted.packet_size_max, accepted.topic_alias_maximum, accepted.wants_reasons
        )
        self._connack = accepted.connack(is_present, self.version)
        self.broker.reply(session, self._connack, mark)
        logger.info("%r connected as %r from %s", accepted.client_id, accepted.user, self.peer)
