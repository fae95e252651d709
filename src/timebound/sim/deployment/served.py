"""A client's connection at a simulated broker: bytes in, calls to the broker, and its output as bytes.

It does what `node/clients` does around packets, as small as possible: no TLS, no passwords, and of a
SUBSCRIBE one step a turn. What both do alike is in `serving`, `translate` and `outgoing`.
"""

from __future__ import annotations

from typing import Final

from timebound.config.listeners import ListenerConfig
from timebound.config.scheduling import scheduling_of
from timebound.core.input.entrance import EXCESS, TURNED_DOWN
from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.input.requests import is_one as is_request
from timebound.core.publishing import DENIED, REFUSED
from timebound.core.sessions.session import Session
from timebound.core.values.delay import link_of_rate
from timebound.core.values.message import FRAME_KEPT_MAX, Message
from timebound.errors import ProtocolError
from timebound.linking.codec import link_packet_size_max
from timebound.linking.greeting import read_greeting
from timebound.outgoing import OutgoingEncoder
from timebound.records import Reason
from timebound.serving.connect import Accepted, Refused, accept, check_form
from timebound.serving.inquiry import Inquiry, check_request, reason_of
from timebound.serving.requests import Request, handle
from timebound.sim.deployment.host import Host, LinkTerms
from timebound.sim.deployment.links import Cable
from timebound.sim.deployment.output import ServedOutput
from timebound.topics import reserved_fault, topic_fault
from timebound.translate import to_message
from timebound.units import SECOND
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import (
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    Unsubscribe,
)
from timebound.wire.properties import Properties
from timebound.wire.reasons import ReasonCode

PINGRESP_FRAME: Final = b"\xd0\x00"
REPLAY_STEPS: Final = 8  # few, so that replays of some topics take several turns


