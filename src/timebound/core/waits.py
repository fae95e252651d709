"""Subscriptions that wait: for several topics together, for silence, for the beat of a timer.

A subscription with `correlate` gets messages only once its correlation is complete, all of them
at once and in the order of its parts; one with `watchdog` is told when nothing came in time, one
with `every` regularly. The rules are those of the event channel (`correlation.py`); here topics
are matched to the leaves, and what comes due is turned into messages.
"""

from __future__ import annotations

import json
from typing import Final, cast

from timebound.core.correlation import (
    WATCHDOG,
    AnyOf,
    Correlator,
    Dependency,
    Every,
    Leaf,
    Timeout,
    Watchdog,
)
from timebound.core.message import Message
from timebound.core.subscription import Subscription
from timebound.core.timers import Timer, TimerHeap
from timebound.core.topic import matches
from timebound.units import MILLISECOND

# Timers of all subscriptions together; allocated when the first is asked for, about 1.5 MB.
TIMERS_MAX: Final = 16_384
WATCHDOG_TOPIC: Final = "$timebound/watchdog"
EVERY_TOPIC: Final = "$timebound/every"


def dependency_of(
    topic_filter: str, correlation: Dependency | None, watchdog_ns: int, every_ns: int
) -> Dependency | None:
    """What a subscription waits for by its terms; None if it simply gets its messages."""
    if correlation is None and not watchdog_ns and not every_ns:
        return None
    wanted: Dependency = Leaf(topic_filter) if correlation is None else correlation
    if watchdog_ns:
        wanted = Watchdog(wanted, watchdog_ns)
    return AnyOf([wanted, Every(every_ns)]) if every_ns else wanted


class Due:
    """Something to deliver for a subscription: its messages, or a notice of a timer."""

    __slots__ = ("messages", "subscription")

    def __init__(self, subscription: Subscription, messages: list[Message]) -> None:
        self.subscription = subscription
        self.messages = messages


class Waits:
    """All running waits of one broker, and their timers."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: TimerHeap | None = None

    def start(self, subscription: Subscription, now_ns: int) -> bool:
        """Begin to wait; False, and nothing changed, if there are no timers left."""
        dependency = subscription.dependency
        if dependency is None:
            return True
        if self._heap is None:
            self._heap = TimerHeap(TIMERS_MAX)
        correlator = Correlator(dependency, self._heap)
        if not correlator.start(now_ns, subscription):
            return False
        subscription.correlator = correlator
        return True

    def stop(self, subscription: Subscription) -> None:
        if subscription.correlator is not None:
            subscription.correlator.stop()
            subscription.correlator = None

    def arrive(self, subscription: Subscription, message: Message, now_ns: int) -> list[Message]:
        """Take in a message the subscription's filter selects; what is to be delivered for it now."""
        correlator = subscription.correlator
        assert correlator is not None
        hits = 0
        for number, leaf in enumerate(correlator.leaves):
            topic_filter = cast(str, leaf.key)
            # A subscription without a correlation waits for its own filter, which has matched.
            if topic_filter == subscription.topic_filter or matches(topic_filter, message.topic):
                hits |= 1 << number
        if not hits:
            return []
        complete = correlator.arrive(hits, message, now_ns)
        return _as_messages(complete, subscription, now_ns) if complete is not None else []

    def wake(self, now_ns: int) -> list[Due]:
        """What the timers that came due have to say."""
        found: list[Due] = []
        heap = self._heap
        while heap is not None:
            timer: Timer | None = heap.pop_expired(now_ns)
            if timer is None:
                break
            subscription = cast(Subscription, timer.owner)
            assert subscription.correlator is not None
            complete = subscription.correlator.expire(timer, now_ns)
            if complete is not None:
                found.append(Due(subscription, _as_messages(complete, subscription, now_ns)))
        return found

    def next_wakeup_ns(self) -> int | None:
        return self._heap.next_due_ns() if self._heap is not None else None


def _as_messages(occurrences: list[object], subscription: Subscription, now_ns: int) -> list[Message]:
    return [
        _notice(occurrence, subscription, now_ns)
        if isinstance(occurrence, Timeout)
        else cast(Message, occurrence)
        for occurrence in occurrences
    ]


def _notice(timeout: Timeout, subscription: Subscription, now_ns: int) -> Message:
    fields = {"filter": subscription.topic_filter, "count": timeout.count, "missed": timeout.missed}
    if timeout.kind == WATCHDOG:
        fields["silent_ms"] = timeout.count * subscription.watchdog_ns // MILLISECOND
        return Message(WATCHDOG_TOPIC, json.dumps(fields).encode(), subscription.qos, False, now_ns)
    return Message(EVERY_TOPIC, json.dumps(fields).encode(), subscription.qos, False, now_ns)
