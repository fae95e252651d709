"""What a strategy is, and the sums over a message's terms that most of them share.

A strategy gives every entry a value at a time; the largest goes next, equal ones in order of
arrival. To find the largest without looking at all, a strategy also gives a bound: a number
that its value does not exceed during a stretch of time. Every formula here is built from
`phi`, products with non-negative numbers, sums in a fixed order and differences, all of which
keep order in floating point, so the bounds hold for the computed values to the last bit.
"""

from __future__ import annotations

from typing import Final

from timebound.core.delay import SATURATED, phi
from timebound.core.strategy.entry import NEVER_NS, SCALE_FLOOR_NS, Entry, Link

# How a value moves with time.
STATIC: Final = 0  # never changes
DECAYING: Final = 1  # never grows: an old value is a bound for ever
WINDOWED: Final = 2  # may grow: a bound holds for a stretch of time only


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


def benefit(entry: Entry, age: float) -> float:
    """EB or EE' : Σ price·success, for the message `age` ns after its publication. Never grows with age."""
    size = entry.size
    timeout = entry.timeout
    total = 0.0
    for term in entry.audience.terms:
        allowed = term.allowed if term.allowed < timeout else timeout
        scale = size * term.deviation
        if scale < SCALE_FLOOR_NS:
            scale = SCALE_FLOOR_NS
        total += term.price * phi((allowed - term.fixed - size * term.mean - age) / scale)
    return total


def stake(entry: Entry, age: float) -> float:
    """Σ (price + penalty)·success: what sending now gains over not sending. Never grows with age."""
    size = entry.size
    timeout = entry.timeout
    total = 0.0
    for term in entry.audience.terms:
        allowed = term.allowed if term.allowed < timeout else timeout
        scale = size * term.deviation
        if scale < SCALE_FLOOR_NS:
            scale = SCALE_FLOOR_NS
        total += term.stake * phi((allowed - term.fixed - size * term.mean - age) / scale)
    return total


def quiet_until_ns(entry: Entry, now_ns: int, link: Link) -> int:
    """Until when no success of this entry changes, sent first or second; `now_ns` if one does now.

    A term is quiet while even sent second it is sure to arrive, and again once it is lost.
    """
    size = entry.size
    age = float(now_ns - entry.published_ns)
    second = age + link.first_ns
    nearest = float(NEVER_NS)
    for term in entry.audience.terms:
        allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
        scale = size * term.deviation
        if scale < SCALE_FLOOR_NS:
            scale = SCALE_FLOOR_NS
        spare = allowed - term.fixed - size * term.mean
        quiet = spare - SATURATED * scale - second
        if quiet > 0.0:
            if quiet < nearest:
                nearest = quiet
        elif spare + SATURATED * scale > age:
            return now_ns
    if nearest >= float(NEVER_NS - now_ns):
        return NEVER_NS
    return now_ns + int(nearest)
