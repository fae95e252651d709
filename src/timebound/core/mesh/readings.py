"""Brokers as other people build them, to compare with: readings of the papers that differ from ours.

`AliveLifetime` is RL averaged over the subscriptions that can still be served. An endless entry
is one that no queue ever drops: it waits in a fixed order, as if it had no time limit.
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.base import DECAYING, STATIC, Strategy
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.message import Message

_NS_PER_MS: Final = 1_000_000
# Where an average lifetime does not end, it comes after all that do.
_LATEST: Final = 1 << 60


class AliveLifetime(Strategy):
    """The shortest average of min(timeout, deadline) - age first, over the subscriptions not yet late.

    Those that drop out are the ones with the least time, so the average end only moves later and
    the value never grows.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("alive-lifetime", DECAYING, False)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        age = float(now_ns - entry.published_ns)
        total = 0.0
        alive = 0
        for term in entry.audience.terms:
            allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
            if allowed > age:
                total += allowed * float(term.count)
                alive += term.count
        if not alive:
            return -math.inf
        return -(float(entry.published_ns - link.origin_ns) + total / float(alive))


def endless_entry(
    item: object, message: Message, size_bytes: int, audience: Audience, strategy: Strategy
) -> Entry:
    """An entry without limits, whose priority keeps the order that a strategy of fixed order gives it."""
    assert strategy.kind == STATIC, "only an order that never changes can be kept"
    priority = message.priority
    if strategy.name == "fifo":
        priority = 0
    elif strategy.name == "remaining-lifetime":
        total = 0.0
        for term in audience.terms:
            allowed = term.allowed
            if message.timeout_ns and message.timeout_ns < allowed:
                allowed = float(message.timeout_ns)
            total += allowed * float(term.count)
        end = float(message.published_ns) + total / float(audience.subscriptions)
        priority = -int(end) // _NS_PER_MS if end < math.inf else -_LATEST
    return Entry(item, size_bytes, message.published_ns, Audience([Term()]), 0, priority)
