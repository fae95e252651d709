"""Copies that a member of a shared group leaves to the other members."""

from __future__ import annotations

from timebound.core.sessions.session import Session
from timebound.core.values.message import Delivery
from timebound.records import Reason


class Orphan:
    """A copy that a member of a shared group leaves; another member may get it."""

    __slots__ = ("delivery", "reason", "session")

    def __init__(self, session: Session, delivery: Delivery, reason: Reason) -> None:
        self.session = session
        self.delivery = delivery
        self.reason = reason  # why it is dropped if no other member takes it


def is_left(session: Session, delivery: Delivery, topic_filter: str) -> bool:
    """Whether a copy was matched by a filter whose subscriptions have all ended.

    Messages of the broker itself do not count.
    """
    subscription = delivery.subscription
    if subscription is None or subscription.topic_filter != topic_filter or subscription.is_free:
        return False
    if subscription.key in session.subscriptions:
        return False
    return not any([other.key in session.subscriptions for other in delivery.others])
