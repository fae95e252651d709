"""PC: the largest postponing cost first, EB - EB' (docs/model.md, section 3).

It rises as a deadline comes near and falls once it is lost. Both sums never grow with time,
so between now and a later time it stays below EB(now) - EB'(later).
"""

from __future__ import annotations

from timebound.core.strategy.base import WINDOWED, Strategy, benefit_and_cost
from timebound.core.strategy.entry import Entry, Link


class PostponingCost(Strategy):
    """What is expected to be lost by sending the message second."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("pc", WINDOWED, True)

    def value(self, entry: Entry, now_ns: int, link: Link) -> float:
        age = float(now_ns - entry.published_ns)
        return benefit_and_cost(entry, age, age + link.first_ns, 0.0)

    def bound(self, entry: Entry, now_ns: int, until_ns: int, link: Link) -> float:
        age = float(now_ns - entry.published_ns)
        later = float(until_ns - entry.published_ns)
        return benefit_and_cost(entry, age, later + link.first_ns, 0.0)
