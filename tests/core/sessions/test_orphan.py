"""Copies that a member of a shared group leaves behind, and for which subscription a copy is."""

from __future__ import annotations

import pytest

from timebound.core.sessions.orphan import Orphan, is_for
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason


def delivery_for(subscription: Subscription | None) -> Delivery:
    return Delivery(Message("t", b"", 1, False, 0), 1, False, subscription=subscription)


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription("c", "$share/g/t"), True),
        (Subscription("other", "$share/g/t"), True),
        (Subscription("c", "t"), False),
        (Subscription("c", "$share/h/t"), False),
        (Subscription("c", "$share/g/t").free(), False),
        (None, False),
    ],
)
def test_a_copy_is_for_the_filter_that_it_came_by(subscription: Subscription | None, expected: bool) -> None:
    assert is_for(delivery_for(subscription), "$share/g/t") is expected


def test_an_orphan_keeps_whose_it_was_and_why() -> None:
    session = Session("c", "", AccessList([]).for_client("", "c"))
    delivery = delivery_for(None)

    orphan = Orphan(session, delivery, Reason.SESSION_EXPIRED)

    assert (orphan.session, orphan.delivery, orphan.reason) == (session, delivery, Reason.SESSION_EXPIRED)
