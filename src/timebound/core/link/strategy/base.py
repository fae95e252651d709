"""What a strategy is, and the sums over a message's terms that most of them share.

A strategy gives every entry a value at a time; the largest goes next, equal ones in order of
arrival. To find the largest without looking at all, a strategy also gives a bound: a number
that its value does not exceed during a stretch of time. Every formula here is built from
`phi`, products with non-negative numbers, sums in a fixed order and differences, all of which
keep order in floating point, so the bounds hold for the computed values to the last bit.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from timebound.core.link.strategy.audience import LinkModel, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.delay import phi

# How a value moves with time.
STATIC: Final = 0  # never changes
DECAYING: Final = 1  # never grows: an old value is a bound for ever
WINDOWED: Final = 2  # may grow: a bound holds for a stretch of time only
# The place in lists of a strategy that does not name one.
ORDER_LAST: Final = 1_000
# How far ahead, in times of one message, what loses its worth is looked at.
_SOON: Final = 2.0


class Strategy:
    """Which entry goes first. One level of subclasses, one per file; they keep no state of the queue."""

    __slots__ = ("kind", "knows_levels", "name", "weighs_worth")

    def __init__(self, name: str, kind: int, weighs_worth: bool, knows_levels: bool = False) -> None:
        self.name = name
        self.kind = kind
        # Whether an old entry may be given up for a newer one of its flow, and the least worth
        # leaves a full queue; otherwise the last in order does.
        self.weighs_worth = weighs_worth
        # Whether what is worth more per byte goes first on a link that is congested.
        self.knows_levels = knows_levels

    @abstractmethod
    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        """The value of an entry now; the largest goes first."""

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        """The age up to which `value` stays at or below a bound, that bound, and whether the value stands
        still there.

        The bound is at most `level`, or, where the value may be higher already, what it may be now.
        A value that never grows is its own bound for ever; WINDOWED ones have to find theirs.
        """
        return math.inf, self.value(entry, now_ns, link), self.kind == STATIC

    def worth(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        """What a full queue would lose with this entry; never grows with time. The least goes."""
        if self.weighs_worth:
            return expected_gain(entry, float(now_ns - entry.published_ns)) / entry.size
        return self.value(entry, now_ns, link)


class StrategyKind:
    """What a strategy's own file says about it; the registry finds it there as `KIND`.

    `meaning` says which message goes next. `mix_default` is the part of the first of two aims, for a
    strategy that mixes two; -1 for others. `make` is called with the mix. `order` is the place in lists:
    from the simplest on; equal ones by name.
    """

    __slots__ = ("make", "meaning", "mix_default", "name", "order", "uses_priority")

    def __init__(
        self,
        name: str,
        meaning: str,
        make: Callable[[float], Strategy],
        *,
        mix_default: float = -1.0,
        order: int = ORDER_LAST,
        uses_priority: bool = False,
    ) -> None:
        self.name = name
        self.meaning = meaning
        self.make = make
        self.mix_default = mix_default
        self.order = order
        # Whether priorities of messages matter to it.
        self.uses_priority = uses_priority

    @property
    def takes_mix(self) -> bool:
        return self.mix_default >= 0.0


class LeastWorth(Strategy):
    """Find the entry of least worth under another strategy: the order in which a full queue gives up."""

    __slots__ = ("strategy",)

    def __init__(self, strategy: Strategy) -> None:
        super().__init__("least-worth", WINDOWED if strategy.weighs_worth else STATIC, strategy.weighs_worth)
        self.strategy = strategy

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        return -self.strategy.worth(entry, now_ns, link)

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        # Worth only falls, and is never less than that of the terms that are sure.
        age = float(now_ns - entry.published_ns)
        lost = entry.lost_below(age)
        index = entry.sure_from(age)
        terms = entry.audience.terms
        soon = age + _SOON * link.first_ns
        if index == len(terms) or min(terms[index].allowed, entry.timeout) - entry.sure_margin < soon:
            return soon, -expected_gain(entry, soon) / entry.size, False
        if -terms[index].gains_from / entry.size >= level:
            until = min(terms[index].allowed, entry.timeout) - entry.sure_margin
            # Nothing is in doubt yet, so it stands still.
            return until, -terms[index].gains_from / entry.size, index == lost
        while index + 1 < len(terms) and -terms[index + 1].gains_from / entry.size <= level:
            index += 1
        until = min(terms[index].allowed, entry.timeout) - entry.sure_margin
        return until, -terms[index].gains_from / entry.size, False


def success(entry: Entry, term: Term, age: float) -> float:
    """The success of one term of an entry, sent at this age; never grows with age."""
    allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
    scale = entry.scale(term)
    return phi((allowed - term.fixed - entry.size * term.mean - age) / scale)


def benefit(entry: Entry, age: float) -> float:
    """EB or EE: Σ price·success, for the message `age` ns after its publication. Never grows with age."""
    lost = entry.lost_below(age)
    index = entry.sure_from(age)
    terms = entry.audience.terms
    total = entry.audience.prices_from(index)
    while index > lost:
        index -= 1
        term = terms[index]
        total += term.price * success(entry, term, age)
    return total


def expected_gain(entry: Entry, age: float) -> float:
    """Σ (price + penalty)·success: what sending now gains over not sending. Never grows with age."""
    lost = entry.lost_below(age)
    index = entry.sure_from(age)
    terms = entry.audience.terms
    total = entry.audience.gains_from(index)
    while index > lost:
        index -= 1
        term = terms[index]
        total += term.gain * success(entry, term, age)
    return total


def benefit_and_cost(entry: Entry, age: float, later: float, weight: float) -> float:
    """weight·EB(age) + (1 - weight)·(EB(age) - EB(later)); grows with EB(age) and falls with EB(later)."""
    lost = entry.lost_below(age)
    index = entry.sure_from(later)
    terms = entry.audience.terms
    size = entry.size
    timeout = entry.timeout
    first = entry.audience.prices_from(index)
    second = first
    while index > lost:
        index -= 1
        term = terms[index]
        allowed = term.allowed if term.allowed < timeout else timeout
        scale = entry.scale(term)
        spare = allowed - term.fixed - size * term.mean
        first += term.price * phi((spare - age) / scale)
        second += term.price * phi((spare - later) / scale)
    return weight * first + (1.0 - weight) * (first - second)
