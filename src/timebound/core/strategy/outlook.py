"""How long a value that may grow surely stays below a level, and how high it gets until then.

A postponing cost is a bump: a subscription adds to it only from one message time before its
deadline is in doubt until it is lost. So for most of its life a message has a small value, and
rises where several of its deadlines lie close together. Going through its terms in the order of
their deadlines finds the next such place without computing one probability. That is what lets
a queue leave most of its entries alone for seconds (docs/scheduling.md).

Every number here is on the safe side by far more than the rounding of a sum, so that a bound
holds for the values as they are computed.
"""

from __future__ import annotations

import math
from typing import Final

from mypy_extensions import i64

from timebound.core.strategy.entry import Entry, Link, Term

# A bump is taken for a staircase: at most its peak between deadline - FT and the deadline, at most
# half of the price up to this many deviations outside, and hardly anything beyond.
_CORE: Final = 3.0
# Φ(-3) = 0.00135, and what `phi` may be off.
_TAIL: Final = 0.001_36
# The density of the normal distribution is largest at 0: Φ(z + d) - Φ(z) <= 0.3990·d.
_STEEPEST: Final = 0.399
# Nanoseconds by which a step of the staircase is wider than it need be: far more than rounding.
_SLACK: Final = 0.01
# A value is a difference of sums: it is off by less than this part of all that the message can earn.
_ROUNDING: Final = 1e-12
# What `phi` is off at ε moves the place where it reaches ε by at most this many deviations.
_Z_SLACK: Final = 0.2
# With more terms in doubt at a time than this, a closer look costs more than it finds.
_TERMS_MAX: Final = 16
# So many terms are gone through at a time: what is far off may have been sent before.
_SWEEP_MAX: Final = 24


class Shape:
    """What a value is made of: part·EB + (1 - part)·(EB - EB' + EP'), the last only if `has_penalty`."""

    __slots__ = ("has_penalty", "part")

    def __init__(self, part: float, has_penalty: bool) -> None:
        self.part = part
        self.has_penalty = has_penalty


def outlook(entry: Entry, age: float, level: float, link: Link, shape: Shape) -> tuple[float, float, bool]:
    """The age up to which the value surely stays at or below a bound, that bound, and whether it is exact.

    The bound is at most `level`, or, where the value may be higher already, what it is now. It is
    exact where nothing is in doubt until then, so that the value stands still.
    """
    audience = entry.audience
    terms = audience.terms
    count: i64 = len(terms)
    timeout = entry.timeout
    behind = entry.lost_margin
    ahead = link.first_ns + entry.sure_margin
    if timeout > audience.limited:
        audience.crowd(ahead - behind)
    low = entry.lost_below(age)
    high = low
    active = 0.0  # most that the terms from low to high can add by being in doubt
    bound = 0.0
    start = age
    last = low + _SWEEP_MAX if low + _SWEEP_MAX < count else count
    while low < count:
        # The terms that begin to be in doubt at `start`, and when the next one does.
        limit = start + ahead
        while high < count and min(terms[high].allowed, timeout) <= limit:
            weight = _weight(terms[high], shape)
            active += weight + _ROUNDING * weight
            high += 1
        following = min(terms[high].allowed, timeout) - ahead if high < count else math.inf
        limit = start + behind
        while low < high and min(terms[low].allowed, timeout) < limit:
            active -= _weight(terms[low], shape)
            low += 1
        ever = _most_ever(entry, low, shape)
        if ever <= level:
            return math.inf, max(bound, ever), False
        most = shape.part * audience.prices_from(low)
        if low == high:
            if start == age and most >= level:
                return following, most, True
        else:
            most += (1.0 - shape.part) * active + _ROUNDING * audience.stakes_from(low)
        if most > level and low < high and high - low <= _TERMS_MAX:
            most = _staircase(entry, start, low, high, link, shape)
            if most > level:
                return start, most if start == age else bound, False
            until, most = _first_above(entry, start, following, most, level, low, high, link, shape)
            if until < math.inf:
                return until, max(bound, most), False
        elif most > level:
            return start, most if start == age else bound, False
        if most > bound:
            bound = most
        if following == math.inf:
            return math.inf, bound, False
        if high >= last:
            return following, bound, False
        # Rounding must not leave out the term that it was computed from.
        start = following + _SLACK
    return math.inf, bound, False


def _most_ever(entry: Entry, index: i64, shape: Shape) -> float:
    """What the value does not exceed as long as only terms from this one on are left."""
    audience = entry.audience
    if index == len(audience.terms):
        return 0.0
    term = audience.terms[index]
    crowd = term.stakes_from if entry.timeout <= audience.limited else term.crowd_from
    return shape.part * term.prices_from + (1.0 - shape.part) * crowd + _ROUNDING * term.stakes_from


def _weight(term: Term, shape: Shape) -> float:
    return term.price + term.penalty if shape.has_penalty else term.price


def _first_above(
    entry: Entry,
    start: float,
    end: float,
    most: float,
    level: float,
    low: i64,
    high: i64,
    link: Link,
    shape: Shape,
) -> tuple[float, float]:
    """The first age after start and before end at which the staircases add up to more than the level,
    infinity if there is none, and the most they add up to before; at start that is `most`.

    A sum of steps is largest where one goes up.
    """
    until = math.inf
    size = entry.size
    # Of equal deadlines the longest way comes last, and up first: later ones need no look then.
    index = high
    while index > low:
        index -= 1
        term = entry.audience.terms[index]
        scale = max(size * term.deviation, entry.deviation_min)
        full = min(term.allowed, entry.timeout) - term.fixed - size * term.mean - link.first_ns
        half = full - _CORE * scale
        if start < half < end and half < until:
            total = _staircase(entry, half, low, high, link, shape)
            if total > level:
                until = half
            elif total > most:
                most = total
        if start < full < end and full < until:
            total = _staircase(entry, full, low, high, link, shape)
            if total > level:
                until = full
            elif total > most:
                most = total
    return until, most


def _staircase(entry: Entry, age: float, low: i64, high: i64, link: Link, shape: Shape) -> float:
    """What the value does not exceed at this age; from `low` to `high` terms are in doubt, then sure."""
    audience = entry.audience
    terms = audience.terms
    size = entry.size
    first_ns = link.first_ns
    part = shape.part
    rest = 1.0 - part
    total = part * audience.prices_from(high) + _ROUNDING * audience.stakes_from(low)
    while low < high:
        term = terms[low]
        low += 1
        scale = size * term.deviation
        if scale < entry.deviation_min:
            scale = entry.deviation_min
        allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
        spare = allowed - term.fixed - size * term.mean - age
        core = _CORE * scale + _SLACK
        now = 1.0  # most that the success can be now
        loss = _STEEPEST * first_ns / scale  # most that it can lose by waiting
        if loss > 1.0:
            loss = 1.0
        if spare < -_SLACK:
            now = 0.5 if spare > -core else _TAIL
            if loss > now:
                loss = now
        late = spare - first_ns
        failure = 1.0  # most that the failure can be when sent second
        if late > _SLACK:
            failure = 0.5 if late < core else _TAIL
            if loss > failure:
                loss = failure
        total += term.price * (part * now + rest * (loss + _TAIL))
        if shape.has_penalty:
            # Below ε a subscription no longer counts: then there is no penalty to expect, but all of ε lost.
            if late >= (link.z_epsilon - _Z_SLACK) * scale - _SLACK:
                total += rest * term.penalty * failure
            total += rest * term.price * link.epsilon
    return total
