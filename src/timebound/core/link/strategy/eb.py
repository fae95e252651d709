"""EB: the largest expected benefit first, Σ price·success (docs/model.md, section 3).

It never grows while a message waits, so an old value stays a bound.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import DECAYING, Strategy, StrategyKind, benefit
from timebound.core.link.strategy.entry import Entry


class ExpectedBenefit(Strategy):
    """The largest expected benefit first."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("eb", DECAYING, True)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        return benefit(entry, float(now_ns - entry.published_ns))


KIND: Final = StrategyKind(
    "eb",
    "the largest expected benefit: price times chance of being in time",
    lambda mix: ExpectedBenefit(),
    order=40,
)
