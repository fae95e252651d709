"""Doubles around a real broker core: a storage that remembers, and a node without sockets.

`RecordingStorage` keeps what was committed, as rows, and reads it back as fresh objects, so a
broker restored from it shares nothing with the one that crashed. `Node` does what the network
node does in a turn, one step at a time, so that a test decides what happens between the steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timebound.core.broker import Broker, Close
from timebound.core.sessions.durability import Batch
from timebound.core.sessions.session import ENCODED, PUBACK, PUBCOMP, PUBREC, PUBREL, Reply, Session
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import (
    DropDelivery,
    DropInbound,
    DropMessage,
    DropRetained,
    DropSession,
    DropSubscription,
    DropWill,
    PutDelivery,
    PutInbound,
    PutMessage,
    PutRetained,
    PutSession,
    PutSubscription,
    PutWill,
    Snapshot,
    StoredSession,
    StoreOrder,
    Will,
)
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.units import SECOND

START_NS = 1_000_000 * SECOND
NEVER_S = 0xFFFFFFFF
KINDS = {PUBACK: "PUBACK", PUBREC: "PUBREC", PUBREL: "PUBREL", PUBCOMP: "PUBCOMP"}
BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Packet:
    """What a client reads; `kind` is MQTT's name of it."""

    kind: str
    packet_id: int = 0
    code: int = 0
    topic: str = ""
    payload: bytes = b""
    tag: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    ids: tuple[int, ...] = ()
    sequence: int = 0  # of the delivery; not on the wire, for the tests' book-keeping


def copy_message(message: Message) -> Message:
    return Message(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.published_ns,
        message.publisher,
        message.properties,
        message.user_properties,
        message.expires_ns,
        message.timeout_ns,
        message.priority,
        message.sequence,
    )


