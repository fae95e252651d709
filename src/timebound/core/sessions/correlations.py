"""Correlations and timers of subscriptions: several topics together, silence, and regular ticks.

A subscription with `correlate` gets its messages once the correlation is complete, all at once and in
the order of its parts; one with `watchdog` gets a notice when no message came in time, one with `every`
at regular intervals. The rules are those of the event channel (`core/correlation`); this module matches
topics to the leaves and turns due timers into messages.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from typing import Final, cast

from timebound.core.correlation.expression import (
    WATCHDOG,
    Correlator,
    Timeout,
)
from timebound.core.correlation.timers import MADE_AT_ONCE, Timer, TimerHeap
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.topics import matches
from timebound.units import MILLISECOND

# Timers of all subscriptions together, about 1.5 MB. They are made some at a time: all of them would
# take several turns.
TIMERS_MAX: Final = 16_384
# Ticks that one call delivers: under a millisecond. Further ticks wait for the next call, which the shell
# makes after it has served all connections; ticks missed in the meantime are counted, not repeated.
TICKS_MAX: Final = 32
# Due timers that one call moves to their clients' lines, which costs little: as many as one client may have
# subscriptions.
LINED_UP_MAX: Final = 1_024
WATCHDOG_TOPIC: Final = "$timebound/watchdog"
EVERY_TOPIC: Final = "$timebound/every"


class Due:
    """Messages to deliver for a subscription, or the error that was raised instead.

    An error does not keep the other timers from being served.
    """

    __slots__ = ("error", "messages", "subscription")

    def __init__(
        self, subscription: Subscription, messages: list[Message], error: Exception | None = None
    ) -> None:
        self.subscription = subscription
        self.messages = messages
        self.error = error


class Tick:
    """A timer that is due, and the correlation it belonged to at that moment."""

    __slots__ = ("correlator", "timer")

    def __init__(self, correlator: Correlator, timer: Timer) -> None:
        self.correlator = correlator
        self.timer = timer


class Correlations:
    """All running correlations of one broker, and their timers.

    Each message of a shared group goes to one member, so no member would ever see all parts. Members that
    wait for the same therefore have one correlation; the first of them keeps it, and what it completes goes
    to any of them.
    """

    __slots__ = ("_heap", "_lines", "_shared", "_turn")

    def __init__(self) -> None:
        self._heap: TimerHeap | None = None
        self._shared: dict[str, list[Subscription]] = {}  # the first one keeps the correlation
        self._turn = 0  # members take turns
        # Due timers by client. Clients take turns, so the many timers of one do not delay another's.
        self._lines: OrderedDict[str, deque[Tick]] = OrderedDict()

    def has_timers(self, subscription: Subscription, old: Subscription | None = None) -> bool:
        """Whether enough timers are left for a subscription, once `old`, which it replaces, is stopped."""
        dependency = subscription.dependency
        if dependency is None or self._heap is None or self.members(subscription):
            return True
        left = self._heap.available()
        if old is not None and old.correlator is not None and len(self.members(old)) < 2:
            left += old.correlator.timer_count  # other members of a shared group would keep them
        return left >= Correlator(dependency).timer_count

    def start(self, subscription: Subscription, now_ns: int) -> bool:
        """Start the correlation of a subscription; False, without a change, if no timers are left."""
        dependency = subscription.dependency
        if dependency is None:
            return True
        members = self.members(subscription)
        if members:
            members.append(subscription)
            return True
        if self._heap is None:
            self._heap = TimerHeap(TIMERS_MAX, MADE_AT_ONCE)
        correlator = Correlator(dependency, self._heap)
        if not correlator.start(now_ns, subscription):
            return False
        subscription.correlator = correlator
        if subscription.shared_correlation:
            self._shared[subscription.shared_correlation] = [subscription]
        return True

    def stop(self, subscription: Subscription) -> None:
        """End the correlation of a subscription; other members of a shared group continue it."""
        correlator = subscription.correlator
        members = self.members(subscription)
        if subscription in members:
            members.remove(subscription)
            if not members:
                del self._shared[subscription.shared_correlation]
            elif correlator is not None:
                correlator.set_owner(members[0])
                members[0].correlator = correlator
                subscription.correlator = None
                return
        if correlator is not None:
            subscription.correlator = None  # first: after an error it is not stopped once more, to fail again
            correlator.stop()

    def keeper(self, subscription: Subscription) -> Subscription:
        """Return the subscription that keeps the correlation of this one: itself, unless it is shared."""
        return self.members(subscription)[0] if subscription.shared_correlation else subscription

    def takers(self, keeper: Subscription) -> list[Subscription]:
        """Return those who may get what a correlation completes, beginning with the one whose turn it is."""
        members = self.members(keeper)
        if len(members) < 2:
            return [keeper]
        self._turn += 1
        start = self._turn % len(members)
        return members[start:] + members[:start]

    def members(self, subscription: Subscription) -> list[Subscription]:
        """Return the members of a shared group that correlate together with this one; empty if not shared."""
        if not subscription.shared_correlation:
            return []
        return self._shared.get(subscription.shared_correlation, [])

    def arrive(self, subscription: Subscription, message: Message, now_ns: int) -> list[Message]:
        """Count a message that the filter selects, and return the messages to deliver now."""
        correlator = subscription.correlator
        assert correlator is not None
        hits = 0
        for number, leaf in enumerate(correlator.leaves):
            topic_filter = cast(str, leaf.key)
            # Without `correlate`, the leaf is the subscription's own filter, which has matched.
            if topic_filter == subscription.topic_filter or matches(topic_filter, message.topic):
                hits |= 1 << number
        if not hits:
            return []
        complete = correlator.arrive(hits, message, now_ns)
        return _as_messages(complete, subscription, now_ns) if complete is not None else []

    def wake(self, now_ns: int) -> list[Due]:
        """Return what some of the due timers deliver; `next_wakeup_ns` is 0 while more are due."""
        self._line_up(now_ns)
        found: list[Due] = []
        for _ in range(TICKS_MAX):
            if not self._lines:
                break
            client_id, line = self._lines.popitem(last=False)
            tick = line.popleft()
            if line:
                self._lines[client_id] = line  # behind the others
            correlator = tick.correlator
            subscription = cast("Subscription | None", tick.timer.owner)
            if subscription is None or subscription.correlator is not correlator:
                continue  # it was stopped in the meantime, and its timer may serve another one
            try:
                complete = correlator.expire(tick.timer, now_ns)
                if complete is not None:
                    found.append(Due(subscription, _as_messages(complete, subscription, now_ns)))
            except Exception as error:  # concerns one of many subscriptions, see core/sessions/faults.py
                found.append(Due(subscription, [], error))
        return found

    def _line_up(self, now_ns: int) -> None:
        heap = self._heap
        if heap is None:
            return
        for _ in range(LINED_UP_MAX):
            timer = heap.pop_expired(now_ns)
            if timer is None:
                return
            subscription = cast(Subscription, timer.owner)
            if subscription.correlator is None:
                continue  # left over from an error while it was stopped
            line = self._lines.get(subscription.client_id)
            if line is None:
                line = self._lines[subscription.client_id] = deque()
            line.append(Tick(subscription.correlator, timer))

    def next_wakeup_ns(self) -> int | None:
        if self._lines:
            return 0  # as soon as all connections were served
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
    if subscription.terms.name:
        fields["name"] = subscription.terms.name
    if timeout.kind == WATCHDOG:
        fields["silent_ms"] = timeout.count * subscription.terms.watchdog_ns // MILLISECOND
        return Message(WATCHDOG_TOPIC, json.dumps(fields).encode(), subscription.qos, False, now_ns)
    return Message(EVERY_TOPIC, json.dumps(fields).encode(), subscription.qos, False, now_ns)
