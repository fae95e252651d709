"""The base class of strategies, and the sums over the terms of a message that most of them use.

A strategy assigns a value to every entry at a time; the largest is sent next, equal ones in order
of arrival. To find the largest without valuing all entries, a strategy also returns a bound: a
number that the value does not exceed during some time. Every formula here is built from `phi`,
products with non-negative numbers, sums in a fixed order and differences, all of which keep order
in floating point, so the bounds hold exactly for the computed values.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from timebound.core.link.strategy.audience import LinkModel, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.delay import phi

# How a value changes with time.
STATIC: Final = 0  # never
DECAYING: Final = 1  # never grows: an old value stays a bound
WINDOWED: Final = 2  # may grow: a bound holds only for some time
# The place in lists of a strategy that does not name one.
ORDER_LAST: Final = 1_000
# How far ahead entries that lose worth are bounded, in times of one message.
_SOON: Final = 2.0


class Strategy:
    """Decides which entry is sent first. One level of subclasses, one per file; they hold no queue state."""

    __slots__ = ("kind", "knows_levels", "name", "weighs_worth")

    def __init__(self, name: str, kind: int, weighs_worth: bool, knows_levels: bool = False) -> None:
        self.name = name
        self.kind = kind
        # Whether an old entry may be dropped for a newer one of its flow, and the entry of least
        # worth leaves a full queue; otherwise the last in order does.
        self.weighs_worth = weighs_worth
        # Whether entries of more gain per byte are sent first on a congested link.
        self.knows_levels = knows_levels

    @abstractmethod
    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        """Return the value of an entry now; the largest is sent first."""

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        """Return the age up to which `value` stays at or below a bound, the bound, and whether the value
        is constant until then.

        The bound is at most `level`, or what the value may be now if that is more. A value that never
        grows is its own bound; WINDOWED strategies have to compute one.
        """
        return math.inf, self.value(entry, now_ns, link), self.kind == STATIC

    def worth(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        """Return what a full queue would lose with this entry; never grows. The least is dropped first."""
        if self.weighs_worth:
            return expected_gain(entry, float(now_ns - entry.published_ns)) / entry.size
        return self.value(entry, now_ns, link)


class StrategyKind:
    """What a strategy's own file says about it; the registry finds it there as `KIND`.

    `meaning` describes which message goes next. `mix_default` is the part of the first of two aims, for a
    strategy that mixes two; -1 for others. `make` is called with the mix. `order` is the place in lists:
    from the simplest on; equal ones by name. Exactly one kind `is_default`.
    """

    __slots__ = ("is_default", "make", "meaning", "mix_default", "name", "order", "uses_priority")

    def __init__(
        self,
        name: str,
        meaning: str,
        make: Callable[[float], Strategy],
        *,
        mix_default: float = -1.0,
        order: int = ORDER_LAST,
        uses_priority: bool = False,
        is_default: bool = False,
    ) -> None:
        self.name = name
        self.meaning = meaning
        self.make = make
        self.mix_default = mix_default
        self.order = order
        # Whether priorities of messages matter to it.
        self.uses_priority = uses_priority
        self.is_default = is_default

    @property
    def takes_mix(self) -> bool:
        return self.mix_default >= 0.0


class LeastWorth(Strategy):
    """Ranks entries by least worth under another strategy: the order in which a full queue drops them."""

    __slots__ = ("strategy",)

    def __init__(self, strategy: Strategy) -> None:
        super().__init__("least-worth", WINDOWED if strategy.weighs_worth else STATIC, strategy.weighs_worth)
        self.strategy = strategy

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        return -self.strategy.worth(entry, now_ns, link)

    def outlook(self, entry: Entry, now_ns: int, level: float, link: LinkModel) -> tuple[float, float, bool]:
        # Worth never grows, and is never less than that of the sure terms.
        age = float(now_ns - entry.published_ns)
        lost = entry.lost_below(age)
        index = entry.sure_from(age)
        terms = entry.audience.terms
        soon = age + _SOON * link.first_ns
        if index == len(terms) or min(terms[index].allowed, entry.timeout) - entry.sure_margin < soon:
            return soon, -expected_gain(entry, soon) / entry.size, False
        if -terms[index].gains_from / entry.size >= level:
            until = min(terms[index].allowed, entry.timeout) - entry.sure_margin
            # Nothing is in doubt yet, so the value is constant.
            return until, -terms[index].gains_from / entry.size, index == lost
        while index + 1 < len(terms) and -terms[index + 1].gains_from / entry.size <= level:
            index += 1
        until = min(terms[index].allowed, entry.timeout) - entry.sure_margin
        return until, -terms[index].gains_from / entry.size, False


def success(entry: Entry, term: Term, age: float) -> float:
    """Return the success of one term of an entry, sent at this age; never grows with age."""
    allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
    scale = entry.scale(term)
    return phi((allowed - term.fixed - entry.size * term.mean - age) / scale)


def benefit(entry: Entry, age: float) -> float:
    """Return EB or EE: Σ price·success, for a message sent at this age; never grows with age."""
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
    """Return Σ (price + penalty)·success: what sending now gains over not sending; never grows with age."""
    lost = entry.lost_below(age)
    index = entry.sure_from(age)
    terms = entry.audience.terms
    total = entry.audience.gains_from(index)
    while index > lost:
        index -= 1
        term = terms[index]
        total += term.gain * success(entry, term, age)
    return total


def benefit_and_cost(entry: Entry, age: float, later: float, mix: float) -> float:
    """Return mix·EB(age) + (1 - mix)·(EB(age) - EB(later)); grows with EB(age), falls with the last."""
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
    return mix * first + (1.0 - mix) * (first - second)
