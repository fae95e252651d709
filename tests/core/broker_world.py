"""A broker, its naive model and its clients, kept in step; every step is checked.

A `Client` keeps MQTT's rules for both directions: it remembers QoS 2 packet ids until PUBREL,
sends again what was not acknowledged, and never has more than its Receive Maximum outstanding.
What it sees is compared with what the model says it is owed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.topic_strategies import selects

from timebound.core.sessions.session import PUBACK, PUBCOMP, PUBREC, PUBREL, Session
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import RELEASED as DELIVERY_RELEASED
from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import Will
from timebound.core.values.subscription import Subscription
from timebound.topics import split_share
from timebound.units import SECOND

from .broker_doubles import BYTES_MAX, Node, Packet, Peer
from .broker_model import (
    GONE,
    QUEUED,
    RELEASED,
    STARTED,
    BrokerModel,
    Copy,
    ModelSession,
    PendingWill,
    Promise,
)

QUEUE_MESSAGES_MAX = 6


@dataclass(eq=False)
class Sent:
    """A message that a client published and keeps until it is acknowledged."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    expiry_s: int | None
    tag: bytes
    promise: Promise
    stage: str = "sent"  # then, with QoS 2, "received" and "released"


@dataclass(eq=False)
class Client:
    """What one client device remembers, over connections and crashes of the broker."""

    name: str
    peer: Peer | None = None
    receive_maximum: int = 0
    incoming: dict[int, bytes] = field(default_factory=dict)  # QoS 2, not released
    outstanding: dict[int, Packet] = field(default_factory=dict)  # of this connection
    sent: dict[int, Sent] = field(default_factory=dict)
    expected: list[tuple[str, int, Promise]] = field(default_factory=list)
    last_qos_zero: int = 0

    def free_packet_id(self) -> int:
        return next(number for number in range(1, 100) if number not in self.sent)


