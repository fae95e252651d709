"""EBPC: r·EB + (1-r)·PC, benefit and urgency together (docs/model.md, section 3)."""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import WINDOWED, Strategy, benefit_and_cost
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.outlook import Shape, outlook

# The published curves are flat from 0.25 to 1.
WEIGHT_DEFAULT: Final = 0.5


class BenefitAndCost(Strategy):
    """`weight` is r, the part of the expected benefit."""

    __slots__ = ("shape", "weight")

    def __init__(self, weight: float = WEIGHT_DEFAULT) -> None:
        if not 0.0 <= weight <= 1.0:
            raise ValueError(f"weight={weight} is not between 0 and 1")
        super().__init__("ebpc", WINDOWED, True)
        self.weight = weight
        self.shape = Shape(weight, False)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        age = float(now_ns - entry.published_ns)
        return benefit_and_cost(entry, age, age + link.first_ns, self.weight)

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        return outlook(entry, float(now_ns - entry.published_ns), level, link, self.shape)
