"""Groups of orders against a model that applies them one by one, with closing and reopening."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    StoreOrder,
    Will,
)
from timebound.core.values.subscription import Subscription
from timebound.node.storage.plan import ROWS_MAX, _chunks
from timebound.node.storage.storage import Storage
from timebound.wire.terms import parse_subscribe_terms

WAIT_S = 10.0
# In memory where there is such a place: every example makes a database, and each syncs a few times.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
NOW_NS = 1_700_000_000_000_000_000


class Model:
    """What storage should hold: plain dictionaries, one order at a time."""

    def __init__(self) -> None:
        self.sessions: dict[str, Any] = {}
        self.subscriptions: dict[tuple[str, str], Any] = {}
        self.messages: dict[int, Any] = {}
        self.deliveries: dict[tuple[str, int], Any] = {}
        self.inbound: set[tuple[str, int]] = set()
        self.retained: dict[str, Any] = {}
        self.wills: dict[str, Any] = {}
        self.sequence_max = 0

    def apply(self, order: StoreOrder) -> None:
        match order:
            case PutSession():
                self.sessions[order.client_id] = (order.expiry_interval_s, order.ended_ns, order.user)
            case DropSession():
                self.drop_session(order.client_id)
            case PutSubscription(subscription=wanted):
                key = (wanted.client_id, wanted.terms.name, wanted.topic_filter)
                self.subscriptions[key] = subscription_fields(wanted)
            case DropSubscription():
                self.subscriptions.pop((order.client_id, order.name, order.topic_filter), None)
            case PutMessage(message=message):
                self.sequence_max = max(self.sequence_max, message.sequence)
                self.messages[message.sequence] = message_fields(message)
            case DropMessage():
                self.messages.pop(order.sequence, None)
            case PutDelivery():
                self.deliveries[order.client_id, order.sequence] = delivery_fields(order)
            case DropDelivery():
                self.deliveries.pop((order.client_id, order.sequence), None)
            case PutInbound():
                self.inbound.add((order.client_id, order.packet_id))
            case DropInbound():
                self.inbound.discard((order.client_id, order.packet_id))
            case PutRetained(message=message):
                self.sequence_max = max(self.sequence_max, message.sequence)
                self.retained[message.topic] = message_fields(message)
            case DropRetained():
                self.retained.pop(order.topic, None)
            case PutWill(message=message):
                self.sequence_max = max(self.sequence_max, message.sequence)
                fields = (message_fields(message), order.delay_s, order.due_ns, order.user)
                self.wills[order.client_id] = fields
            case DropWill():
                self.wills.pop(order.client_id, None)
            case _:
                raise AssertionError(f"the model does not know {order}")

    def drop_session(self, client_id: str) -> None:
        self.sessions.pop(client_id, None)
        self.subscriptions = {key: row for key, row in self.subscriptions.items() if key[0] != client_id}
        self.deliveries = {key: row for key, row in self.deliveries.items() if key[0] != client_id}
        self.inbound = {key for key in self.inbound if key[0] != client_id}

    def forget_unreachable(self) -> None:
        """What opening sweeps away."""
        self.subscriptions = {k: v for k, v in self.subscriptions.items() if k[0] in self.sessions}
        self.inbound = {key for key in self.inbound if key[0] in self.sessions}
        self.deliveries = {
            k: v for k, v in self.deliveries.items() if k[0] in self.sessions and v[0] in self.messages
        }
        used = {row[0] for row in self.deliveries.values()}
        self.messages = {k: v for k, v in self.messages.items() if k in used}

    def keys(self) -> dict[str, list[Any]]:
        return {
            "message": sorted((sequence,) for sequence in self.messages),
            "delivery": sorted(self.deliveries),
            "subscription": sorted(self.subscriptions),
            "inbound": sorted(self.inbound),
        }

    def visible(self) -> dict[str, Any]:
        sessions = {}
        for client_id, fields in sorted(self.sessions.items()):
            deliveries = [
                (key[1], self.messages[row[0]], row[1:])
                for key, row in sorted(self.deliveries.items())
                if key[0] == client_id and row[0] in self.messages
            ]
            sessions[client_id] = (
                fields,
                [row for key, row in sorted(self.subscriptions.items()) if key[0] == client_id],
                deliveries,
                sorted(key[1] for key in self.inbound if key[0] == client_id),
            )
        return {
            "sessions": sessions,
            "retained": [row for _, row in sorted(self.retained.items())],
            "wills": dict(sorted(self.wills.items())),
            "sequence_max": self.sequence_max,
        }


def visible(snapshot: Snapshot) -> dict[str, Any]:
    sessions = {}
    for stored in snapshot.sessions:
        deliveries = [
            (delivery.sequence, message_fields(delivery.message), delivery_values(delivery))
            for delivery in stored.deliveries
        ]
        sessions[stored.client_id] = (
            (stored.expiry_interval_s, stored.ended_ns, stored.user),
            [subscription_fields(subscription) for subscription in stored.subscriptions],
            deliveries,
            stored.inbound,
        )
    return {
        "sessions": sessions,
        "retained": [message_fields(message) for message in snapshot.retained],
        "wills": {
            will.client_id: (message_fields(will.message), will.delay_s, will.due_ns, will.user)
            for will in snapshot.wills
        },
        "sequence_max": snapshot.sequence_max,
    }


def keys(directory: str) -> dict[str, list[Any]]:
    """The rows on disk, those included that no session can reach."""
    connection = sqlite3.connect(f"{directory}/timebound.db")
    try:
        return {
            "message": sorted(connection.execute("SELECT sequence FROM message")),
            "delivery": sorted(connection.execute("SELECT client_id, sequence FROM delivery")),
            "subscription": sorted(
                connection.execute("SELECT client_id, name, topic_filter FROM subscription")
            ),
            "inbound": sorted(connection.execute("SELECT client_id, packet_id FROM inbound")),
        }
    finally:
        connection.close()


def message_fields(message: Message) -> tuple[object, ...]:
    names = "topic payload qos retain published_ns publisher properties user_properties"
    names += " expires_ns timeout_ns priority sequence"
    return tuple(getattr(message, name) for name in names.split())


def subscription_fields(subscription: Subscription) -> tuple[object, ...]:
    names = "client_id topic_filter qos no_local retain_as_published retain_handling identifier"
    names += " user_properties"
    return tuple(getattr(subscription, name) for name in names.split())


def delivery_fields(order: PutDelivery) -> tuple[object, ...]:
    values = (order.qos, order.retain, order.subscription_ids, order.packet_id, order.state)
    return (order.message_sequence, *values)


def delivery_values(delivery: Delivery) -> tuple[object, ...]:
    return (
        delivery.qos,
        delivery.retain,
        delivery.subscription_ids,
        delivery.packet_id,
        delivery.state,
    )


def make_subscription(
    *,
    client_id: str,
    topic_filter: str,
    qos: int,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: int,
    identifier: int,
    user_properties: tuple[tuple[str, str], ...],
) -> Subscription:
    return Subscription(
        client_id=client_id,
        topic_filter=topic_filter,
        qos=qos,
        no_local=no_local,
        retain_as_published=retain_as_published,
        retain_handling=retain_handling,
        identifier=identifier,
        terms=parse_subscribe_terms([pair for pair in user_properties if pair[0] == "name"]),
        user_properties=user_properties,
    )


# Few keys, so that orders of one group meet each other; odd values, so that columns are told apart.
clients = st.sampled_from(["a", "b", "ç 日本"])
filters = st.sampled_from(["#", "t/+", "$share/g/x"])
names = st.sampled_from(["", "hot", "ü"])
topic_names = st.sampled_from(["t/1", "t/2", "ü"])
sequences = st.integers(1, 6)
small = st.integers(0, 3)
times = st.integers(0, NOW_NS)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
pairs = st.lists(st.tuples(texts, texts), max_size=2).map(tuple)
messages = st.builds(
    Message,
    topic_names,
    st.binary(max_size=5) | st.just(bytes(6000)),
    st.integers(0, 2),
    st.booleans(),
    times,
    texts,
    st.binary(max_size=3),
    pairs,
    times,
    st.integers(0, 2**62),
    st.integers(0, 9),
    sequences,
)
deliveries = st.builds(
    Delivery,
    messages,
    st.integers(1, 2),
    st.booleans(),
    st.lists(st.integers(1, 268_435_455), max_size=2).map(tuple),
    sequences,
    st.integers(0, 65535),
    st.integers(0, 2),
)
subscriptions = st.builds(
    make_subscription,
    client_id=clients,
    topic_filter=filters,
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    retain_handling=st.integers(0, 2),
    identifier=small,
    user_properties=st.builds(lambda name, more: (("name", name), *more) if name else more, names, pairs),
)
orders = st.one_of(
    st.builds(PutSession, clients, st.integers(0, 2**32 - 1), times, texts),
    st.builds(PutSession, clients, small, times, texts),
    st.builds(DropSession, clients),
    st.builds(PutSubscription, subscriptions),
    st.builds(DropSubscription, clients, filters, names),
    st.builds(PutMessage, messages),
    st.builds(PutMessage, messages),
    st.builds(DropMessage, sequences),
    st.builds(PutDelivery, clients, deliveries),
    st.builds(PutDelivery, clients, deliveries),
    st.builds(DropDelivery, clients, sequences),
    st.builds(PutInbound, clients, small),
    st.builds(DropInbound, clients, small),
    st.builds(PutRetained, messages),
    st.builds(DropRetained, topic_names),
    st.builds(PutWill, st.builds(Will, clients, messages, small, times, clients)),
    st.builds(DropWill, clients),
)
# A group is several batches that are written at once; between groups the storage may be reopened.
groups = st.lists(
    st.tuples(st.lists(st.lists(orders, max_size=12), min_size=1, max_size=4), st.booleans()),
    min_size=1,
    max_size=4,
)


def write_as_one_group(storage: Storage, batches: list[list[StoreOrder]]) -> None:
    gate = threading.Event()
    storage.submit([], lambda: gate.wait(WAIT_S) and None)
    for batch in batches:
        storage.submit(batch, lambda: None)
    written = threading.Event()
    storage.submit([], written.set)
    gate.set()
    assert written.wait(WAIT_S)


@settings(max_examples=50, deadline=None)
@given(groups)
def test_groups_leave_what_single_orders_would(written: list[tuple[list[list[StoreOrder]], bool]]) -> None:
    model = Model()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        storage = Storage.open(Path(directory), make_subscription, fsync=False)
        try:
            for batches, reopens in written:
                write_as_one_group(storage, batches)
                for batch in batches:
                    for order in batch:
                        model.apply(order)
                assert keys(directory) == model.keys()
                assert visible(storage.load(NOW_NS)) == model.visible()

                if reopens:
                    storage.close()
                    storage = Storage.open(Path(directory), make_subscription, fsync=False)
                    model.forget_unreachable()
                    assert keys(directory) == model.keys()
                    assert visible(storage.load(NOW_NS)) == model.visible()
        finally:
            storage.close()


@pytest.mark.parametrize("total", [0, 1, 2, 3, 127, 128, 129, 300, 1000])
def test_chunks_cover_everything_once_with_powers_of_two(total: int) -> None:
    chunks = list(_chunks(total, ROWS_MAX))

    covered = [index for start, count in chunks for index in range(start, start + count)]
    assert covered == list(range(total))
    assert all(count in (1, 2, 4, 8, 16, 32, 64, 128) for _, count in chunks)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000])
def test_groups_larger_than_a_statement_are_written_whole(tmp_path: Path, count: int) -> None:
    puts: list[StoreOrder] = [PutSession("c", 60, 0, "")]
    drops: list[StoreOrder] = []
    for sequence in range(1, count + 1):
        message = Message("t", b"x", 1, False, NOW_NS, sequence=sequence)
        puts += [PutMessage(message), PutDelivery("c", Delivery(message, 1, False, sequence=sequence))]
        drops += [DropDelivery("c", sequence), DropMessage(sequence)]
    with Storage.open(tmp_path, make_subscription, fsync=False) as storage:
        write_as_one_group(storage, [puts])
        assert len(storage.load(NOW_NS).sessions[0].deliveries) == count

        write_as_one_group(storage, [drops])
        assert storage.load(NOW_NS).sessions[0].deliveries == []


def test_older_delivery_put_later_does_not_hide_a_newer_one_from_its_drop(tmp_path: Path) -> None:
    message = Message("t", b"x", 1, False, NOW_NS, sequence=1)
    newer, older = (PutDelivery("c", Delivery(message, 1, False, sequence=number)) for number in (6, 3))
    with Storage.open(tmp_path, make_subscription, fsync=False) as storage:
        write_as_one_group(storage, [[PutSession("c", 60, 0, ""), PutMessage(message), newer]])
        write_as_one_group(storage, [[older]])

        write_as_one_group(storage, [[DropDelivery("c", 6)]])

        (session,) = storage.load(NOW_NS).sessions
        assert [delivery.sequence for delivery in session.deliveries] == [3]
