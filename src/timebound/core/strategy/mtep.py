"""MTEP: maximum total earning priority, with prices and penalties (docs/model.md, section 3).

w·EE + (1-w)·(PC + EP), where PC = (EE - EP) - (EE' - EP'). EP cancels, which leaves
w·EE + (1-w)·(EE - EE' + EP'). A subscription counts only while its success is at least ε,
for the primed sums its success when sent second. EE and EE' never grow with time. EP' grows
until its subscription falls below ε and then no longer counts; over a stretch of time it is
at most the penalties of the terms that count at its start and are in doubt by its end.
"""

from __future__ import annotations

from typing import Final

from timebound.core.strategy.base import WINDOWED, Strategy, success
from timebound.core.strategy.entry import Entry, Link

# The published earnings are largest at 0.15 and the arrivals at 0.8; their own comparison uses 0.4.
WEIGHT_DEFAULT: Final = 0.4
# Far more than the rounding of a sum of penalties, far less than any penalty.
_ROUNDING: Final = 1e-12
# With more terms in doubt than this, a rough bound is better than a slow one.
_TERMS_MAX: Final = 12


class TotalEarning(Strategy):
    """`weight` is w, the part of the expected earning."""

    __slots__ = ("weight",)

    def __init__(self, weight: float = WEIGHT_DEFAULT) -> None:
        if not 0.0 <= weight <= 1.0:
            raise ValueError(f"weight={weight} is not between 0 and 1")
        super().__init__("mtep", WINDOWED, True)
        self.weight = weight

    def value(self, entry: Entry, now_ns: int, link: Link) -> float:
        # Over no time at all the bound is the value, as long as it is not the rough one.
        age = float(now_ns - entry.published_ns)
        second = age + link.first_ns
        if entry.sure_from(second) - entry.lost_below(age) <= _TERMS_MAX:
            return self.bound(entry, now_ns, now_ns, link)
        penalty_second = _penalty(entry, second, link.epsilon)
        return self._total(
            _earning(entry, age, link.epsilon), _earning(entry, second, link.epsilon), penalty_second
        )

    def bound(self, entry: Entry, now_ns: int, until_ns: int, link: Link) -> float:
        epsilon = link.epsilon
        audience = entry.audience
        age = float(now_ns - entry.published_ns)
        second = age + link.first_ns
        later = float(until_ns - entry.published_ns) + link.first_ns
        index = entry.sure_from(later)
        lost = entry.lost_below(age)
        if index - lost > _TERMS_MAX:
            alive = audience.penalties_from[lost]
            penalty_second = alive - audience.penalties_from[index] + _ROUNDING * alive
            return self._total(_earning(entry, age, epsilon), _earning(entry, later, epsilon), penalty_second)
        earning = audience.prices_from[index]  # EE at the start
        earning_second = earning  # EE' at the end
        penalty_second = 0.0  # EP', the most it can be in between
        while index > lost:
            index -= 1
            term = audience.terms[index]
            chance = success(entry, index, age)
            if chance < epsilon:
                continue
            earning += term.price * chance
            chance = success(entry, index, later)
            if chance >= epsilon:
                earning_second += term.price * chance
                penalty_second += term.penalty * (1.0 - chance)
            elif later > second and success(entry, index, second) >= epsilon:
                penalty_second += term.penalty * (1.0 - epsilon)
        return self._total(earning, earning_second, penalty_second)

    def _total(self, earning: float, earning_second: float, penalty_second: float) -> float:
        return self.weight * earning + (1.0 - self.weight) * ((earning - earning_second) + penalty_second)


def _earning(entry: Entry, age: float, epsilon: float) -> float:
    """EE or EE': Σ price·success over the subscriptions whose success is at least ε."""
    index = entry.sure_from(age)
    total = entry.audience.prices_from[index]
    lost = entry.lost_below(age)
    while index > lost:
        index -= 1
        chance = success(entry, index, age)
        if chance >= epsilon:
            total += entry.audience.terms[index].price * chance
    return total


def _penalty(entry: Entry, age: float, epsilon: float) -> float:
    """EP': Σ penalty·(1 - success) over the subscriptions whose success is at least ε."""
    index = entry.sure_from(age)
    total = 0.0
    lost = entry.lost_below(age)
    while index > lost:
        index -= 1
        chance = success(entry, index, age)
        if chance >= epsilon:
            total += entry.audience.terms[index].penalty * (1.0 - chance)
    return total
