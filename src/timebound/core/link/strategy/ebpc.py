"""EBPC: r·EB + (1-r)·PC, benefit and urgency together (docs/model.md, section 3)."""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import WINDOWED, Strategy, StrategyKind, benefit_and_cost
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.outlook import Shape, outlook

# The published curves are flat from a quarter to one; the middle is as good as any.
MIX_DEFAULT: Final = 0.5


class BenefitAndCost(Strategy):
    """`mix` is r, the part of the expected benefit."""

    __slots__ = ("mix", "shape")

    def __init__(self, mix: float = MIX_DEFAULT) -> None:
        if not 0.0 <= mix <= 1.0:
            raise ValueError(f"mix={mix} is not between 0 and 1")
        super().__init__("ebpc", WINDOWED, True)
        self.mix = mix
        self.shape = Shape(mix, False)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        age = float(now_ns - entry.published_ns)
        return benefit_and_cost(entry, age, age + link.first_ns, self.mix)

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        return outlook(entry, float(now_ns - entry.published_ns), level, link, self.shape)


KIND: Final = StrategyKind(
    "ebpc",
    "the largest mean of the two; the mix is the part of eb",
    BenefitAndCost,
    order=60,
    mix_default=MIX_DEFAULT,
)
