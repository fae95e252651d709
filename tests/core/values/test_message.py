"""Messages and deliveries: time limits, sizes, and what a copy costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.values.message import COPY_COST, FRAME_KEPT_MAX, QUEUED, Delivery, Message, copy_cost
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms


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
