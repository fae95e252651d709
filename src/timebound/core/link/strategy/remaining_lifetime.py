"""RL, also LRT: the smallest remaining lifetime first, averaged over the subscriptions.

All messages age at the same rate, so the order of two never changes: the key is the time at which
the average lifetime ends. A message with a subscription without any time limit comes last.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import STATIC, Strategy, StrategyKind
from timebound.core.link.strategy.entry import Entry


class RemainingLifetime(Strategy):
    """The shortest average of min(timeout, deadline) - age first."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("remaining-lifetime", STATIC, False)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        total = 0.0
        for term in entry.audience.terms:
            allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
            total += allowed * float(term.count)
        average = total / float(entry.audience.subscriptions)
        # Exact to the nanosecond for 104 days after the queue's origin, to two for a year.
        return -(float(entry.published_ns - link.origin_ns) + average)


KIND: Final = StrategyKind(
    "remaining-lifetime",
    "the shortest remaining lifetime, averaged over its subscriptions",
    lambda mix: RemainingLifetime(),
    order=30,
)