class RecordingStorage:
    """Tables as dicts. Rows are made when a batch is written, as the worker thread does."""

    def __init__(self) -> None:
        self.sessions: dict[str, PutSession] = {}
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        self.messages: dict[int, Message] = {}
        self.deliveries: dict[tuple[str, int], PutDelivery] = {}
        self.inbound: dict[tuple[str, int], bool] = {}
        self.retained: dict[str, Message] = {}
        self.wills: dict[str, Will] = {}
        self.sequence_max = 0
        self.generations: dict[str, int] = {}  # how often each client's session was dropped

    def apply(self, orders: Iterable[StoreOrder]) -> None:
        for order in orders:
            if isinstance(order, (PutSession, DropSession, PutSubscription, DropSubscription)):
                self._apply_session(order)
            elif isinstance(order, (PutInbound, DropInbound, PutWill, DropWill)):
                self._apply_small(order)
            else:
                self._apply_message(order)

    def _apply_session(self, order: StoreOrder) -> None:
        if isinstance(order, PutSession):
            self.sessions[order.client_id] = order
        elif isinstance(order, DropSession):
            self.sessions.pop(order.client_id, None)
            self.generations[order.client_id] = self.generations.get(order.client_id, 0) + 1
            name = order.client_id
            self.subscriptions = {key: row for key, row in self.subscriptions.items() if key[0] != name}
            self.deliveries = {key: row for key, row in self.deliveries.items() if key[0] != name}
            self.inbound = {key: row for key, row in self.inbound.items() if key[0] != name}
        elif isinstance(order, PutSubscription):
            wanted = order.subscription
            self.subscriptions[wanted.client_id, wanted.topic_filter] = wanted
        elif isinstance(order, DropSubscription):
            self.subscriptions.pop((order.client_id, order.topic_filter), None)

    def _apply_small(self, order: StoreOrder) -> None:
        if isinstance(order, PutInbound):
            self.inbound[order.client_id, order.packet_id] = True
        elif isinstance(order, DropInbound):
            self.inbound.pop((order.client_id, order.packet_id), None)
        elif isinstance(order, PutWill):
            message = copy_message(order.message)
            self.wills[order.client_id] = Will(
                order.client_id, message, order.delay_s, order.due_ns, order.user
            )
        elif isinstance(order, DropWill):
            self.wills.pop(order.client_id, None)

    def _apply_message(self, order: StoreOrder) -> None:
        if isinstance(order, PutMessage):
            self.messages[order.message.sequence] = copy_message(order.message)
            self.sequence_max = max(self.sequence_max, order.message.sequence)
        elif isinstance(order, DropMessage):
            self.messages.pop(order.sequence, None)
        elif isinstance(order, PutDelivery):
            self.deliveries[order.client_id, order.sequence] = order
        elif isinstance(order, DropDelivery):
            self.deliveries.pop((order.client_id, order.sequence), None)
        elif isinstance(order, PutRetained):
            self.retained[order.message.topic] = copy_message(order.message)
            self.sequence_max = max(self.sequence_max, order.message.sequence)
        elif isinstance(order, DropRetained):
            self.retained.pop(order.topic, None)
        else:
            raise AssertionError(f"unknown order {order!r}")

    def check(self) -> None:
        """What storage holds must be whole: no delivery without its message and session."""
        for (client_id, sequence), delivery in self.deliveries.items():
            assert client_id in self.sessions, f"delivery {sequence} of {client_id!r} has no session"
            assert delivery.message_sequence in self.messages, f"delivery {sequence} has no message"
        used = {delivery.message_sequence for delivery in self.deliveries.values()}
        assert used == set(self.messages), "a message is stored that no delivery needs"
        for client_id, _ in [*self.subscriptions, *self.inbound]:
            assert client_id in self.sessions

    def snapshot(self) -> Snapshot:
        snapshot = Snapshot()
        snapshot.sequence_max = self.sequence_max
        messages = {sequence: copy_message(message) for sequence, message in self.messages.items()}
        for row in self.sessions.values():
            stored = StoredSession(row.client_id, row.expiry_interval_s, row.ended_ns, row.user)
            stored.inbound = [key[1] for key in self.inbound if key[0] == row.client_id]
            stored.subscriptions = [
                subscription for key, subscription in self.subscriptions.items() if key[0] == row.client_id
            ]
            for client_id, sequence in sorted(self.deliveries):
                if client_id == row.client_id:
                    put = self.deliveries[client_id, sequence]
                    stored.deliveries.append(_delivery(put, messages[put.message_sequence]))
            snapshot.sessions.append(stored)
        snapshot.retained = [copy_message(message) for message in self.retained.values()]
        for will in self.wills.values():
            message = copy_message(will.message)
            snapshot.wills.append(Will(will.client_id, message, will.delay_s, will.due_ns, will.user))
        return snapshot


def _delivery(row: PutDelivery, message: Message) -> Delivery:
    delivery = Delivery(
        message, row.qos, row.retain, row.subscription_ids, row.sequence, row.packet_id, row.state
    )
    delivery.stored = True
    message.stored_copies += 1
    return delivery


class Peer:
    """The client's end of one connection: everything that arrived on it, in order."""

    def __init__(self, client_id: str, number: int, session: Session, is_present: bool) -> None:
        self.client_id = client_id
        self.number = number
        self.session = session
        self.is_present = is_present
        self.is_greeted = False  # CONNACK was written
        self.packets: list[Packet] = []
        self.closed_with: Close | None = None

    def kinds(self) -> list[str]:
        return [packet.kind for packet in self.packets]

    def publishes(self) -> list[Packet]:
        return [packet for packet in self.packets if packet.kind == "PUBLISH"]

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.publishes()]

    def take(self) -> list[Packet]:
        taken = self.packets
        self.packets = []
        return taken


