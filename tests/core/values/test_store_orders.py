"""Orders for storage: they keep the values of the moment they were given, under their keys."""

from __future__ import annotations

from timebound.core.values.message import QUEUED, RELEASED, Delivery, Message
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
    PutOffset,
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


def test_a_put_delivery_keeps_the_values_of_its_moment() -> None:
    # The broker goes on with the delivery before the order is written.
    delivery = Delivery(Message("t", b"", 2, False, 0, sequence=70), 2, True, (5, 6), 9)
    order = PutDelivery("c", delivery)

    delivery.packet_id = 3
    delivery.state = RELEASED

    assert (order.client_id, order.sequence, order.message_sequence) == ("c", 9, 70)
    assert (order.qos, order.retain, order.subscription_ids) == (2, True, (5, 6))
    assert (order.packet_id, order.state) == (0, QUEUED)
    assert (PutDelivery("c", delivery).packet_id, PutDelivery("c", delivery).state) == (3, RELEASED)


def test_a_put_will_keeps_the_values_of_its_moment() -> None:
    will = Will("c", Message("t", b"gone", 1, False, 0), 30, user="u")
    order = PutWill(will)

    will.due_ns = 99

    assert (order.client_id, order.delay_s, order.due_ns, order.user) == ("c", 30, 0, "u")
    assert order.message is will.message
    assert PutWill(will).due_ns == 99


def test_orders_have_the_keys_they_were_given() -> None:
    message = Message("t", b"", 1, True, 0)
    subscription = Subscription(client_id="c", topic_filter="a/#")
    session = PutSession("c", 60, 12, "u")

    assert (session.client_id, session.expiry_interval_s, session.ended_ns, session.user) == (
        "c",
        60,
        12,
        "u",
    )
    assert DropSession("c").client_id == "c"
    assert PutSubscription(subscription).subscription is subscription
    dropped = DropSubscription("c", "a/#")
    assert (dropped.client_id, dropped.topic_filter) == ("c", "a/#")
    assert PutMessage(message).message is message
    assert DropMessage(7).sequence == 7
    delivery = DropDelivery("c", 8)
    assert (delivery.client_id, delivery.sequence) == ("c", 8)
    for order in (PutInbound("c", 9), DropInbound("c", 9)):
        assert (order.client_id, order.packet_id) == ("c", 9)
    offset = PutOffset("j", 10)
    assert (offset.journal, offset.offset) == ("j", 10)
    assert PutRetained(message).message is message
    assert DropRetained("t").topic == "t"
    assert DropWill("c").client_id == "c"


def test_all_orders_are_store_orders() -> None:
    orders: list[object] = [DropSession("c"), DropMessage(1), PutOffset("j", 1), DropWill("c")]

    assert all(isinstance(order, StoreOrder) for order in orders)
    assert not isinstance(Will("c", Message("t", b"", 0, False, 0), 0), StoreOrder)


def test_those_with_a_session_or_a_will_may_publish_again() -> None:
    snapshot = Snapshot()
    snapshot.sessions = [StoredSession("a", 60, 0, ""), StoredSession("b", 60, 0, "")]
    snapshot.wills = [Will(name, Message("t", b"", 0, False, 0), 0) for name in ("b", "c")]

    assert snapshot.publishers() == {"a", "b", "c"}


def test_a_new_snapshot_and_a_new_session_hold_nothing_and_share_nothing() -> None:
    first, second = StoredSession("a", 60, 5, "u"), StoredSession("a", 60, 5, "u")
    first.inbound.append(1)
    first.deliveries.append(Delivery(Message("t", b"", 1, False, 0), 1, False))
    first.subscriptions.append(Subscription(client_id="a", topic_filter="t"))
    snapshot = Snapshot()

    assert (second.client_id, second.expiry_interval_s, second.ended_ns, second.user) == ("a", 60, 5, "u")
    assert (second.inbound, second.deliveries, second.subscriptions) == ([], [], [])
    assert (snapshot.sessions, snapshot.retained, snapshot.wills) == ([], [], [])
    assert (snapshot.offsets, snapshot.sequence_max, snapshot.publishers()) == ({}, 0, set())
