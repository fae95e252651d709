"""Which subscription gets an incoming message.

MQTT 5 servers repeat the identifier that a subscription was made with, so a message finds
its way without comparing topics. Without identifiers, topics are matched. A resumed session
may deliver before the application has subscribed again: such messages wait here unclaimed.
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

logger = logging.getLogger("timebound.client")

# Unclaimed messages with QoS 0; those with QoS 1 and 2 are bounded by the Receive Maximum.
UNCLAIMED_MAX: Final = 1_000
# Filters unsubscribed from, whose last messages must not wait unclaimed; the oldest is forgotten.
ENDED_MAX: Final = 1_000
_IDENTIFIER_MAX: Final = 268_435_455
# Where the ticks and alarms of a subscription with `every` or `watchdog` come.
TIMER_TOPICS: Final = ("$timebound/watchdog", "$timebound/every")


class MessageRouter:
    """The subscriptions of a client and what has come for none of them."""

    def __init__(self, *, keeps_session: bool) -> None:
        self._keeps_session = keeps_session
        self._by_identifier: dict[int, Subscription] = {}
        self._last_identifier = 0
        self._unclaimed: deque[tuple[Message, Receipt | None]] = deque()
        # The oldest first; of a dict, the search for it grows with all that were taken out.
        self._ended: OrderedDict[str, FilterMatcher] = OrderedDict()

    def subscriptions(self) -> list[Subscription]:
        return list(self._by_identifier.values())

    def insert(self, subscription: Subscription) -> None:
        """Add a subscription and give it what was waiting for it.

        Raises:
            SubscribeError: a filter is subscribed to already; the server would replace it.
        """
        for other in self._by_identifier.values():
            for topic_filter in subscription.topic_filters:
                if topic_filter in other.topic_filters:
                    raise SubscribeError(
                        f"this client is already subscribed to {topic_filter!r}; a second subscription "
                        "would replace the first, so use that one or another client"
                    )
        subscription.identifier = self._new_identifier(subscription)
        self._by_identifier[subscription.identifier] = subscription
        for topic_filter in subscription.topic_filters:
            self._ended.pop(topic_filter, None)
        self._claim(subscription)

    def remove(self, subscription: Subscription) -> bool:
        """Take a subscription out; False if it was not in."""
        if self._by_identifier.get(subscription.identifier) is not subscription:
            return False
        del self._by_identifier[subscription.identifier]
        for topic_filter in subscription.topic_filters:
            self._ended[topic_filter] = FilterMatcher(topic_filter)
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        return True

    def was_ended(self, topic: str) -> bool:
        """Tell whether a topic belonged to a subscription that was ended here."""
        return any(matcher.matches(topic) for matcher in self._ended.values())

    def find(self, message: Message) -> list[Subscription]:
        """Return who gets a message; nobody where it is for none of the subscriptions."""
        found = []
        for identifier in message.subscription_identifiers:
            subscription = self._by_identifier.get(identifier)
            if subscription is None:
                continue
            # An identifier may stem from an earlier life of the session and another filter. What a broker
            # says of the subscription itself comes on topics of its own, which no filter matches.
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
        """Hand over what nobody has claimed, and forget it."""
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
        """Return a free identifier: in a kept session the same for the same filters in every process."""
        if self._keeps_session:
            filters = "\0".join(subscription.topic_filters).encode()
            self._last_identifier = zlib.crc32(filters) % _IDENTIFIER_MAX
        while True:
            self._last_identifier = self._last_identifier % _IDENTIFIER_MAX + 1
            if self._last_identifier not in self._by_identifier:
                return self._last_identifier