class Node:
    """A broker with everything around it but sockets, threads and a clock."""

    def __init__(
        self, limits: BrokerLimits | None = None, rules: list[AccessRule] | None = None, durable: bool = True
    ) -> None:
        self.limits = limits or BrokerLimits()
        self.access = AccessList(rules or [])
        self.is_durable = durable
        self.storage = RecordingStorage()
        self.pending: list[Batch] = []
        self.peers: dict[int, Peer] = {}
        self.ready: dict[str, Session] = {}
        self.now_ns = START_NS
        self.last_number = 0
        self.broker = Broker(self.limits, self.access, durable)

    # What clients do.

    def connect(
        self,
        client_id: str,
        *,
        user: str = "",
        clean: bool = False,
        expiry_s: int = NEVER_S,
        receive_maximum: int = 65_535,
        will: Will | None = None,
    ) -> Peer:
        self.last_number += 1
        number = self.last_number
        mark = self.broker.mark()
        session, is_present = self.broker.connect(
            client_id, user, clean, expiry_s, receive_maximum, will, number, self.now_ns
        )
        peer = Peer(client_id, number, session, is_present)
        self.peers[number] = peer
        self.broker.reply(session, b"CONNACK", mark)
        self.take_closes()
        return peer

    def disconnect(self, peer: Peer, *, keep_will: bool = True, expiry_s: int | None = None) -> None:
        if peer.number in self.peers:
            del self.peers[peer.number]
            if expiry_s is not None:
                peer.session.expiry_interval_s = expiry_s
            self.broker.disconnect(peer.session, peer.number, keep_will, self.now_ns)

    def subscribe(
        self,
        peer: Peer,
        topic_filter: str,
        qos: int = 2,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
    ) -> int:
        mark = self.broker.mark()
        subscription = Subscription(
            peer.client_id, topic_filter, qos, no_local, retain_as_published, retain_handling, identifier
        )
        code = self.broker.subscribe(peer.session, subscription, self.now_ns)
        self.broker.reply(peer.session, b"SUBACK", mark)
        return code

    def unsubscribe(self, peer: Peer, topic_filter: str) -> int:
        mark = self.broker.mark()
        code = self.broker.unsubscribe(peer.session, topic_filter, self.now_ns)
        self.broker.reply(peer.session, b"UNSUBACK", mark)
        return code

    def publish(
        self,
        peer: Peer,
        topic: str,
        payload: bytes = b"x",
        qos: int = 0,
        *,
        packet_id: int = 1,
        retain: bool = False,
        expiry_s: int | None = None,
        tag: bytes = b"",
    ) -> Message:
        message = Message(topic, payload, qos, retain, self.now_ns, peer.client_id, tag)
        if expiry_s is not None:
            message.expires_ns = self.now_ns + expiry_s * SECOND
        self.broker.publish(peer.session, message, packet_id if qos else 0, self.now_ns)
        return message

    def acknowledge(self, peer: Peer, kind: int, packet_id: int, code: int = 0) -> bool:
        return self.broker.acknowledge(peer.session, kind, packet_id, code, self.now_ns)

    def abandon(self, peer: Peer, delivery: Delivery, reason: Reason) -> None:
        self.broker.abandon(peer.session, delivery, reason, self.now_ns)

    # What the node does.

    def take_closes(self) -> None:
        for close in self.broker.take_closes():
            self.peers.pop(close.connection).closed_with = close

    def collect_ready(self) -> None:
        for session in self.broker.take_ready():
            self.ready[session.client_id] = session

    def flush(self, client_id: str, bytes_max: int = BYTES_MAX) -> None:
        """Write what one session has ready, if it was announced as ready."""
        self.collect_ready()
        session = self.ready.pop(client_id, None)
        if session is None or session.connection not in self.peers:
            return
        peer = self.peers[session.connection]
        if not peer.is_greeted and not _greet(session):
            return
        peer.is_greeted = True
        for reply in session.replies:
            peer.packets.append(_reply_packet(reply))
        session.replies.clear()
        for delivery in self.broker.take_deliveries(session, bytes_max, self.now_ns):
            peer.packets.append(_publish_packet(delivery))
        self.broker.put_ready(session)
        self.collect_ready()

    def flush_all(self) -> None:
        self.collect_ready()
        rounds = 0
        while self.ready:
            rounds += 1
            assert rounds < 1_000, "a session is ready for ever and has nothing to write"
            for client_id in list(self.ready):
                self.flush(client_id)

    def take_batch(self) -> None:
        batch = self.broker.take_batch()
        if batch is not None:
            self.pending.append(batch)

    def commit(self) -> None:
        """The oldest batch reaches the disk."""
        if self.pending:
            batch = self.pending.pop(0)
            self.storage.apply(batch.orders)
            self.storage.check()
            self.broker.committed(batch)

    def settle(self) -> None:
        """Turns until nothing is left to do."""
        self.flush_all()
        self.take_batch()
        while self.pending:
            self.commit()
            self.flush_all()
            self.take_batch()

    def advance(self, duration_s: float) -> None:
        """Let time pass; the broker is woken exactly when it asked to be."""
        target_ns = self.now_ns + int(duration_s * SECOND)
        while (wakeup_ns := self.broker.next_wakeup_ns()) is not None and wakeup_ns <= target_ns:
            self.now_ns = max(wakeup_ns, self.now_ns)
            self.broker.wake(self.now_ns)
        self.now_ns = target_ns

    def crash(self, downtime_s: float = 0) -> None:
        """Lose everything that was not committed, and start again from storage."""
        self.pending.clear()
        self.peers.clear()
        self.ready.clear()
        self.now_ns += int(downtime_s * SECOND)
        self.broker = Broker(self.limits, self.access, self.is_durable)
        self.broker.restore(self.storage.snapshot(), self.now_ns)

    def check(self) -> None:
        self.broker._check()