class ServedClient(ServedOutput):
    """One client of a broker, from accept to close."""

    def __init__(self, node: Host, number: int, cable: Cable, listener: ListenerConfig) -> None:
        super().__init__(node, number, cable, listener)
        self.publisher = Publisher()
        self._decoder = Decoder(is_server=True, packet_size_max=node.limits.packet_size_max)
        self._packets: list[Packet] = []  # not yet handled
        self._arrived_ns = 0  # the first of them
        self._held = 0  # those that had to wait for this client's own messages or requests
        self._request: Request | None = None  # in progress; later packets wait
        self._replay_steps = 0  # of its present replay of retained messages
        self._inquiry: Inquiry | None = None  # a request to the broker itself, in progress
        self._aliases: dict[int, str] = {}
        self._silence_max_ns = int(node.limits.connect_timeout_s * SECOND)
        self._heard_ns = node.now_ns()
        cable.attach(self)

    # --- in ---------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        session = self.session
        if self.is_closed or (session is not None and session.connection != self.number):
            return
        self.node.broker.counters.bytes_received += len(data)
        if session is not None:
            self._heard_ns = self.node.now_ns()
        if not self._packets:
            self._arrived_ns = self.node.now_ns()
        self._packets += self._decoder.feed(data)
        self.node.intake.hand_in(self)

    def take_in(self) -> None:
        """Act on what was read, up to what has to wait: for a SUBSCRIBE, a request, or the queues."""
        if self.is_closed:
            return
        if self._request is not None:  # one step a turn
            self._continue_request(self._request)
        while self._packets and self._request is None and self._inquiry is None and not self.is_closed:
            packet = self._packets.pop(0)
            if not self._handle(packet):
                self._packets.insert(0, packet)
                break
            self._held = max(self._held - 1, 0)
        self._go_on_later()

    def _go_on_later(self) -> None:
        if self.is_closed:
            return
        self._held = len(self._packets)
        self._is_full = self._held > 0
        self._set_reading()
        is_over = self._is_lost or self._decoder.error is not None
        has_more = len(self._packets) > 0 or self._request is not None
        if has_more or (is_over and self.publisher.client_input.waiting > 0):
            if self._inquiry is None:
                self.node.intake.hand_in(self)
        elif self._is_lost:
            self._leave(keep_will=True)
        elif self._decoder.error is not None:
            self.close(self._decoder.error.reason_code, str(self._decoder.error))

    def _handle(self, packet: Packet) -> bool:
        """Act on a packet; return False if it has to wait until the client's queues are empty."""
        session = self.session
        if session is None:
            if isinstance(packet, Connect):
                self._connect(packet)
            return True
        if session.connection != self.number:
            return True  # it was taken over
        now_ns = self.node.now_ns()
        broker = self.node.broker
        if isinstance(packet, Publish):
            return self._publish(session, packet)
        if isinstance(packet, Ack):
            if not broker.acknowledge(session, packet.kind, packet.packet_id, packet.reason_code, now_ns):
                self.close(ReasonCode.PROTOCOL_ERROR, f"packet id {packet.packet_id} is not acknowledged so")
            return True
        if self.publisher.client_input.waiting > 0 or broker.entrance.is_preceded(self.publisher):
            return False
        if isinstance(packet, Pingreq):
            broker.answer(session, PINGRESP_FRAME)
        elif isinstance(packet, (Subscribe, Unsubscribe)):
            self._begin_request(session, packet)
        else:
            handle(self, session, packet)
        return True

    def _connect(self, packet: Connect) -> None:
        node = self.node
        self.version = packet.protocol_version
        self.outgoing = OutgoingEncoder(self.version, packet.properties.maximum_packet_size or 0, 0, True)
        # Without a password file, names are not verified, so access rules must not see them.
        security = node.config.security
        is_named = security.password_file is not None and packet.username is not None
        user = (packet.username or "") if is_named else security.anonymous_user
        decision = check_form(packet, node.broker, node.limits, node.connected()) or accept(
            packet,
            packet.client_id or f"auto-{node.config.node_name}-{self.number}",
            user,
            broker=node.broker,
            access=node.access,
            limits=node.limits,
            takes_over_from_others=security.take_over_from_others,
            now_ns=node.now_ns(),
        )
        if isinstance(decision, Refused):
            self._refuse(decision)
        elif decision.broker_name:
            self._become_link(decision)
        else:
            self._open(packet, decision)

    def _become_link(self, accepted: Accepted) -> None:
        mesh = self.node.mesh
        refusal = "this broker has no neighbours"
        if mesh is not None:
            refusal = mesh.admit(accepted.broker_name, accepted.user, is_anonymous=not accepted.user)
        if mesh is None or refusal:
            self._refuse(Refused(ReasonCode.NOT_AUTHORIZED, refusal))
            return
        accepted.node_name = mesh.member.name
        accepted.own_packet_size_max = link_packet_size_max(self.node.limits.packet_size_max)
        self._decoder.packet_size_max = accepted.own_packet_size_max
        self.is_closed = True  # as a client
        self.node.connections.pop(self.number, None)
        self._write(accepted.connack(False, 5))
        rest, self._packets = self._packets, []
        granted = LinkTerms(accepted.keep_alive_s, accepted.receive_maximum, accepted.packet_size_max)
        greeting = read_greeting(accepted.user_properties)
        self.node.open_link(greeting, self._cable, self._decoder, granted, rest)

    def _open(self, packet: Connect, accepted: Accepted) -> None:
        node, broker = self.node, self.node.broker
        now_ns = node.now_ns()
        mark = broker.mark()
        session, is_present = broker.connect(
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
        rate = self._listener.link_bytes_per_second or self._cable.out.rate_bytes_per_s()
        broker.bind(session, self._listener.label, scheduling_of(self._listener), link_of_rate(rate), now_ns)
        is_named = accepted.user != node.config.security.anonymous_user
        self.publisher.source = f"user {accepted.user}" if is_named else f"client {accepted.client_id}"
        node.intake.join(accepted.client_id, self)
        self.connect_expiry_s = accepted.expiry_interval_s
        self.request_problem_information = accepted.wants_reasons
        self._silence_max_ns = accepted.keep_alive_s * SECOND * 3 // 2
        self._heard_ns = now_ns
        self.outgoing = OutgoingEncoder(
            self.version, accepted.packet_size_max, accepted.topic_alias_maximum, accepted.wants_reasons
        )
        self._connack = accepted.connack(is_present, self.version)
        broker.reply(session, self._connack, mark)

    def _publish(self, session: Session, packet: Publish) -> bool:
        """Queue a message, or begin a request; return False if the queues have no room now."""
        if not self.node.intake.may_push(self.publisher):
            return False
        topic = self._topic_of(packet)
        if not topic:
            return True
        if is_request(topic):
            if self.publisher.client_input.waiting > 0:
                return False
            self._inquire(session, packet, topic)
            return True
        if packet.qos == 2 and packet.packet_id in session.inbound:
            known = Message(topic, b"", 2, False, self._arrived_ns, session.client_id)
            self.node.broker.publish(session, known, packet.packet_id, self.node.now_ns())
            return True
        is_excess = False
        if self.publisher.policers:
            size, qos, packet_id = len(packet.payload), packet.qos, packet.packet_id
            verdict = self.node.broker.police(
                self.publisher, session, topic, size, qos, packet_id, self._arrived_ns
            )
            if verdict == TURNED_DOWN:
                self.node.count("policed excess refused")
                return True
            is_excess = verdict == EXCESS
            if is_excess:
                self.node.count("policed excess lowered")
        message = self._message_of(session, packet, topic)
        if message is not None:
            if self.publisher.policers:
                message.promised_ns = self.publisher.promised_ns
            queued = InputMessage(self.publisher, session, message, packet.packet_id)
            self.node.intake.push(queued, is_excess=is_excess, is_held=self._held > 0)
        return True

    def _message_of(self, session: Session, packet: Publish, topic: str) -> Message | None:
        """Make the message of a packet, with the time it was read; None if it was refused."""
        limits = self.node.limits
        fault = reserved_fault(topic) or topic_fault(topic, limits.topic_length_max, limits.topic_levels_max)
        if fault:
            self._refuse_publish(session, packet, ReasonCode.TOPIC_NAME_INVALID, fault, Reason.QUOTA)
            return None
        if len(packet.user_properties) > limits.user_properties_max:
            text = "too many user properties"
            self._refuse_publish(session, packet, ReasonCode.QUOTA_EXCEEDED, text, Reason.QUOTA)
            return None
        try:
            message = to_message(packet, topic, session.client_id, self._arrived_ns)
        except ProtocolError as error:
            self._refuse_publish(session, packet, error.reason_code, str(error), Reason.MALFORMED)
            return None
        message.is_repeated = packet.dup
        if packet.frame and len(packet.frame) <= FRAME_KEPT_MAX:
            if self.version == 5:
                message.frame_v5 = packet.frame
            else:
                message.frame_v4 = packet.frame
        return message

    def publish_queued(self, queued: InputMessage) -> None:
        """Publish a message that got all its quanta."""
        broker = self.node.broker
        session, message, packet_id = queued.session, queued.message, queued.packet_id
        outcome = broker.publish(session, message, packet_id, self.node.now_ns())
        if outcome == DENIED:
            self.node.count("refused publish")
        elif outcome == REFUSED:
            self.node.count("refused publish")
            broker.counters.refuse(Reason.QUOTA)
            text = f"{Reason.QUOTA.value}: {broker.refusal(message)}"
            if self.version == 5:
                broker.refuse_publish(session, message.qos, packet_id, ReasonCode.QUOTA_EXCEEDED, text)
            elif self.session is session:
                self.close(ReasonCode.QUOTA_EXCEEDED, text)
        is_over = message.qos == 2 and len(session.inbound) > self.node.limits.inflight_max
        if is_over and self.session is session:
            self.close(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "too many QoS 2 messages are not released")
        self.node.note_taken(message)

    def _inquire(self, session: Session, packet: Publish, topic: str) -> None:
        """Begin a request about flows or weights."""
        try:
            check_request(session, topic)
        except ProtocolError as error:
            self._refuse_request(session, packet, error)
            return
        self._inquiry = Inquiry(self.node.broker, self.publisher, session, packet, topic)

    def answer(self) -> None:
        """Answer a request, since the broker is done with it, and go on."""
        inquiry, session = self._inquiry, self.session
        if inquiry is None or session is None or not inquiry.continue_request(0):
            return
        self._inquiry = None
        error = inquiry.error()
        if isinstance(error, ProtocolError):
            self._refuse_request(session, inquiry.packet, error)
        elif error is not None:
            raise error
        else:
            self.node.count("request carried out")
        self.node.intake.hand_in(self)

    def _refuse_request(self, session: Session, packet: Publish, error: ProtocolError) -> None:
        reason = reason_of(error)
        is_admission = reason is Reason.NOT_ADMITTED
        self.node.count("refused admission" if is_admission else "refused request")
        self._refuse_publish(session, packet, error.reason_code, str(error), reason)

    def _topic_of(self, packet: Publish) -> str:
        alias = packet.topic_alias
        if not alias:
            return packet.topic
        if alias > self.node.limits.topic_alias_max:
            self.close(ReasonCode.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum")
            return ""
        if packet.topic:
            self._aliases[alias] = packet.topic
        elif alias not in self._aliases:
            self.close(ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was never set")
        return self._aliases.get(alias, "")

    def _refuse_publish(
        self, session: Session, packet: Publish, code: int, text: str, reason: Reason
    ) -> None:
        self.node.count("refused publish")
        self.node.broker.counters.refuse(reason)
        if packet.qos:
            self.node.broker.refuse_publish(session, packet.qos, packet.packet_id, code, text)
        else:
            self.close(code, text)

    def _begin_request(self, session: Session, packet: Subscribe | Unsubscribe) -> None:
        """Begin a SUBSCRIBE or UNSUBSCRIBE; it stays in `_request` if it is not complete."""
        request = Request(self, session, packet, REPLAY_STEPS)
        self._replay_steps = 0
        self._request = None if request.begin(self.node.now_ns()) else request

    def _continue_request(self, request: Request) -> None:
        """Do one step."""
        self._replay_steps = self._replay_steps + 1 if request.is_replaying() else 0
        if request.continue_request(self.node.now_ns()):
            self._request = None
        elif self._replay_steps == 1 and request.is_replaying():
            self.node.count("sliced replay")

    # --- the end ----------------------------------------------------------------------

    def connection_lost(self) -> None:
        if not self.is_closed:
            self._is_lost = True
            self.node.intake.hand_in(self)  # what it sent before is handled first

    def close(self, reason_code: int, reason: str) -> None:
        """Close the connection; an MQTT 5 client gets the reason."""
        if self.is_closed:
            return
        self._write_answers()
        if self.version == 5 and self._is_greeted:
            properties = Properties()
            properties.reason_string = reason
            frame = encode(Disconnect(reason_code, properties), 5)
            self._write(frame if self.outgoing.fits(frame) else encode(Disconnect(reason_code), 5))
        self._leave(keep_will=True)
        self._finish()

    def end(self, reason_code: int) -> None:
        """End after DISCONNECT of the client; only reason code 0 removes its will."""
        self._write_answers()
        self._leave(keep_will=reason_code != ReasonCode.NORMAL_DISCONNECTION)
        self._finish()

    def note(self, reason: str) -> None:
        """Note a refusal, as the log of the network's node has it."""
        self.node.clock.note(
            f"{self.publisher.source or self.number} was refused: {reason}", is_warning=False
        )

    def hint(self, text: str) -> None:
        """Note a likely mistake in an accepted request."""
        self.node.clock.note(f"{self.publisher.source or self.number}: {text}", is_warning=False)

    def _refuse(self, refused: Refused) -> None:
        self.node.broker.counters.connections_refused += 1
        self.node.count("refused connect")
        self._write(refused.connack(self.version))
        self._finish()

    def _leave(self, keep_will: bool) -> None:
        session, self.session = self.session, None
        if self._request is not None:
            self._request.cancel()
            self._request = None
        if self._inquiry is not None:
            self._inquiry.cancel()
            self._inquiry = None
        if session is not None:
            if keep_will and self.publisher.flow_queues:
                self.node.count("flow of a lost client released")
            self.node.intake.leave(session.client_id, self)
            self.node.broker.disconnect(session, self.number, keep_will, self.node.now_ns())
        self.is_closed = True
        self.node.connections.pop(self.number, None)
        self.node.clock.schedule()

    def _finish(self) -> None:
        self.is_closed = True
        self.node.connections.pop(self.number, None)
        self._cable.close()

    def patrol(self, now_ns: int) -> None:
        """Close the connection of a client that was silent for too long; called about once a second."""
        session = self.session
        if session is not None:
            self._limit_reading(session)
        is_silent = self._silence_max_ns and now_ns - self._heard_ns > self._silence_max_ns
        if is_silent and not self._is_unread and not self.is_closed:
            self.node.count("keep alive timed out")
            self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "keep alive timed out")

    def die(self) -> None:
        """End with the process of the broker."""
        self.is_closed = True
        self._cable.die()
