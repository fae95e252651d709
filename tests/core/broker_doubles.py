"""Doubles around a real broker core: a storage that remembers, and a node without sockets.

Storage is that of a simulated node: it keeps what was committed, as rows, and reads it back as fresh
objects. `Node` does what the network node does in a turn, one step at a time, so that a test decides
what happens between the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from timebound.core.broker import Broker, Close
from timebound.core.sessions.durability import Batch
from timebound.core.sessions.session import ENCODED, PUBACK, PUBCOMP, PUBREC, PUBREL, Reply, Session
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import (
    Will,
)
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.sim.deployment.storage import Tables
from timebound.terms import DEFAULT_TERMS, Terms
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
        self.storage = Tables()
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
        terms: Terms = DEFAULT_TERMS,
    ) -> int:
        mark = self.broker.mark()
        subscription = Subscription(
            client_id=peer.client_id,
            topic_filter=topic_filter,
            qos=qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
            identifier=identifier,
            terms=terms,
        )
        code = self.broker.subscribe(peer.session, subscription, self.now_ns)
        self.broker.reply(peer.session, b"SUBACK", mark)
        return code

    def unsubscribe(self, peer: Peer, topic_filter: str, name: str | None = None) -> int:
        mark = self.broker.mark()
        code = self.broker.unsubscribe(peer.session, topic_filter, self.now_ns, name)
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
