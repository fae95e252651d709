"""Messages and deliveries: time limits, sizes, and what a copy costs."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.broker_doubles import Node

from timebound.core.values.message import COPY_COST, FRAME_KEPT_MAX, QUEUED, Delivery, Message, copy_cost
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms
from timebound.units import SECOND
from timebound.version import is_compiled


def message_of(*, published_ns: int = 100, expires_ns: int = 0, timeout_ns: int = 0) -> Message:
    return Message("t", b"x", 1, False, published_ns, expires_ns=expires_ns, timeout_ns=timeout_ns)


def test_a_message_expires_exactly_at_its_time() -> None:
    message = message_of(expires_ns=150)

    assert [message.is_expired(now_ns) for now_ns in (0, 149, 150, 151)] == [False, False, True, True]


def test_a_message_without_expiry_never_expires() -> None:
    assert not message_of(expires_ns=0).is_expired(10**18)


@pytest.mark.parametrize(
    ("expires_ns", "timeout_ns", "lifetime_ns"),
    [
        (0, 0, 0),
        (0, 30, 30),
        (150, 0, 50),
        (150, 30, 30),
        (150, 70, 50),
        (100, 0, 1),  # expired when it was published: still a limit, not none
        (90, 30, 1),
    ],
)
def test_lifetime_is_the_smaller_of_expiry_and_timeout(
    expires_ns: int, timeout_ns: int, lifetime_ns: int
) -> None:
    assert message_of(expires_ns=expires_ns, timeout_ns=timeout_ns).lifetime_ns() == lifetime_ns


@given(st.integers(0, 5), st.integers(0, 5))
def test_allowed_is_the_tighter_of_timeout_and_deadline(timeout_ns: int, deadline_ns: int) -> None:
    limits = [limit for limit in (timeout_ns, deadline_ns) if limit]
    subscription = Subscription(client_id="c", topic_filter="t", terms=Terms(deadline_ns=deadline_ns))

    assert message_of(timeout_ns=timeout_ns).allowed_ns(subscription) == min(limits, default=0)
    assert message_of(timeout_ns=timeout_ns).allowed_ns(None) == timeout_ns


def test_size_is_topic_payload_properties_and_a_header() -> None:
    assert Message("a/b", b"12345", 0, False, 0, properties=b"67").size() == 3 + 5 + 2 + 8


@pytest.mark.parametrize(
    ("size", "cost"),
    [(0, 576), (1, 577), (100, 726), (FRAME_KEPT_MAX, 25_152), (FRAME_KEPT_MAX + 1, 16_961)],
)
def test_the_cost_of_a_copy_includes_its_packet_while_that_is_kept(size: int, cost: int) -> None:
    assert copy_cost(size) == cost


@given(st.integers(0, 10**9))
def test_a_copy_costs_more_than_its_bytes_and_its_place(size: int) -> None:
    assert size + COPY_COST <= copy_cost(size) <= size + FRAME_KEPT_MAX // 2 + COPY_COST


def test_a_message_keeps_what_it_was_made_of() -> None:
    message = Message("t", b"p", 2, True, 7, "me", b"props", (("k", "v"),), 90, 30, 5, 12)

    found = (message.topic, message.payload, message.qos, message.retain, message.published_ns)
    assert found == ("t", b"p", 2, True, 7)
    assert (message.publisher, message.properties, message.user_properties) == ("me", b"props", (("k", "v"),))
    assert (message.expires_ns, message.timeout_ns, message.priority, message.sequence) == (90, 30, 5, 12)
    assert (message.promised_ns, message.hops, message.stored_copies, message.is_repeated) == (0, 0, 0, False)


def test_a_new_delivery_waits_and_nothing_of_it_is_stored_or_settled() -> None:
    subscription = Subscription(client_id="c", topic_filter="t")
    delivery = Delivery(message_of(), 1, True, (3, 4), 9, subscription=subscription, offered_ns=11)

    assert (delivery.qos, delivery.retain, delivery.subscription_ids) == (1, True, (3, 4))
    assert (delivery.sequence, delivery.packet_id, delivery.state) == (9, 0, QUEUED)
    assert (delivery.offered_ns, delivery.sent_ns) == (11, 0)
    assert (delivery.dup, delivery.stored, delivery.is_settled) == (False, False, False)
    assert delivery.subscription is subscription
    assert delivery.others == ()


def leads_back(start: object) -> bool:
    """Whether an object refers to itself, directly or through others; classes and modules aside."""
    seen = {id(start)}
    pending = gc.get_referents(start)
    while pending:
        one = pending.pop()
        if one is start:
            return True
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(one))
        pending.extend(gc.get_referents(one))
    return False


def deliveries_of_all_kinds() -> list[Delivery]:
    """Return copies in flight whose messages and subscriptions have everything that they can have."""
    node = Node(durable=False)
    node.broker.account.is_tracing = True
    writer, reader = node.connect("writer"), node.connect("reader")
    for topic_filter, terms in (
        ("t", Terms(deadline_ns=SECOND, price=2.0, is_ordered=True)),
        ("t", Terms(name="some", where="v > 1", notify_missed=True)),
        ("#", Terms(name="both", correlate="all(t, u)", within_ns=SECOND)),
        ("$share/group/u", Terms(watchdog_ns=SECOND, every_ns=SECOND)),
    ):
        node.subscribe(reader, topic_filter, terms=terms)
    for number, topic in enumerate(("t", "u", "t", "u"), 1):
        node.publish(writer, topic, b'{"v": 2}', 2, packet_id=number, retain=True)
        node.advance(0.6)
        node.settle()
    return list(reader.session.inflight.values())


@pytest.mark.skipif(is_compiled(), reason="the collector does not know of compiled ones, see below")
def test_no_message_and_no_copy_leads_back_to_itself() -> None:
    deliveries = deliveries_of_all_kinds()

    assert any(delivery.others for delivery in deliveries)
    assert any(delivery.group for delivery in deliveries)
    for delivery in deliveries:
        assert not leads_back(delivery)
        assert not leads_back(delivery.message)


def test_what_leads_back_is_found() -> None:
    inner: list[object] = []
    outer = [inner]
    assert not leads_back(outer)

    inner.append({"key": outer})

    assert leads_back(outer)


@pytest.mark.skipif(not is_compiled(), reason="plain Python knows of every object")
def test_the_garbage_collector_does_not_know_of_compiled_messages_and_copies() -> None:
    message = message_of()

    assert not gc.is_tracked(message)
    assert not gc.is_tracked(Delivery(message, 0, False))
