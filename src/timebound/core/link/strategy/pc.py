"""PC: the largest postponing cost first, EB - EB' (docs/model.md, section 3).

It rises as a deadline approaches and falls once that is lost.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import WINDOWED, Strategy, StrategyKind, benefit_and_cost
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.outlook import Shape, outlook


class PostponingCost(Strategy):
    """The largest postponing cost first: what is expected to be lost by being sent second."""

    __slots__ = ("shape",)

    def __init__(self) -> None:
        super().__init__("pc", WINDOWED, True)
        self.shape = Shape(0.0, False)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        age = float(now_ns - entry.published_ns)
        return benefit_and_cost(entry, age, age + link.first_ns, 0.0)

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        return outlook(entry, float(now_ns - entry.published_ns), level, link, self.shape)


KIND: Final = StrategyKind(
    "pc", "the largest cost of sending another one first", lambda mix: PostponingCost(), order=50
)
