"""MTEP: maximum total earning priority, with prices and penalties (docs/model.md, section 3).

w·EE + (1-w)·(PC + EP), where PC = (EE - EP) - (EE' - EP'). EP cancels, which leaves
w·EE + (1-w)·(EE - EE' + EP'). A subscription counts only while its success is at least ε; for
the primed sums, its success when sent second.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import WINDOWED, Strategy, StrategyKind
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.outlook import Shape, outlook
from timebound.core.values.delay import phi

# The published earnings are largest at 0.15 and the arrivals at 0.8; their own comparison uses 0.4.
MIX_DEFAULT: Final = 0.4


class TotalEarning(Strategy):
    """`mix` is w, the part of the expected earning."""

    __slots__ = ("mix", "shape")

    def __init__(self, mix: float = MIX_DEFAULT) -> None:
        if not 0.0 <= mix <= 1.0:
            raise ValueError(f"mix={mix} is not between 0 and 1")
        super().__init__("mtep", WINDOWED, True)
        self.mix = mix
        self.shape = Shape(mix, True)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        epsilon = link.epsilon
        terms = entry.audience.terms
        age = float(now_ns - entry.published_ns)
        second = age + link.first_ns
        lost = entry.lost_below(age)
        index = entry.sure_from(second)
        size = entry.size
        timeout = entry.timeout
        earning = entry.audience.prices_from(index)  # EE
        earning_second = earning  # EE'
        penalty_second = 0.0  # EP'
        while index > lost:
            index -= 1
            term = terms[index]
            scale = entry.scale(term)
            allowed = term.allowed if term.allowed < timeout else timeout
            spare = allowed - term.fixed - size * term.mean
            chance = phi((spare - age) / scale)
            if chance < epsilon:
                continue
            earning += term.price * chance
            chance = phi((spare - second) / scale)
            if chance >= epsilon:
                earning_second += term.price * chance
                penalty_second += term.penalty * (1.0 - chance)
        return self.mix * earning + (1.0 - self.mix) * ((earning - earning_second) + penalty_second)

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        return outlook(entry, float(now_ns - entry.published_ns), level, link, self.shape)


KIND: Final = StrategyKind(
    "mtep",
    "the largest earning and penalty together; the mix is the part of earning",
    TotalEarning,
    order=70,
    mix_default=MIX_DEFAULT,
)
