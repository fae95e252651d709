"""RL as one reading of the papers has it: averaged over the subscriptions that can still be served."""

from __future__ import annotations

import math

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import DECAYING, Strategy
from timebound.core.link.strategy.entry import Entry


class AliveLifetime(Strategy):
    """Shortest average of min(timeout, deadline) - age first, over the subscriptions not yet late.

    The subscriptions that drop out are those with the least time, so the average end only moves later and
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
