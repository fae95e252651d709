"""Storage of a simulated broker: tables as dicts, and a disk that commits late.

`Tables` applies store orders and reads them back as fresh objects, so a broker restored from it shares
nothing with the one that crashed. `LateDisk` applies a batch after a drawn delay, in order; a crash loses
what it has not applied yet, and while it fails it applies nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from timebound.core.sessions.durability import Batch
from timebound.core.values.message import Delivery, Message, MessageName
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
from timebound.sim.deployment.timers import VirtualClock
from timebound.terms import with_name


def copy_message(message: Message) -> Message:
    """Return a message with the values that storage keeps."""
    copy = Message(
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
    name = message.name
    if name is not None:
        copy.name = MessageName(name.origin, name.started_ns, name.number)
    return copy


def copy_subscription(subscription: Subscription) -> Subscription:
    """Return the same subscription as a new object, which nothing else has changed."""
    return Subscription(
        client_id=subscription.client_id,
        topic_filter=subscription.topic_filter,
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        retain_handling=subscription.retain_handling,
        identifier=subscription.identifier,
        terms=subscription.terms,
        user_properties=subscription.user_properties,
    )


class Tables:
    """What is stored, as rows. They are made when a batch is written, as the storage's thread does."""

    def __init__(self) -> None:
        self.sessions: dict[str, PutSession] = {}
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        self.messages: dict[int, Message] = {}
        self.deliveries: dict[tuple[str, int], PutDelivery] = {}
        self.inbound: dict[tuple[str, int], bool] = {}
        self.retained: dict[str, Message] = {}
        self.wills: dict[str, Will] = {}
        self.sequence_max = 0
        self.started_ns = 0  # when the broker that writes had started
        self.generations: dict[str, int] = {}  # how often each client's session was dropped

    def apply(self, orders: Iterable[StoreOrder]) -> None:
        """Write orders, in their order."""
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
            self.subscriptions[wanted.client_id, wanted.key] = wanted
        elif isinstance(order, DropSubscription):
            self.subscriptions.pop((order.client_id, with_name(order.topic_filter, order.name)), None)

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
            self.messages[order.message.sequence] = self._stored(order.message)
            self.sequence_max = max(self.sequence_max, order.message.sequence)
        elif isinstance(order, DropMessage):
            self.messages.pop(order.sequence, None)
        elif isinstance(order, PutDelivery):
            self.deliveries[order.client_id, order.sequence] = order
        elif isinstance(order, DropDelivery):
            self.deliveries.pop((order.client_id, order.sequence), None)
        elif isinstance(order, PutRetained):
            self.retained[order.message.topic] = self._stored(order.message)
            self.sequence_max = max(self.sequence_max, order.message.sequence)
        elif isinstance(order, DropRetained):
            self.retained.pop(order.topic, None)
        else:
            raise AssertionError(f"unknown order {order!r}")

    def _stored(self, message: Message) -> Message:
        """Return a row for a message; one of this broker is named after its present start."""
        stored = copy_message(message)
        if stored.name is None:
            stored.name = MessageName("", self.started_ns, message.sequence)
        return stored

    def check(self) -> None:
        """Assert that what is stored is whole: no delivery without its message and session."""
        for (client_id, sequence), delivery in self.deliveries.items():
            assert client_id in self.sessions, f"delivery {sequence} of {client_id!r} has no session"
            assert delivery.message_sequence in self.messages, f"delivery {sequence} has no message"
        used = {delivery.message_sequence for delivery in self.deliveries.values()}
        assert used == set(self.messages), "a message is stored that no delivery needs"
        for client_id, _ in [*self.subscriptions, *self.inbound]:
            assert client_id in self.sessions, f"rows of {client_id!r} have no session"

    def snapshot(self) -> Snapshot:
        """Return everything that a broker starts with, as new objects."""
        snapshot = Snapshot()
        snapshot.sequence_max = self.sequence_max
        messages = {sequence: copy_message(message) for sequence, message in self.messages.items()}
        for row in self.sessions.values():
            stored = StoredSession(row.client_id, row.expiry_interval_s, row.ended_ns, row.user)
            stored.inbound = [key[1] for key in self.inbound if key[0] == row.client_id]
            stored.subscriptions = [
                copy_subscription(subscription)
                for key, subscription in self.subscriptions.items()
                if key[0] == row.client_id
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


class LateDisk:
    """Commits batches in order, each some time after the one before."""

    def __init__(self, random: Random, delay_ns: int) -> None:
        self.tables = Tables()
        self.pending_orders = 0
        self._random = random
        self._delay_ns = delay_ns  # at most
        self._batches: deque[tuple[Batch, Callable[[Batch], None]]] = deque()
        self._is_failing = False
        self._is_committing = False

    def submit(self, batch: Batch, clock: VirtualClock, done: Callable[[Batch], None]) -> None:
        """Queue a batch; `done` is called when it is on disk, unless its broker crashes before."""
        self._batches.append((batch, done))
        self.pending_orders += len(batch.orders)
        self._begin(clock)

    def fail(self) -> None:
        """Commit nothing until `work`."""
        self._is_failing = True

    def work(self, clock: VirtualClock) -> bool:
        """Commit again what has waited; return whether anything has."""
        has_waited = self._is_failing and len(self._batches) > 0
        self._is_failing = False
        self._begin(clock)
        return has_waited

    def hurry(self) -> None:
        """Commit at once from now on."""
        self._delay_ns = 0

    def crash(self) -> bool:
        """Lose what is not committed; return whether there was anything."""
        has_lost = len(self._batches) > 0
        self._batches.clear()
        self.pending_orders = 0
        self._is_committing = False
        self._is_failing = False
        return has_lost

    def _begin(self, clock: VirtualClock) -> None:
        if self._batches and not self._is_committing and not self._is_failing:
            self._is_committing = True
            delay_ns = self._random.randrange(self._delay_ns + 1)
            clock.call_at_ns(clock.now_ns() + delay_ns, lambda: self._commit(clock))

    def _commit(self, clock: VirtualClock) -> None:
        self._is_committing = False
        if self._is_failing or not self._batches:
            return
        batch, done = self._batches.popleft()
        self.pending_orders -= len(batch.orders)
        self.tables.apply(batch.orders)
        self.tables.check()
        done(batch)
        self._begin(clock)
