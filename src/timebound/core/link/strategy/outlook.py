"""Bounds of a value that may grow: how long it stays below a level, and how high it gets until then.

A postponing cost has peaks: a subscription contributes only from one message time before its
deadline is in doubt until it is lost. So the value of a message is small most of the time, and
rises where several of its deadlines are close together. Visiting its terms in the order of their
deadlines finds the next peak without computing a probability. So a queue can ignore most of its
entries for seconds (docs/scheduling.md).

Without deviations a value would be a sum of steps, largest just after a step up. With deviations
it is an average of that sum over the times around, because every Φ is one: so it is at most the
largest sum within a few deviations, plus the little that lies beyond.

Every number here is on the safe side by far more than the rounding of a sum, so that a bound
holds for the values as they are computed.
"""

from __future__ import annotations

import math
from typing import Final

from mypy_extensions import i64

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.entry import Entry

# "Around" means within this many deviations; 2·Φ(-3) of the normal distribution lies beyond.
_CORE: Final = 3.0
_TAIL: Final = 0.002_71
# The density of the normal distribution is largest at 0: Φ(z + d) - Φ(z) <= 0.3990·d.
_STEEPEST: Final = 0.399
# Largest error of the difference of two values of `phi`.
_PHI_OFF: Final = 2e-8
# Nanoseconds by which a step is widened: far more than rounding.
_SLACK: Final = 0.01
# A value is a difference of sums: its error is less than this part of all that the message can earn.
_ROUNDING: Final = 1e-12
_MORE: Final = 1.0 + _ROUNDING
# The error of `phi` at ε moves the point where it reaches ε by at most this many deviations.
_Z_SLACK: Final = 0.2
# With more terms in doubt at a time, a tighter bound costs more than it saves.
_TERMS_MAX: Final = 16
# Terms visited in one call: the message may be sent before the later ones matter.
_SWEEP_MAX: Final = 24


class Shape:
    """The form of a value: part·EB + (1 - part)·(EB - EB' + EP'), the last only if `has_penalty`."""

    __slots__ = ("has_penalty", "part")

    def __init__(self, part: float, has_penalty: bool) -> None:
        self.part = part
        self.has_penalty = has_penalty


def outlook(
    entry: Entry, age: float, level: float, link: LinkModel, shape: Shape
) -> tuple[float, float, bool]:
    """Return the age up to which the value stays at or below a bound, the bound, and whether it is exact.

    The bound is at most `level`, or what the value may be now if that is more. Exact: constant until then.
    """
    audience = entry.audience
    terms = audience.terms
    count: i64 = len(terms)
    timeout = entry.timeout
    behind = entry.lost_margin
    ahead = link.first_ns + entry.sure_margin
    if timeout > audience.limited:
        audience.find_peaks(ahead - behind)
    low = entry.lost_below(age)
    last = low + _SWEEP_MAX if low + _SWEEP_MAX < count else count
    high = low
    bound, start, active = 0.0, age, 0.0  # active: most that terms from low to high can add by being in doubt
    while True:
        # The terms that are over at `start`, and those that begin to be in doubt.
        over = start + behind
        while low < high and min(terms[low].allowed, timeout) < over:
            active -= terms[low].gain if shape.has_penalty else terms[low].price
            low += 1
        if low == count:
            return math.inf, bound, False
        entered = _allowed_up_to(entry, start + ahead, high, count)
        active += _weights(entry, high, entered, shape)
        first, high = terms[low], entered
        peak = first.gains_from if timeout <= audience.limited else first.peak_from
        off = _ROUNDING * first.gains_from
        most = shape.part * first.prices_from
        ever = most + (1.0 - shape.part) * peak + off
        if ever <= level:
            return math.inf, max(bound, ever), False
        if low < high:
            most += (1.0 - shape.part) * active + off
        elif start == age and most >= level:
            return _entering(entry, high, ahead), most, True
        if most > level:
            until = start
            if low < high <= low + _TERMS_MAX:
                # Terms that begin to be in doubt before these are over are included.
                over = min(terms[high - 1].allowed, timeout) - behind
                entered = _allowed_up_to(entry, over + ahead, high, min(count, low + _TERMS_MAX))
                active += _weights(entry, high, entered, shape)
                high = entered
                end = _entering(entry, high, ahead)
                until, most = _first_above(entry, start, end, level, low, high, link, shape)
            if until == age:
                return age, most, False
            if until < math.inf:
                return until, max(bound, most), False
        if most > bound:
            bound = most
        # Rounding must not skip the term that the start is computed from.
        start = _entering(entry, high, ahead) + _SLACK
        if high >= last:
            return start - _SLACK, bound, False


