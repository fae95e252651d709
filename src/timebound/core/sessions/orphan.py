"""Copies that a member of a shared group leaves behind, for another member of the group."""

from __future__ import annotations

from timebound.core.sessions.session import Session
from timebound.core.values.message import Delivery
from timebound.records import Reason


class Orphan:
    """A copy that a member of a shared group leaves behind; nobody has it, another member may get it."""

    __slots__ = ("delivery", "reason", "session")

    def __init__(self, session: Session, delivery: Delivery, reason: Reason) -> None:
        self.session = session
        self.delivery = delivery
        self.reason = reason  # it is dropped for, if nobody takes it


def is_for(delivery: Delivery, topic_filter: str) -> bool:
    """Whether a copy came by this filter; of the broker's own there are none, as nobody else gets them."""
    subscription = delivery.subscription
    return subscription is not None and subscription.topic_filter == topic_filter and not subscription.is_free
