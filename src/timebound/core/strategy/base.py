"""What a strategy is, and the sums over a message's terms that most of them share.

A strategy gives every entry a value at a time; the largest goes next, equal ones in order of
arrival. To find the largest without looking at all, a strategy also gives a bound: a number
that its value does not exceed during a stretch of time. Every formula here is built from
`phi`, products with non-negative numbers, sums in a fixed order and differences, all of which
keep order in floating point, so the bounds hold for the computed values to the last bit.
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.delay import phi
from timebound.core.strategy.entry import NEVER_NS, Entry, Link

# How a value moves with time.
STATIC: Final = 0  # never changes
DECAYING: Final = 1  # never grows: an old value is a bound for ever
WINDOWED: Final = 2  # may grow: a bound holds for a stretch of time only
# With more terms than this between the lost and the sure, two passes over those in doubt are shorter.
_TERMS_MAX: Final = 12


class Strategy:
    """Which entry goes first. One level of subclasses, one per file; they keep no state of the queue."""

    __slots__ = ("kind", "name", "weighs_worth")

    def __init__(self, name: str, kind: int, weighs_worth: bool) -> None:
        self.name = name
        self.kind = kind
        # Whether an old entry may be given up for a newer one of its flow, and the least worth
        # leaves a full queue; otherwise the last in order does.
        self.weighs_worth = weighs_worth

    def value(self, entry: Entry, now_ns: int, link: Link) -> float:
        """The value of an entry now; the largest goes first."""
        raise NotImplementedError

    def bound(self, entry: Entry, now_ns: int, until_ns: int, link: Link) -> float:
        """A number that `value` does not exceed from now until `until_ns`.

        Right for STATIC and DECAYING values; a WINDOWED strategy has its own.
        """
        return self.value(entry, now_ns, link)

    def worth(self, entry: Entry, now_ns: int, link: Link) -> float:
        """What a full queue would lose with this entry; never grows with time. The least goes."""
        if self.weighs_worth:
            return stake(entry, float(now_ns - entry.published_ns)) / entry.size
        return self.value(entry, now_ns, link)


class LeastWorth(Strategy):
    """Find the entry of least worth under another strategy: the order in which a full queue gives up."""

    __slots__ = ("strategy",)

    def __init__(self, strategy: Strategy) -> None:
        super().__init__("least-worth", WINDOWED if strategy.weighs_worth else STATIC, strategy.weighs_worth)
        self.strategy = strategy

    def value(self, entry: Entry, now_ns: int, link: Link) -> float:
        return -self.strategy.worth(entry, now_ns, link)

    def bound(self, entry: Entry, now_ns: int, until_ns: int, link: Link) -> float:
        # Worth only falls, so at the end of the stretch it is least.
        return -self.strategy.worth(entry, until_ns, link)


def success(entry: Entry, index: int, age: float) -> float:
    """The success of one term of an entry, sent at this age; never grows with age."""
    term = entry.audience.terms[index]
    allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
    scale = entry.size * term.deviation
    if scale < entry.deviation_min:
        scale = entry.deviation_min
    return phi((allowed - term.fixed - entry.size * term.mean - age) / scale)


def benefit(entry: Entry, age: float) -> float:
    """EB or EE: Σ price·success, for the message `age` ns after its publication. Never grows with age."""
    index = entry.sure_from(age)
    total = entry.audience.prices_from[index]
    if index == 0:
        return total
    lost = entry.lost_below(age)
    terms = entry.audience.terms
    size = entry.size
    timeout = entry.timeout
    while index > lost:
        index -= 1
        term = terms[index]
        allowed = term.allowed if term.allowed < timeout else timeout
        scale = size * term.deviation
        if scale < entry.deviation_min:
            scale = entry.deviation_min
        total += term.price * phi((allowed - term.fixed - size * term.mean - age) / scale)
    return total


def stake(entry: Entry, age: float) -> float:
    """Σ (price + penalty)·success: what sending now gains over not sending. Never grows with age."""
    index = entry.sure_from(age)
    total = entry.audience.stakes_from[index]
    if index == 0:
        return total
    lost = entry.lost_below(age)
    while index > lost:
        index -= 1
        total += entry.audience.terms[index].stake * success(entry, index, age)
    return total


def benefit_and_cost(entry: Entry, age: float, later: float, weight: float) -> float:
    """weight·EB(age) + (1 - weight)·(EB(age) - EB(later)); grows with EB(age) and falls with EB(later)."""
    index = entry.sure_from(later)
    first = entry.audience.prices_from[index]
    second = first
    lost = entry.lost_below(age)
    if index - lost > _TERMS_MAX:
        first = benefit(entry, age)
        second = benefit(entry, later)
        return weight * first + (1.0 - weight) * (first - second)
    # The same two sums in one pass, to the same last bit.
    terms = entry.audience.terms
    size = entry.size
    timeout = entry.timeout
    while index > lost:
        index -= 1
        term = terms[index]
        allowed = term.allowed if term.allowed < timeout else timeout
        scale = size * term.deviation
        if scale < entry.deviation_min:
            scale = entry.deviation_min
        spare = allowed - term.fixed - size * term.mean
        first += term.price * phi((spare - age) / scale)
        second += term.price * phi((spare - later) / scale)
    return weight * first + (1.0 - weight) * (first - second)


def quiet_until_ns(entry: Entry, now_ns: int, link: Link) -> int:
    """Until when no success of this entry changes, sent first or second; `now_ns` if one may now."""
    age = float(now_ns - entry.published_ns)
    sure = entry.sure_from(age + link.first_ns)
    if sure > entry.lost_below(age):
        return now_ns
    allowed = entry.audience.allowed
    if sure == len(allowed):
        return NEVER_NS
    nearest = min(allowed[sure], entry.timeout)
    if nearest == math.inf:
        return NEVER_NS
    return now_ns + max(int(nearest - entry.sure_margin - link.first_ns - age), 0)
