"""One client on one transport: bytes in, calls to the broker; deliveries out, bytes.

This is the hot path between socket and core, compiled where a compiler is at hand. It is
an asyncio protocol by its methods. CONNECT is decided in `handshake`, SUBSCRIBE and the
other seldom packets in `requests`; a mistake of the peer ends this connection and nothing else.

What was read waits in `_packets` for the turn (`input.py`). Alone, this publisher's packets pass
straight through; else its PUBLISHes go into the input queues, and whatever depends on their order
(SUBSCRIBE, DISCONNECT, PINGREQ, requests, the end of the connection) waits until none is left there.

Longer than most files, since a call inside one compiled class is a jump, and all of this is hot.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from timebound.core.message import Message
from timebound.core.offers import LOWER
from timebound.core.session import Session
from timebound.errors import ProtocolError
from timebound.node import control, neighbour_accept, requests
from timebound.node.driver import Driver
from timebound.node.handshake import Accepted, Door, Refused, decide, decide_with_password
from timebound.node.link import LinkMeter
from timebound.node.link_models import told_delay
from timebound.node.neighbour_link import NeighbourLink
from timebound.node.outgoing import Outgoing
from timebound.node.publisher import Arrival, Publisher
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

# Why a socket is not read; it is read again when none of these is left.
STOP_PASSWORD: Final = 1  # nobody fills the memory before it is known who it is
STOP_ANSWERS: Final = 2  # the client does not read its answers
STOP_TURN: Final = 4  # it has brought enough for this turn, or storage is behind
STOP_INPUT: Final = 8  # its input queues are full, or it waits for them

# Packets between two looks at the clock, and packets taken in at once: bounds on what one
# publisher can do in a turn before the others are looked at.
CLOCK_EVERY: Final = 32
TAKEN_IN_MAX: Final = 64

# Where several publishers are read in one turn, less of each: together they should fit the cache.
SHARED_READ_BYTES: Final = 32 * 1024

_READ_BUFFER: Final = memoryview(bytearray(READ_BYTES_MAX))
_SHARED_READ_BUFFER: Final = _READ_BUFFER[:SHARED_READ_BYTES]


class Connection(Publisher):
    """One client of the broker, from accept to close."""

    def __init__(self, driver: Driver, door: Door) -> None:
        super().__init__()
        self.driver = driver
        self.input = driver.input
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
        self.decoder = Decoder(is_server=True, packet_size_max=driver.limits.packet_size_max)
        self._transport: Any = None
        self._packets: list[Packet] = []  # read, and from `_next` on not yet handled
        self._next = 0
        self._arrived_ns = 0
        self._promised_ns = 0  # to the message that is being read
        self._generation = 0  # of the input's weights that `queues` goes by
        self._is_lost = False  # the transport is gone, but not all it brought is taken in
        self._aliases: dict[int, str] = {}
        self._is_paused = False
        self._stops = 0
        self._silence_max_ns = int(driver.limits.connect_timeout_s * SECOND)
        self._last_heard_ns = 0
        # A shorter topic is within the limits whatever it is made of: a character takes up to four
        # bytes, and there is at most one level more than characters.
        self._topic_unchecked_max = min(
            driver.limits.topic_length_max // 4, driver.limits.topic_levels_max - 1
        )
        self.neighbour: NeighbourLink | None = None  # instead of a session, where the peer is a broker
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
        return _SHARED_READ_BUFFER if self.input.is_contended else _READ_BUFFER

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
        received = self.decoder.feed(data)
        if self.neighbour is not None:
            neighbour_accept.receive(self, self.neighbour, received, now_ns)
            if len(data) >= SHARED_READ_BYTES or self.driver.is_storage_behind():
                self._stop_reading(STOP_TURN)
            return
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
        if len(data) >= bytes_max or self.driver.is_storage_behind():
            self._stop_reading(STOP_TURN)
        if len(data) <= SMALL_READ_BYTES:
            self.driver.turn_now()
        else:
            self.driver.schedule()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.session is not None and (self._packets or self.client_input.waiting > 0):
            # What the client said counts, and before its will; its place among the others too.
            self._is_lost = True
            self.input.arrive(self)
            self.driver.schedule()
            return
        self._vanish()

    def _vanish(self) -> None:
        """The transport is gone, and all it brought is taken in."""
        self._is_lost = False
        self.driver.remove(self.number)
        if self.peer:
            self.door.leave(self.peer)
        self._leave(keep_will=True)
        self.state = CLOSED

    def pause_writing(self) -> None:
        self._is_paused = True
        if self.neighbour is not None:
            self.neighbour.paused(self.driver.now_ns())
        if self._meter is not None:
            self._meter.paused(self.driver.now_ns())

    def resume_writing(self) -> None:
        self._is_paused = False
        if self.neighbour is not None:
            self.neighbour.resumed(self.driver.now_ns())
        if self._meter is not None and self.session is not None:
            now_ns = self.driver.now_ns()
            delay = self._meter.resumed(now_ns)
            if delay is not None:
                self.broker.set_delay(self.session, delay, now_ns)
        if self.session is not None:
            self.broker.put_ready(self.session)
            self.driver.schedule()

    # --- packets in -----------------------------------------------------------------

    def _handle_first(self, now_ns: int) -> None:
        """Handle what nothing has to wait for: the packets before the first PUBLISH."""
        packets = self._packets
        count = min(len(packets), TAKEN_IN_MAX)
        index = 0
        while index < count and not isinstance(packets[index], Publish) and self.state != DECIDING:
            packet = packets[index]
            index += 1
            session = self.session
            if session is not None:
                self._on_other(session, packet, now_ns)
            elif self.state == NEW and isinstance(packet, Connect):
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
            else:
                self._on_other(session, packet, now_ns)
        self._next = index
        if index < count:
            self._stop_reading(STOP_INPUT)
        else:
            self._end_packets()
        return index - started

    def take_in(self, now_ns: int) -> bool:
        client = self.client_input
        predecessor = self.predecessor
        if predecessor is not None:
            if predecessor.waiting > 0:
                return False
            self.predecessor = None
        packets = self._packets
        count = len(packets)
        index = self._next
        limit = min(count, index + TAKEN_IN_MAX)
        waiting_max = self.input.scheduler.client_quanta_max
        while index < limit and client.waiting < waiting_max:
            session = self.session
            if session is None or session.connection != self.number:
                index = count
                break
            packet = packets[index]
            if isinstance(packet, Publish):
                if not self._queue_publish(session, packet, now_ns):
                    break
            elif isinstance(packet, Ack) or client.waiting == 0:
                self._on_other(session, packet, now_ns)
            else:
                break
            index += 1
        self._next = index
        if index < count or not self._end_packets():
            self._stop_reading(STOP_INPUT)
            return False
        return True

    def _end_packets(self) -> bool:
        """All packets are handled or wait in queues; False if something has to be done after those."""
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
            requests.handle(self, session, packet, now_ns)

    def _on_publish(self, session: Session, packet: Publish, now_ns: int) -> None:
        """Take in a message at once."""
        topic = self._topic_of(packet)
        if not topic:
            return
        if topic[0] == "$" and topic.startswith(control.PREFIX):
            self._on_request(session, packet, topic, now_ns)
            return
        if self.policers and not self._police(session, packet, topic):
            return
        message = self._message_of(session, packet, topic)
        if message is not None:
            self._publish(session, message, packet.packet_id, now_ns)

    def _queue_publish(self, session: Session, packet: Publish, now_ns: int) -> bool:
        """Put a message into its queue; False if it has to wait until the queues are empty."""
        input_ = self.input
        if self._generation != input_.flows.generation:
            # Messages of a topic may belong elsewhere now, and must not overtake those before.
            if self.client_input.waiting > 0:
                return False
            self._generation = input_.flows.generation
            input_.flows.forget_queues(self)
        topic = self._topic_of(packet)
        if not topic:
            return True
        if topic[0] == "$" and topic.startswith(control.PREFIX):
            if self.client_input.waiting > 0:
                return False
            self._on_request(session, packet, topic, now_ns)
            return True
        is_excess = False
        if self.policers:
            excess_before = input_.excess_lowered
            if not self._police(session, packet, topic):
                return True
            is_excess = input_.excess_lowered != excess_before
        message = self._message_of(session, packet, topic)
        if message is not None:
            queue = self.queues.get(topic)
            if queue is None:
                queue = input_.flows.queue_for(self, topic)
            arrival = Arrival(self, session, message, packet.packet_id)
            input_.scheduler.push(queue, arrival, len(message.payload), is_excess)
        return True

    def publish_arrival(self, arrival: Arrival, now_ns: int) -> None:
        self._publish(arrival.session, arrival.message, arrival.packet_id, now_ns)

    def _publish(self, session: Session, message: Message, packet_id: int, now_ns: int) -> None:
        self.broker.publish(session, message, packet_id, now_ns)
        if (
            message.qos == 2
            and len(session.inbound) > self.driver.limits.inflight_max
            and self.session is session
        ):
            self.close(
                reasons.ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self.driver.limits.inflight_max} QoS 2 messages are not released",
            )

    def _police(self, session: Session, packet: Publish, topic: str) -> bool:
        """Count a message against its flow's contract; False if it is beyond it and refused."""
        policer = self.policers.get(topic)
        self._promised_ns = 0
        if policer is None:
            return True
        if policer.conforms(len(packet.payload), self._arrived_ns):
            self._promised_ns = policer.promised_ns
            return True
        if policer.mode == LOWER:
            self.input.excess_lowered += 1
            return True
        self.input.excess_refused += 1
        self.broker.counters.publishes_refused += 1
        self.broker.counters.drop(Reason.NOT_ADMITTED)
        if packet.qos:
            reason = f"{Reason.NOT_ADMITTED.value}: {topic!r} exceeds what was advertised"
            self.broker.refuse_publish(
                session, packet.qos, packet.packet_id, reasons.ReasonCode.QUOTA_EXCEEDED, reason
            )
        return False

    def _topic_of(self, packet: Publish) -> str:
        """The topic, with its alias resolved; empty where the packet was refused for it."""
        topic = packet.topic
        if packet.topic_alias:
            topic = self._resolve_alias(packet)
            if not topic:
                return ""
        if len(topic) > self._topic_unchecked_max and not self._is_topic_within_limits(packet, topic):
            return ""
        return topic

    def _message_of(self, session: Session, packet: Publish, topic: str) -> Message | None:
        """The message of a packet, dated when it was read; None where it was refused."""
        if packet.passed_on or packet.message_expiry_interval >= 0:
            if len(packet.user_properties) > self.driver.limits.user_properties_max:
                text = "too many user properties"
                self._refuse_publish(packet, reasons.ReasonCode.QUOTA_EXCEEDED, text, Reason.QUOTA)
                return None
            try:
                message = to_message(packet, topic, session.client_id, self._arrived_ns)
            except ProtocolError as error:
                self._refuse_publish(packet, error.reason_code, str(error), Reason.MALFORMED)
                return None
        else:
            message = Message(
                topic, packet.payload, packet.qos, packet.retain, self._arrived_ns, session.client_id
            )
        if self.policers:
            message.promised_ns = self._promised_ns
        if packet.frame:
            if self.version == 5:
                message.frame_v5 = packet.frame
            else:
                message.frame_v4 = packet.frame
        return message

    def _on_request(self, session: Session, packet: Publish, topic: str, now_ns: int) -> None:
        try:
            control.handle(self, session, packet, topic, now_ns)
        except ProtocolError as error:
            self._refuse_publish(packet, error.reason_code, str(error), control.reason_of(error))

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
            self._refuse_publish(packet, reasons.ReasonCode.TOPIC_NAME_INVALID, fault, Reason.QUOTA)
        return not fault

    def _refuse_publish(self, packet: Publish, reason_code: int, text: str, reason: Reason) -> None:
        """Turn down one message: by its acknowledgement, or for QoS 0, which has none, by closing."""
        self.broker.counters.publishes_refused += 1
        self.broker.counters.drop(reason)
        if packet.qos == 0 or self.session is None:
            self.close(reason_code, text)
            return
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
        self.outgoing = Outgoing(self.version, packet.properties.maximum_packet_size or 0, 0, True)
        decision = decide(packet, self.door, self._transport)
        if decision is None:
            self.state = DECIDING
            self._stop_reading(STOP_PASSWORD)
            decide_with_password(packet, self.door, self._on_decided)
        elif isinstance(decision, Accepted):
            self._accept(packet, decision, now_ns)
        elif isinstance(decision, Refused):
            self.turn_away(decision)

    def _on_decided(self, packet: Connect, decision: Accepted | Refused) -> None:
        """The password has been checked in another thread; back on the loop."""
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
            neighbour_accept.accept(self, accepted, now_ns)
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
        self.broker.bind(session, self.door.listener.label, self.door.scheduling, self.door.delay, now_ns)
        self.session = session
        self.input.join(session.client_id, self)
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

    def open_link(self, link: NeighbourLink, connack: bytes, silence_max_ns: int, now_ns: int) -> None:
        """The peer is a broker and was let in: from now on this connection is a link."""
        self.neighbour = link
        self.state = OPEN
        self._last_heard_ns = now_ns
        self._silence_max_ns = silence_max_ns
        self._is_greeted = True
        self._write(connack)

    def turn_away(self, refused: Refused) -> None:
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
            if session.queue_bytes > meter.budget():
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
            told = told_delay(self.broker, session)
            if told is not None:
                self.broker.set_delay(session, told, self.driver.now_ns())
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
        if len(session.replies) + session.held > UNREAD_REPLIES_MAX:
            self._stop_reading(STOP_ANSWERS)
        else:
            self._read_on(STOP_ANSWERS)

    def _stop_reading(self, reason: int) -> None:
        """Read no more from the socket, until `_read_on` was called for every reason."""
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
        """The turn is over, and storage keeps up."""
        self._read_on(STOP_TURN)

    def write(self, data: bytes) -> None:
        """Send what a link to another broker says."""
        self._write(data)

    def transport(self) -> Any:
        return self._transport

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
            if self.decoder.version:  # it got as far as a CONNECT that could be read in part
                self._write_refusal(Refused(reason_code, reason), self.decoder.version)
            elif reason_code == reasons.ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                # The form of 3.1.1, which demands the answer [MQTT-3.1.2-2] and is the oldest.
                self._write_refusal(Refused(reason_code, reason), 4)
        self._finish()

    def _write_disconnect(self, reason_code: int, reason: str) -> None:
        properties = Properties()
        properties.reason_string = reason
        frame = encode(Disconnect(reason_code, properties), 5)
        if not self.outgoing.fits(frame):
            # [MQTT-3.14.2-3]: a reason string gives way to the client's maximum packet size.
            frame = encode(Disconnect(reason_code), 5)
        if self.outgoing.fits(frame):
            self._write(frame)

    def _write_refusal(self, refused: Refused, version: int) -> None:
        frame = refused.connack(version)
        if not self.outgoing.fits(frame):  # [MQTT-3.2.2-19]
            frame = Refused(refused.reason_code, "").connack(version)
        if self.outgoing.fits(frame):
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
        if self.neighbour is not None:
            return f"broker {self.neighbour.name!r}"
        return repr(self.session.client_id) if self.session is not None else "a client not yet connected"

    def patrol(self, now_ns: int) -> None:
        """Called about once a second: is the client still there?"""
        if self.state == CLOSED:
            if now_ns - self._last_heard_ns > CLOSE_TIMEOUT_NS and self._transport is not None:
                self._transport.abort()
        elif self._silence_max_ns and now_ns - self._last_heard_ns > self._silence_max_ns:
            if self.state == OPEN:
                # Data that waits unread here is no silence of the client.
                if self._stops == 0:
                    self.close(reasons.ReasonCode.KEEP_ALIVE_TIMEOUT, "keep alive timed out")
            elif self.state == NEW:
                self.close(reasons.ReasonCode.UNSPECIFIED_ERROR, "no CONNECT arrived in time")

    def _leave(self, keep_will: bool) -> None:
        if self.neighbour is not None and self.driver.mesh is not None:
            link = self.neighbour
            self.neighbour = None
            self.driver.mesh.closed(link)
        session = self.session
        if session is not None:
            self.session = None
            self.driver.authenticated -= 1
            self.input.leave(session.client_id, self)
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