class Pair:
    """A publisher and one subscriber to `t`."""

    def __init__(
        self, qos: int = 2, *, receive_maximum: int = 65_535, durable: bool = False, **limits: int
    ) -> None:
        self.node = Node(BrokerLimits(**limits), durable=durable)
        self.publisher = self.node.connect("publisher")
        self.receiver = self.node.connect("receiver", receive_maximum=receive_maximum)
        self.node.subscribe(self.receiver, "t", qos)
        self.node.settle()
        self.receiver.take()

    def publish(self, *payloads: bytes, qos: int = 2, expiry_s: int | None = None) -> None:
        for payload in payloads:
            self.node.publish(self.publisher, "t", payload, qos, expiry_s=expiry_s)
            self.node.acknowledge(self.publisher, PUBREL, 1)

    def received(self) -> list[Packet]:
        self.node.settle()
        return self.receiver.take()

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.received() if packet.kind == "PUBLISH"]

    def reconnect(self, *, receive_maximum: int = 65_535) -> Peer:
        self.node.disconnect(self.receiver)
        self.receiver = self.node.connect("receiver", receive_maximum=receive_maximum)
        return self.receiver

    def dropped(self, reason: Reason) -> int:
        return self.node.broker.account.dropped[reason.value]


def _greet(session: Session) -> bool:
    """Put CONNACK first; False while it waits for storage, and then nothing may be written (3.2)."""
    for reply in session.replies:
        if reply.frame == b"CONNACK":
            session.replies.remove(reply)
            session.replies.insert(0, reply)
            return True
    return False


def _reply_packet(reply: Reply) -> Packet:
    if reply.kind == ENCODED:
        return Packet(reply.frame.decode())
    return Packet(KINDS[reply.kind], reply.packet_id, reply.reason_code)


def _publish_packet(delivery: Delivery) -> Packet:
    message = delivery.message
    return Packet(
        "PUBLISH",
        delivery.packet_id,
        0,
        message.topic,
        message.payload,
        message.properties,
        delivery.qos,
        delivery.retain,
        delivery.dup,
        delivery.subscription_ids,
        delivery.sequence,
    )


def make_will(
    client_id: str,
    topic: str,
    *,
    payload: bytes = b"gone",
    qos: int = 1,
    retain: bool = False,
    delay_s: int = 0,
    expiry_s: int | None = None,
    tag: bytes = b"",
) -> Will:
    message = Message(topic, payload, qos, retain, START_NS, client_id, tag)
    if expiry_s is not None:
        message.expires_ns = expiry_s * SECOND
    return Will(client_id, message, delay_s)
