"""MTEP: maximum total earning priority, with prices and penalties (docs/model.md, section 3).

w·EE + (1-w)·(PC + EP), where PC = (EE - EP) - (EE' - EP'). EP cancels, which leaves
w·EE + (1-w)·(EE - EE' + EP'). A subscription counts only while its success is at least ε,
for the primed sums its success when sent second. EE and EE' never grow with time. EP' grows
until its subscription falls below ε and then no longer counts, so over a stretch of time a
term that counts at its start is bounded by its value at the end, or at ε if that comes first.
"""

from __future__ import annotations

from typing import Final

from timebound.core.delay import phi
from timebound.core.strategy.base import WINDOWED, Strategy
from timebound.core.strategy.entry import SCALE_FLOOR_NS, Entry, Link

# The published earnings are largest at 0.15 and the arrivals at 0.8; their own comparison uses 0.4.
WEIGHT_DEFAULT: Final = 0.4


class TotalEarning(Strategy):
    """`weight` is w, the part of the expected earning."""

    __slots__ = ("weight",)

    def __init__(self, weight: float = WEIGHT_DEFAULT) -> None:
        if not 0.0 <= weight <= 1.0:
            raise ValueError(f"weight={weight} is not between 0 and 1")
        super().__init__("mtep", WINDOWED, True)
        self.weight = weight

    def value(self, entry: Entry, now_ns: int, link: Link) -> float:
        return self.bound(entry, now_ns, now_ns, link)

    def bound(self, entry: Entry, now_ns: int, until_ns: int, link: Link) -> float:
        epsilon = link.epsilon
        age = float(now_ns - entry.published_ns)
        second = age + link.first_ns
        later = float(until_ns - entry.published_ns) + link.first_ns
        size = entry.size
        earning = 0.0  # EE at the start
        earning_second = 0.0  # EE' at the end
        penalty_second = 0.0  # EP', the most it can be in between
        for term in entry.audience.terms:
            allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
            scale = size * term.deviation
            if scale < SCALE_FLOOR_NS:
                scale = SCALE_FLOOR_NS
            spare = allowed - term.fixed - size * term.mean
            success = phi((spare - age) / scale)
            if success < epsilon:
                continue
            earning += term.price * success
            success_later = phi((spare - later) / scale)
            if success_later >= epsilon:
                earning_second += term.price * success_later
                penalty_second += term.penalty * (1.0 - success_later)
            elif later > second and phi((spare - second) / scale) >= epsilon:
                penalty_second += term.penalty * (1.0 - epsilon)
        return self.weight * earning + (1.0 - self.weight) * ((earning - earning_second) + penalty_second)
