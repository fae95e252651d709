"""Copies that a member of a shared group leaves behind, and for which subscription a copy is."""

from __future__ import annotations

import pytest

from timebound.core.sessions.orphan import Orphan, is_left
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms


def delivery_for(subscription: Subscription | None) -> Delivery:
    return Delivery(Message("t", b"", 1, False, 0), 1, False, subscription=subscription)


def session_of() -> Session:
    return Session("c", "", AccessList([]).for_client("", "c"))


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription(client_id="c", topic_filter="$share/g/t"), True),
        (Subscription(client_id="other", topic_filter="$share/g/t"), True),
        (Subscription(client_id="c", topic_filter="t"), False),
        (Subscription(client_id="c", topic_filter="$share/h/t"), False),
        (Subscription(client_id="c", topic_filter="$share/g/t").free(), False),
        (None, False),
    ],
)
def test_a_copy_is_left_by_the_filter_that_it_came_by(
    subscription: Subscription | None, expected: bool
) -> None:
    assert is_left(session_of(), delivery_for(subscription), "$share/g/t") is expected


def test_a_copy_is_not_left_while_one_of_its_subscriptions_lasts() -> None:
    hot, cold = (
        Subscription(client_id="c", topic_filter="$share/g/t", terms=Terms(name=name))
        for name in ("hot", "cold")
    )
    session = session_of()
    delivery = delivery_for(hot)
    delivery.others = (cold,)

    session.add_subscription(cold)
    assert not is_left(session, delivery, "$share/g/t")

    session.remove_subscription(cold.key)
    assert is_left(session, delivery, "$share/g/t")


def test_an_orphan_keeps_whose_it_was_and_why() -> None:
    session = session_of()
    delivery = delivery_for(None)

    orphan = Orphan(session, delivery, Reason.SESSION_EXPIRED)

    assert (orphan.session, orphan.delivery, orphan.reason) == (session, delivery, Reason.SESSION_EXPIRED)