class World:
    def __init__(self, durable: bool) -> None:
        self.node = Node(BrokerLimits(queue_messages_per_client_max=QUEUE_MESSAGES_MAX), durable=durable)
        self.model = BrokerModel(QUEUE_MESSAGES_MAX, self._chosen, lambda: self.node.now_ns)
        self.clients = {name: Client(name) for name in ("a", "b", "c")}
        self.last_tag = 0
        self.connecting = ""

    def new_tag(self) -> bytes:
        self.last_tag += 1
        return b"m%d" % self.last_tag

    def live(self, client: Client) -> tuple[Peer, ModelSession]:
        assert client.peer is not None
        return client.peer, self.model.sessions[client.name]

    # --- sessions -----------------------------------------------------------------------

    def connect(
        self, client: Client, user: str, clean: bool, expiry_s: int, receive_maximum: int, will: Will | None
    ) -> None:
        self.connecting = client.name
        peer = self.node.connect(
            client.name,
            user=user,
            clean=clean,
            expiry_s=expiry_s,
            receive_maximum=receive_maximum,
            will=will,
        )
        is_present = self.model.connect(client.name, user, clean, expiry_s, will, self.node.now_ns)
        self.connecting = ""
        assert peer.is_present == is_present, "Session Present is wrong"
        client.peer = peer
        client.receive_maximum = receive_maximum
        client.outstanding.clear()
        if not is_present:
            self.forget(client)
        released = sorted(self.live(client)[1].in_state(RELEASED), key=lambda copy: copy.sequence)
        client.expected = [("PUBREL", copy.packet_id, Promise()) for copy in released]
        self.observe()

    def forget(self, client: Client) -> None:
        """3.1.2.4 and 3.2.2-4: the client's part of the session goes too.

        It goes at once and not with CONNACK: a client that never saw it, and meets an older
        session after a crash, is beyond what a server can help.
        """
        client.incoming.clear()
        client.sent.clear()
        for (name, _), session in self.model.history.items():
            if name == client.name:
                session.is_forgotten = session is not self.model.sessions[name]
                for copy in session.copies.values():
                    copy.arrivals = 0

    def disconnect(self, client: Client, keep_will: bool, expiry_s: int | None) -> None:
        peer, session = self.live(client)
        if expiry_s and not session.expiry_s:
            expiry_s = None  # 3.14.2.2.2: the node does not let it pass
        client.peer = None
        self.node.disconnect(peer, keep_will=keep_will, expiry_s=expiry_s)
        self.model.disconnect(client.name, keep_will, expiry_s, self.node.now_ns)
        self.observe()

    def advance(self, duration_s: float) -> None:
        target_ns = self.node.now_ns + int(duration_s * SECOND)
        while True:
            wakeup_ns = self.node.broker.next_wakeup_ns()
            due_ns = self.model.next_due_ns()
            if due_ns is not None and due_ns <= target_ns:
                assert wakeup_ns is not None, "the broker forgot to ask for a wake-up"
                assert wakeup_ns <= max(due_ns, self.node.now_ns), "the broker wakes too late"
            if wakeup_ns is None or wakeup_ns > target_ns:
                break
            self.node.now_ns = max(self.node.now_ns, wakeup_ns)
            self.node.broker.wake(self.node.now_ns)
            self.model.wake(self.node.now_ns)
            self.observe()
        self.node.now_ns = target_ns

    # --- what clients send --------------------------------------------------------------

    def subscribe(self, client: Client, wanted: Subscription) -> None:
        peer, _ = self.live(client)
        mark = self.node.broker.mark()
        assert self.node.broker.subscribe(peer.session, wanted, self.node.now_ns) == wanted.qos
        self.node.broker.reply(peer.session, b"SUBACK", mark)
        promise = Promise()
        client.expected.append(("SUBACK", 0, promise))
        self.model.subscribe(wanted, promise, self.node.now_ns)
        self.observe(in_order=False)

    def unsubscribe(self, client: Client, topic_filter: str, name: str | None = None) -> None:
        peer, _ = self.live(client)
        promise = Promise()
        existed = self.model.unsubscribe(client.name, topic_filter, name, promise)
        assert self.node.unsubscribe(peer, topic_filter, name) == (0x00 if existed else 0x11)
        client.expected.append(("UNSUBACK", 0, promise))
        self.model.reassign_orphans()
        self.observe()

    def publish(self, client: Client, sent: Sent) -> None:
        packet_id = 0
        if sent.qos:
            packet_id = client.free_packet_id()
            client.sent[packet_id] = sent
        self.transmit(client, sent, packet_id)

    def transmit(self, client: Client, sent: Sent, packet_id: int) -> None:
        """Send a message, perhaps not for the first time."""
        peer, session = self.live(client)
        message = self.node.publish(
            peer,
            sent.topic,
            sent.payload,
            sent.qos,
            packet_id=packet_id,
            retain=sent.retain,
            expiry_s=sent.expiry_s,
            tag=sent.tag,
        )
        is_new = sent.qos < 2 or packet_id not in session.inbound
        if is_new:
            sent.promise = (
                Promise()
            )  # the answer to an earlier transmission says nothing of this one's copies
        if sent.qos:
            client.expected.append(("PUBACK" if sent.qos == 1 else "PUBREC", packet_id, sent.promise))
        if is_new:
            self.model.route(message, sent.promise)
            if sent.qos == 2:
                session.inbound.add(packet_id)
        self.observe()

    def release(self, client: Client, packet_id: int) -> None:
        peer, session = self.live(client)
        client.sent[packet_id].stage = "released"
        session.inbound.discard(packet_id)
        client.expected.append(("PUBCOMP", packet_id, Promise()))
        assert self.node.acknowledge(peer, PUBREL, packet_id)

    def acknowledge(self, client: Client, packet_id: int, code: int) -> None:
        """Answer a PUBLISH or PUBREL that arrived on this connection."""
        peer, session = self.live(client)
        packet = client.outstanding[packet_id]
        copy = self.in_flight(session, packet_id)
        if packet.kind == "PUBREL":
            del client.outstanding[packet_id]
            copy.state = GONE
            assert self.node.acknowledge(peer, PUBCOMP, packet_id)
        elif packet.qos == 1 or code:
            del client.outstanding[packet_id]
            copy.state = GONE
            if packet.qos == 2:  # it was refused, so it does not count as arrived
                del client.incoming[packet_id]
                copy.arrivals -= 1
            assert self.node.acknowledge(peer, PUBACK if packet.qos == 1 else PUBREC, packet_id, code)
        else:
            copy.state = RELEASED
            client.expected.append(("PUBREL", packet_id, Promise()))
            assert self.node.acknowledge(peer, PUBREC, packet_id)

    def acknowledge_unknown(self, client: Client, kind: int, packet_id: int) -> None:
        peer, session = self.live(client)
        if any(copy.packet_id == packet_id for copy in session.in_state(STARTED, RELEASED)):
            return
        assert self.node.acknowledge(peer, kind, packet_id)
        if kind == PUBREC:
            client.expected.append(("PUBREL", packet_id, Promise()))

    def acknowledge_wrongly(self, client: Client, packet_id: int) -> None:
        """PUBACK for QoS 2 and the like: the connection is closed, as the node does."""
        peer, _ = self.live(client)
        kind = PUBREC if client.outstanding[packet_id].qos == 1 else PUBACK
        assert not self.node.acknowledge(peer, kind, packet_id)
        self.disconnect(client, True, None)

    @staticmethod
    def in_flight(session: ModelSession, packet_id: int) -> Copy:
        [copy] = [copy for copy in session.in_state(STARTED, RELEASED) if copy.packet_id == packet_id]
        return copy

    # --- what clients see ---------------------------------------------------------------

    def flush(self, client: Client, bytes_max: int = BYTES_MAX) -> None:
        self.node.flush(client.name, bytes_max)
        peer = client.peer
        if peer is None:
            return
        packets = peer.take()
        self.sync(self.model.sessions[client.name], packets)
        for packet in packets:
            if client.peer is peer:
                self.receive(client, peer, packet)

    def receive(self, client: Client, peer: Peer, packet: Packet) -> None:
        if packet.kind == "CONNACK":
            self.greet(client)
        elif packet.kind == "PUBLISH":
            self.receive_publish(client, packet)
        else:
            kind, packet_id, promise = client.expected.pop(0)
            assert (packet.kind, packet.packet_id) == (kind, packet_id), "an answer is out of order"
            promise.kept = True
            self.receive_answer(client, packet)

    def greet(self, client: Client) -> None:
        self.model.sessions[client.name].promise.kept = True
        for packet_id, sent in list(client.sent.items()):
            if sent.stage == "sent":
                self.transmit(client, sent, packet_id)
            elif sent.stage == "released":
                self.release(client, packet_id)

    def receive_publish(self, client: Client, packet: Packet) -> None:
        session = self.model.sessions[client.name]
        if packet.qos == 0:
            assert packet.sequence > client.last_qos_zero or packet.sequence == 1
            return
        copy = self.in_flight(session, packet.packet_id)
        assert (packet.tag, packet.qos, packet.retain, sorted(packet.ids)) == copy.look()
        assert packet.packet_id not in client.outstanding, "sent twice on one connection"
        client.outstanding[packet.packet_id] = packet
        assert len(client.outstanding) <= client.receive_maximum, "Receive Maximum exceeded"
        if packet.qos == 2:
            if packet.packet_id in client.incoming:
                assert client.incoming[packet.packet_id] == packet.tag
                assert packet.dup
            else:
                client.incoming[packet.packet_id] = packet.tag
                copy.arrivals += 1
                assert copy.arrivals == 1, "a QoS 2 message arrived twice"

    def receive_answer(self, client: Client, packet: Packet) -> None:
        if packet.kind == "PUBACK":
            client.sent.pop(packet.packet_id, None)
        elif packet.kind == "PUBREC" and packet.packet_id in client.sent:
            if client.sent[packet.packet_id].stage == "sent":
                client.sent[packet.packet_id].stage = "received"
        elif packet.kind == "PUBCOMP":
            client.sent.pop(packet.packet_id, None)
        elif packet.kind == "PUBREL" and packet.code == 0:
            client.incoming.pop(packet.packet_id, None)
            client.outstanding[packet.packet_id] = packet

    # --- broker and model ---------------------------------------------------------------

    def broker_session(self, client_id: str) -> Session:
        session = self.node.broker.session(client_id)
        assert session is not None, f"the session of {client_id!r} is gone"
        return session

    def _chosen(self, candidates: list[Subscription], message: Message) -> Subscription:
        """The member of a group that the broker gave a message to."""
        for one in candidates:
            known = self.model.sessions[one.client_id]
            new = [
                delivery for delivery in self._new(known) if delivery.message.properties == message.properties
            ]
            coming = [copy for copy in known.coming if copy.tag == message.properties]
            if len(new) > len(coming):
                return one
        for one in candidates:
            if self.model.refuses(self.model.sessions[one.client_id], min(one.qos, message.qos)):
                return one
        for one in candidates:
            if one.client_id == self.connecting:
                return one
        raise AssertionError("a group lost a message")

    def _new(self, known: ModelSession) -> list[Delivery]:
        session = self.node.broker.session(known.client_id)
        if session is None:
            return []
        deliveries = [*session.blocked, *session.queue]
        return [delivery for delivery in deliveries if delivery.sequence not in known.copies]

    def observe(self, in_order: bool = True) -> None:
        """What the broker has newly queued must be what the model says is owed."""
        for known in self.model.sessions.values():
            new = self._new(known)
            coming = known.coming
            if not in_order:
                new.sort(key=lambda delivery: delivery.message.properties)
                coming.sort(key=lambda copy: copy.tag)
            looks = [
                (one.message.properties, one.qos, one.retain, sorted(one.subscription_ids)) for one in new
            ]
            assert looks == [copy.look() for copy in coming], f"{known.client_id!r} is owed something else"
            for delivery, copy in zip(new, coming, strict=True):
                copy.sequence = delivery.sequence
                known.copies[copy.sequence] = copy
            known.coming = []

    def sync(self, known: ModelSession, packets: list[Packet]) -> None:
        """After a flush: what left the queue was sent, begun, or had expired; and in order."""
        session = self.broker_session(known.client_id)
        waiting = {delivery.sequence for delivery in [*session.blocked, *session.queue]}
        begun = {delivery.sequence: delivery.packet_id for delivery in session.inflight.values()}
        written = {packet.sequence for packet in packets if packet.kind == "PUBLISH" and packet.qos == 0}
        was_passed_over = {0: False, 1: False}
        for copy in sorted(known.in_state(QUEUED), key=lambda copy: copy.sequence):
            if copy.sequence in waiting:
                was_passed_over[min(copy.qos, 1)] = True
                continue
            if copy.sequence in begun:
                copy.state = STARTED
                copy.packet_id = begun[copy.sequence]
            else:
                assert copy.sequence in written or copy.is_expired(self.node.now_ns), "a copy is lost"
                copy.state = GONE
            if not copy.is_expired(self.node.now_ns):
                assert not was_passed_over[min(copy.qos, 1)], "a copy overtook another"

    def check(self) -> None:
        self.node.check()
        assert set(self.model.sessions) == set(self.node.broker._sessions)
        open_pairs = 0
        for known in self.model.sessions.values():
            session = self.broker_session(known.client_id)
            assert (session.connection != 0) == known.is_connected
            queued = {delivery.sequence for delivery in [*session.blocked, *session.queue]}
            assert queued == {copy.sequence for copy in known.in_state(QUEUED)}
            in_flight = {
                delivery.sequence: (delivery.packet_id, delivery.state == DELIVERY_RELEASED)
                for delivery in session.inflight.values()
            }
            assert in_flight == {
                copy.sequence: (copy.packet_id, copy.state == RELEASED)
                for copy in known.in_state(STARTED, RELEASED)
            }
            assert set(session.subscriptions) == set(known.subscriptions)
            assert set(session.inbound) == known.inbound
            unsettled = [one for one in session.inflight.values() if not one.is_settled]
            open_pairs += sum(1 + len(one.others) for one in [*session.blocked, *session.queue, *unsettled])
        self.check_account(open_pairs)
        retained = {topic: message.properties for topic, message in self.model.retained.items()}
        assert retained == {
            topic: message.properties for topic, message in self.node.broker._retained._messages.items()
        }

    def check_account(self, open_pairs: int) -> None:
        account = self.node.broker.account
        assert account.matched == self.model.matched
        settled = account.in_time + account.late + sum(account.dropped.values())
        assert account.matched == settled + open_pairs, "the account does not add up"

    def settle(self) -> None:
        """Let everything happen that can; then nothing may be owed that could have been sent."""
        for _ in range(1_000):
            self.node.take_batch()
            self.node.commit()
            self.node.collect_ready()
            if not (self.node.ready or self.node.pending):
                break
            for client in self.clients.values():
                self.flush(client)
            self.node.ready = {
                name: session for name, session in self.node.ready.items() if session.connection
            }
        else:
            raise AssertionError("the broker does not come to rest")
        for client in self.clients.values():
            if client.peer is not None:
                self.check_served(client)

    def check_served(self, client: Client) -> None:
        peer, known = self.live(client)
        assert peer.is_greeted, "CONNACK never came"
        assert not client.expected, "an answer never came"
        queued = known.in_state(QUEUED)
        assert all(copy.qos for copy in queued), "a QoS 0 copy was left behind"
        unseen = [copy for copy in known.in_state(STARTED) if copy.packet_id not in client.outstanding]
        in_use = len(client.outstanding)
        assert not (queued or unseen) or in_use >= client.receive_maximum, "a copy was left behind"

    # --- crashes ------------------------------------------------------------------------

    def crash(self, downtime_s: float) -> None:
        """The broker dies with what was not committed, and starts again."""
        model, storage = self.model, self.node.storage
        for client in self.clients.values():
            client.peer = None
            client.outstanding.clear()
            client.expected.clear()
        for known in model.sessions.values():
            self.check_promises(known)
        self.check_retained_promises()
        self.check_will_promises()
        self.node.crash(downtime_s)
        self.restore(storage.generations)
        self.observe()
        self.advance(0)

    def check_promises(self, known: ModelSession) -> None:
        storage = self.node.storage
        name = known.client_id
        if not known.is_durable:
            return
        is_current = storage.generations.get(name, 0) == known.generation and name in storage.sessions
        assert is_current or not known.promise.kept, "a session is lost whose CONNACK was seen"
        for copy in known.in_state(QUEUED, STARTED, RELEASED):
            is_stored = is_current and (name, copy.sequence) in storage.deliveries
            assert is_stored or copy.qos == 0 or not copy.promise.kept, "an acknowledged message is lost"
        for topic_filter, (_, promise) in known.subscriptions.items():
            is_stored = is_current and (name, topic_filter) in storage.subscriptions
            assert is_stored or not promise.kept, "a subscription is lost whose SUBACK was seen"
        for topic_filter, promise in known.removed.items():
            assert not promise.kept or (name, topic_filter) not in storage.subscriptions
        if is_current and known.promise.kept:
            self.check_inbound(known)

    def check_inbound(self, known: ModelSession) -> None:
        """A lost packet id would let a message in twice; one kept too long would keep one out."""
        name = known.client_id
        sent = self.clients[name].sent
        stored = {packet_id for client_id, packet_id in self.node.storage.inbound if client_id == name}
        for packet_id, message in sent.items():
            assert message.stage != "received" or packet_id in stored, "a QoS 2 packet id is lost"
        is_kept_out = not stored <= set(sent) and not known.is_forgotten
        assert not is_kept_out, "a QoS 2 packet id was kept although PUBCOMP was seen"

    def check_retained_promises(self) -> None:
        for topic, promise in self.model.retained_promises.items():
            if promise.kept:
                kept = self.model.retained.get(topic)
                stored = self.node.storage.retained.get(topic)
                if kept is not None:
                    assert stored is not None, "an acknowledged retained message is lost"
                    assert stored.properties == kept.properties
                else:
                    assert stored is None or stored.is_expired(self.node.now_ns)

    def check_will_promises(self) -> None:
        for name, pending in self.model.wills.items():
            if pending.promise.kept:
                stored = self.node.storage.wills.get(name)
                assert stored is not None, "a will is lost"
                assert stored.message.properties == pending.will.message.properties

    def restore(self, generations: dict[str, int]) -> None:
        """Make the model what the restored broker is; what may have been lost is lost."""
        model, storage = self.model, self.node.storage
        now_ns = self.node.now_ns
        model.generations = dict(generations)
        model.sessions = {}
        model.matched = 0
        for name, row in storage.sessions.items():
            known = model.history[name, generations.get(name, 0)]
            model.sessions[name] = known
            known.user = row.user
            known.is_connected = False
            known.is_durable = True
            known.expiry_s = row.expiry_interval_s
            known.expires_ns = 0
            model.expire_after(known, row.ended_ns or now_ns)
            known.coming = []
            known.removed = {}
            known.inbound = {packet_id for client_id, packet_id in storage.inbound if client_id == name}
            self.restore_subscriptions(known)
            self.restore_copies(known)
        model.retained = {
            topic: message for topic, message in storage.retained.items() if not message.is_expired(now_ns)
        }
        model.retained_promises = {}
        self.restore_wills()

    def restore_subscriptions(self, known: ModelSession) -> None:
        before = known.subscriptions
        known.subscriptions = {}
        for (client_id, topic_filter), wanted in self.node.storage.subscriptions.items():
            if client_id == known.client_id:
                old = before.get(topic_filter)
                promise = old[1] if old is not None and old[0] is wanted else Promise()
                known.subscriptions[topic_filter] = (wanted, promise)

    def restore_copies(self, known: ModelSession) -> None:
        before = known.copies
        known.copies = {}
        for (client_id, sequence), row in sorted(self.node.storage.deliveries.items()):
            if client_id == known.client_id:
                copy = before[sequence]
                assert copy.tag == self.node.storage.messages[row.message_sequence].properties
                copy.packet_id = row.packet_id
                copy.state = (QUEUED, STARTED, RELEASED)[row.state]
                found = self.restored_subscriptions(known, copy, row.subscription_ids)
                unshared = [one for one in found if not split_share(one.topic_filter)[0]]
                copy.pairs = len(unshared) or 1
                copy.group = found[0].topic_filter if found and not unshared else ""
                known.copies[sequence] = copy
                self.model.matched += copy.pairs

    @staticmethod
    def restored_subscriptions(
        known: ModelSession, copy: Copy, identifiers: tuple[int, ...]
    ) -> list[Subscription]:
        """The subscriptions that a stored copy may be for."""
        message = copy.message
        assert message is not None
        return [
            one
            for one, _ in known.subscriptions.values()
            if selects(split_share(one.topic_filter)[1], message.topic)
            and not (one.no_local and one.client_id == message.publisher)
            and (not one.identifier or not identifiers or one.identifier in identifiers)
        ]

    def restore_wills(self) -> None:
        model, now_ns = self.model, self.node.now_ns
        model.wills = {}
        due: list[Will] = []
        for name, will in self.node.storage.wills.items():
            owner = model.sessions.get(name)
            delay_s = min(will.delay_s, owner.expiry_s) if owner is not None else 0
            if owner is None or (will.due_ns == 0 and delay_s == 0):
                due.append(will)
            else:
                model.wills[name] = PendingWill(will, Promise(), will.due_ns or now_ns + delay_s * SECOND)
        model.publish_wills(due, now_ns)