def _allowed_up_to(entry: Entry, limit: float, index: i64, end: i64) -> i64:
    """Return the index of the first term from `index` on that is allowed more than this, or the end."""
    terms = entry.audience.terms
    if entry.timeout <= limit:
        return end
    while index < end and terms[index].allowed <= limit:
        index += 1
    return index


def _entering(entry: Entry, index: i64, ahead: float) -> float:
    """Return the age at which a term begins to be in doubt; infinity if there is no such term."""
    terms = entry.audience.terms
    return min(terms[index].allowed, entry.timeout) - ahead if index < len(terms) else math.inf


def _weights(entry: Entry, index: i64, end: i64, shape: Shape) -> float:
    """Return the most that terms can add while they are in doubt."""
    terms = entry.audience.terms
    total = 0.0
    while index < end:
        total += terms[index].gain if shape.has_penalty else terms[index].price
        index += 1
    return _MORE * total


def _first_above(
    entry: Entry, start: float, end: float, level: float, low: i64, high: i64, link: LinkModel, shape: Shape
) -> tuple[float, float]:
    """Return the first age from start to end at which the value may exceed the level, or infinity, and
    a bound until then; terms before `low` are lost, from `high` on sure.
    """
    audience = entry.audience
    terms = audience.terms
    size = entry.size
    steep = _STEEPEST * link.first_ns
    # Below ε a subscription no longer counts: the rest is lost at once.
    sudden = _PHI_OFF + link.epsilon if shape.has_penalty else _PHI_OFF
    least = math.inf
    flat = 0.0  # most that the terms in doubt add at any time, by the steepest slope
    active = 0.0
    index = low
    while index < high:
        term = terms[index]
        index += 1
        scale = entry.scale(term)
        if scale < least:
            least = scale
        loss = steep / scale + sudden
        flat += term.price * (loss if loss < 1.0 else 1.0)
        active += term.gain
        if shape.has_penalty:
            flat += term.penalty
    first = terms[low]
    most = shape.part * first.prices_from + (1.0 - shape.part) * flat + _ROUNDING * first.gains_from
    if most <= level:
        return math.inf, most
    # What lies beyond "around", and between a step up and the time after it at which the sum is taken.
    blur = (_TAIL + sudden + _STEEPEST * _SLACK * float(high - low) / least) * active
    blur += _ROUNDING * first.gains_from
    reach = _CORE * least
    most = _sharp(entry, start - reach, least, low, high, link, shape) + blur
    if most > level:
        return start, most
    until = math.inf
    # Of equal deadlines the longest path comes last and steps up first, which makes the others unnecessary.
    while index > low:
        index -= 1
        term = terms[index]
        # The step goes up one message time before the message has to be sent.
        scale = entry.scale(term)
        allowed = term.allowed if term.allowed < entry.timeout else entry.timeout
        up = allowed - term.fixed - size * term.mean - link.first_ns - _CORE * (scale - least)
        if start - reach < up < end + reach and up - reach < until:
            total = _sharp(entry, up + _SLACK, least, low, high, link, shape) + blur
            if total > level:
                until = max(start, up - reach)
            elif total > most:
                most = total
    return until, most


def _sharp(
    entry: Entry, age: float, least: float, low: i64, high: i64, link: LinkModel, shape: Shape
) -> float:
    """Return the value at this age without deviations; terms before `low` are lost, from `high` on sure.

    A term with more than the least deviation reaches beyond "around": it counts for that much longer.
    """
    terms = entry.audience.terms
    size = entry.size
    timeout = entry.timeout
    first_ns = link.first_ns
    part = shape.part
    rest = 1.0 - part if shape.has_penalty else 0.0
    # A penalty is expected from one message time before until the success is down to ε.
    expected = link.z_epsilon - _Z_SLACK - _CORE
    total = part * terms[high].prices_from if high < len(terms) else 0.0
    while low < high:
        term = terms[low]
        low += 1
        scale = entry.scale(term)
        wider = _CORE * (scale - least)
        allowed = term.allowed if term.allowed < timeout else timeout
        spare = allowed - term.fixed - size * term.mean - age
        if spare - wider > first_ns:
            total += part * term.price
            continue
        if spare + wider >= 0.0:
            total += term.price
        if rest > 0.0 and spare - first_ns + wider >= expected * scale:
            total += rest * term.penalty
    return total
