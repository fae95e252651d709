"""Finds the subscription that gets an incoming message.

MQTT 5 servers repeat the identifier that a subscription was made with; without identifiers,
topics are matched. A resumed session may deliver before the application has subscribed again:
such messages wait here unclaimed.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict, deque
from typing import Final

from timebound.client.message import Message
from timebound.client.receipts import Receipt
from timebound.client.subscription import Subscription
from timebound.client.topics import FilterMatcher
from timebound.errors import SubscribeError
from timebound.terms import with_name

logger = logging.getLogger("timebound.client")

# Unclaimed messages with QoS 0; those with QoS 1 and 2 are bounded by the Receive Maximum.
UNCLAIMED_MAX: Final = 1_000
# Ended filters, whose last messages must not wait unclaimed; beyond this the oldest is forgotten.
ENDED_MAX: Final = 1_000
_IDENTIFIER_MAX: Final = 268_435_455
# Topics of the ticks and alarms of a subscription with `every` or `watchdog`.
TIMER_TOPICS: Final = ("$timebound/watchdog", "$timebound/every")


class SubscriptionRouter:
    """The subscriptions of a client, and the messages for none of them."""

    def __init__(self, *, keeps_session: bool) -> None:
        self._keeps_session = keeps_session
        self._by_identifier: dict[int, Subscription] = {}
        self._last_identifier = 0
        self._unclaimed: deque[tuple[Message, Receipt | None]] = deque()
        # Oldest first. In a plain dict, finding the oldest slows down with every removed key.
        self._ended: OrderedDict[str, FilterMatcher] = OrderedDict()

    def subscriptions(self) -> list[Subscription]:
        return list(self._by_identifier.values())

    def insert(self, subscription: Subscription) -> None:
        """Add a subscription and deliver the messages that were waiting for it.

        Raises:
            SubscribeError: a filter is already subscribed to under this name; the server would replace it.
        """
        for other in self._by_identifier.values():
            for topic_filter in subscription.topic_filters:
                if topic_filter in other.topic_filters and subscription.name == other.name:
                    named = f" as {other.name!r}" if other.name else ""
                    raise SubscribeError(
                        f"this client is already subscribed to {topic_filter!r}{named}; a second one "
                        "would replace the first, so use that one, another name or another client"
                    )
        subscription.identifier = self._new_identifier(subscription)
        self._by_identifier[subscription.identifier] = subscription
        for topic_filter in subscription.topic_filters:
            self._ended.pop(topic_filter, None)
        self._claim(subscription)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription; return False if it was not there."""
        if self._by_identifier.get(subscription.identifier) is not subscription:
            return False
        del self._by_identifier[subscription.identifier]
        for topic_filter in subscription.topic_filters:
            self._ended[topic_filter] = FilterMatcher(topic_filter)
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        return True

    def was_ended(self, topic: str) -> bool:
        """Whether a topic belonged to a subscription that ended."""
        return any(matcher.matches(topic) for matcher in self._ended.values())

    def find(self, message: Message) -> list[Subscription]:
        """Return the subscriptions that get a message."""
        found = []
        for identifier in message.subscription_identifiers:
            subscription = self._by_identifier.get(identifier)
            if subscription is None:
                continue
            # An identifier may be from an earlier process of the session, for another filter. Ticks and
            # alarms come on topics of their own, which no filter matches.
            if message.topic in TIMER_TOPICS or subscription.matches(message.topic):
                found.append(subscription)
        if found:
            return found
        return [one for one in self._by_identifier.values() if one.matches(message.topic)]

    def keep(self, message: Message, receipt: Receipt | None) -> None:
        """Hold a message of a resumed session until somebody subscribes to its topic."""
        if not self._unclaimed:
            logger.info("message on %r waits for a subscription of the resumed session", message.topic)
        if receipt is None and len(self._unclaimed) >= UNCLAIMED_MAX:
            return
        self._unclaimed.append((message, receipt))

    def take_unclaimed(self) -> list[tuple[Message, Receipt | None]]:
        """Return the unclaimed messages, and forget them."""
        unclaimed = list(self._unclaimed)
        self._unclaimed.clear()
        return unclaimed

    def _claim(self, subscription: Subscription) -> None:
        for message, receipt in self.take_unclaimed():
            if subscription.matches(message.topic):
                subscription.deliver(message, receipt)
            else:
                self._unclaimed.append((message, receipt))

    def _new_identifier(self, subscription: Subscription) -> int:
        """Return a free identifier; in a kept session the same in every process."""
        if self._keeps_session:
            filters = "\0".join(subscription.topic_filters)
            key = with_name(filters, subscription.name).encode()
            self._last_identifier = zlib.crc32(key) % _IDENTIFIER_MAX
        while True:
            self._last_identifier = self._last_identifier % _IDENTIFIER_MAX + 1
            if self._last_identifier not in self._by_identifier:
                return self._last_identifier
