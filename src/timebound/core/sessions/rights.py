"""Waiting copies under new access rules: which of them a client may still get.

A copy may be sent as long as its session has one of the subscriptions that matched it, or the rules allow
its topic: after an UNSUBSCRIBE, what was queued before is still delivered, but not what is forbidden since.
"""

from __future__ import annotations

from timebound.core.sessions.correlations import EVERY_TOPIC, WATCHDOG_TOPIC
from timebound.core.sessions.session import Session
from timebound.core.values.message import Delivery
from timebound.topics import MISSED_PREFIX


class Rights:
    """What the present rules let one client have; it remembers topics, as long as one pass takes."""

    __slots__ = ("_known", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, bool] = {}

    def may_have(self, delivery: Delivery) -> bool:
        """Whether the client may get a copy."""
        subscription = delivery.subscription
        if subscription is not None and subscription.key in self._session.subscriptions:
            return True
        if any([other.key in self._session.subscriptions for other in delivery.others]):
            return True
        # Ticks and alarms tell nothing of any message; a notice tells of one.
        topic = delivery.message.topic
        if topic in (WATCHDOG_TOPIC, EVERY_TOPIC):
            return True
        topic = topic.removeprefix(MISSED_PREFIX)
        known = self._known.get(topic)
        if known is None:
            known = self._session.access.may_subscribe(topic)
            self._known[topic] = known
        return known
