"""The audience of a message on one link: the delay of the link, and the terms of all subscriptions behind it.

An `Audience` is made once for a set of subscriptions and shared by all messages that matched exactly
these. A `Term` stands for one or several subscriptions with the same deadline and path: time allowed,
price, gain, and the path behind the link.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from timebound.core.values.delay import KILOBYTE, NS_PER_S, SATURATED, LinkDelay, Path, normal_quantile

# A smaller deviation makes no difference to a queue; it also keeps divisions defined for σ = 0.
SCALE_FLOOR_NS: Final = 1.0
# A little beyond where `phi` saturates, so that rounding cannot make a term in doubt sure or lost.
DOUBT: Final = 1.01 * SATURATED
_NS_PER_BYTE: Final = NS_PER_S / KILOBYTE

DIRECT: Final = Path()


class LinkModel:
    """The model of one link for the strategies: its delay, ε, and the time of one message.

    It belongs to one queue. `version` counts changes of the delay; `first_ns` (FT) is the mean time
    of one message: what is sent second is that much later than what is sent first. `margin` is an
    additional delay in buffers behind the link.
    """

    __slots__ = (
        "epsilon",
        "first_ns",
        "is_congested",
        "jitter",
        "margin",
        "mean_ns_per_byte",
        "origin_ns",
        "processing_ns",
        "variance",
        "version",
        "z_epsilon",
    )

    def __init__(self, delay: LinkDelay, epsilon: float, processing_ns: int, origin_ns: int) -> None:
        if not 0.0 < epsilon < 1.0:
            raise ValueError(f"epsilon={epsilon} is not between 0 and 1")
        if processing_ns < 0:
            raise ValueError(f"processing_ns={processing_ns} is negative")
        self.epsilon = epsilon
        self.z_epsilon = normal_quantile(epsilon)
        self.processing_ns = processing_ns
        self.origin_ns = origin_ns  # origin of keys that are times; exact for 104 days
        self.first_ns = 0.0
        self.version = 0
        self.mean_ns_per_byte = 0.0
        self.variance = 0.0
        self.jitter = 0.0  # ns
        self.margin = 0.0  # ns
        self.is_congested = False  # it carries less than it is offered
        self.set_delay(delay)

    def set_delay(self, delay: LinkDelay) -> None:
        self.mean_ns_per_byte = delay.mean_s_per_kb * _NS_PER_BYTE
        self.variance = delay.variance * _NS_PER_BYTE * _NS_PER_BYTE
        self.jitter = delay.jitter_s * NS_PER_S
        self.version += 1

    def set_margin(self, margin_ns: int) -> None:
        self.margin = float(margin_ns)
        self.version += 1


class Term:
    """Subscriptions with the same deadline and the same path, merged.

    `path` is the path beyond this link; the delay of the link is added by the queue. The formulas
    read the fields after `count`, which depend on the link as it was last set. A term holds all that
    a sum needs: a separate list of floats costs a cache miss for each number read.
    """

    __slots__ = (
        "allowed",
        "count",
        "deadline_ns",
        "deviation",
        "fixed",
        "gain",
        "gains_from",
        "mean",
        "path",
        "peak_from",
        "penalty",
        "price",
        "prices_from",
    )

    def __init__(
        self,
        deadline_ns: int = 0,
        price: float = 1.0,
        penalty: float = 0.0,
        path: Path = DIRECT,
        count: int = 1,
    ) -> None:
        if deadline_ns < 0 or count < 1:
            raise ValueError(f"term has deadline_ns={deadline_ns}, count={count}; expected at least 0 and 1")
        if not (0.0 <= price < math.inf and 0.0 <= penalty < math.inf):
            raise ValueError(
                f"term has price={price}, penalty={penalty}; expected finite, not negative numbers"
            )
        self.deadline_ns = deadline_ns  # 0 = none
        self.price = price
        self.penalty = penalty
        self.path = path
        self.count = count  # subscriptions in this term
        self.allowed = float(deadline_ns) if deadline_ns else math.inf
        self.gain = price + penalty  # what arriving in time gains: the price, and no penalty
        self.prices_from = price  # sum over this term and all after it in its audience
        self.gains_from = self.gain
        self.peak_from = self.gain  # largest gain of a stretch of deadlines, from this term on
        self.fixed = 0.0  # NN·PD + SBD, ns
        self.mean = 0.0  # μ of the whole path, ns per byte
        self.deviation = 0.0  # σ of the whole path, ns per byte

    def precedes(self, other: Term) -> bool:
        """Whether it is sorted before another: by deadline, none last, then by path.

        Terms of which neither precedes the other can be merged.
        """
        if self.allowed != other.allowed:
            return self.allowed < other.allowed
        own = self.path
        its = other.path
        if own is its:
            return False
        if own.mean_s_per_kb != its.mean_s_per_kb:
            return own.mean_s_per_kb < its.mean_s_per_kb
        if own.variance != its.variance:
            return own.variance < its.variance
        if own.brokers != its.brokers:
            return own.brokers < its.brokers
        return own.last_mile_ns < its.last_mile_ns

    def joined(self, other: Term) -> Term:
        """Return this term merged with another of the same deadline and path."""
        return Term(
            self.deadline_ns,
            self.price + other.price,
            self.penalty + other.penalty,
            self.path,
            self.count + other.count,
        )

    def copied(self) -> Term:
        return Term(self.deadline_ns, self.price, self.penalty, self.path, self.count)

    def fit(self, link: LinkModel) -> None:
        """Compute the delay of the path, including the link as it is now."""
        path = self.path
        self.fixed = float(path.brokers * link.processing_ns + path.last_mile_ns) + link.margin
        self.mean = link.mean_ns_per_byte + path.mean_s_per_kb * _NS_PER_BYTE
        self.deviation = math.sqrt(link.variance + path.variance * _NS_PER_BYTE * _NS_PER_BYTE)


class Audience:
    """The terms of all subscriptions behind one link that a message matched, equal ones merged.

    It belongs to one queue, because its terms include the delay of that link. Terms are sorted by
    deadline, so at any time lost ones come first, then those in doubt, then those that are sure: a
    sum visits only those in doubt. `prices_from` and `gains_from` of a term are the sums over the
    terms from it on, added from last to first, so that they equal such a sum exactly.
    """

    __slots__ = (
        "_deadlines",
        "_peak_width",
        "delay_max",
        "doubt_max",
        "doubt_min",
        "fixed_max",
        "fixed_min",
        "limited",
        "link",
        "subscriptions",
        "terms",
        "version",
    )

    def __init__(self, terms: Sequence[Term]) -> None:
        if not terms:
            raise ValueError("audience has no terms; a message without subscriptions is not queued")
        ordered: list[Term] = []
        for term in terms:
            _insert(ordered, term)
        # Copied in the order in which they are read, so that they are adjacent in memory.
        self.terms: list[Term] = [term.copied() for term in ordered]
        self.limited = 0.0  # last deadline
        self.subscriptions = 0
        prices = gains = 0.0
        for index in range(len(self.terms) - 1, -1, -1):
            term = self.terms[index]
            prices += term.price
            gains += term.gain
            term.prices_from = prices
            term.gains_from = gains
            self.subscriptions += term.count
            if self.limited == 0.0 and term.allowed < math.inf:
                self.limited = term.allowed
        self._deadlines: tuple[float, ...] = ()
        self._peak_width = -1.0
        self.link: LinkModel | None = None
        self.version = -1
        self.fixed_max = 0.0
        self.fixed_min = 0.0
        self.delay_max = 0.0  # largest μ, ns per byte
        self.doubt_max = 0.0  # with more than this to spare per byte, every term is sure
        self.doubt_min = 0.0  # with less than this to spare per byte, every term is lost

    def fit(self, link: LinkModel) -> None:
        """Update the terms for the link; cheap if it has not changed."""
        if self.link is link and self.version == link.version:
            return
        assert self.link is None or self.link is link, "audience is shared between queues"
        self.fixed_max = self.delay_max = self.doubt_max = -math.inf
        self.fixed_min = self.doubt_min = math.inf
        for term in self.terms:
            term.fit(link)
            doubt = DOUBT * term.deviation
            self.fixed_max = max(self.fixed_max, term.fixed)
            self.fixed_min = min(self.fixed_min, term.fixed)
            self.delay_max = max(self.delay_max, term.mean)
            self.doubt_max = max(self.doubt_max, term.mean + doubt)
            self.doubt_min = min(self.doubt_min, term.mean - doubt)
        self.link = link
        self.version = link.version

    def deadlines(self) -> tuple[float, ...]:
        """Return the time allowed by each term, in order."""
        if not self._deadlines:
            self._deadlines = tuple([term.allowed for term in self.terms])
        return self._deadlines

    def find_peaks(self, width: float) -> None:
        """Set `peak_from` of all terms: the largest gain within any stretch of deadlines of this width.

        Values computed for a somewhat wider stretch are kept.
        """
        if width <= self._peak_width <= 4.0 * width:
            return
        self._peak_width = 2.0 * width
        terms = self.terms
        end = len(terms)
        most = 0.0
        for index in range(len(terms) - 1, -1, -1):
            limit = terms[index].allowed + self._peak_width
            while end > index + 1 and terms[end - 1].allowed > limit:
                end -= 1
            within = 0.0
            for other in range(index, end):
                within += terms[other].gain
            if within > most:
                most = within
            terms[index].peak_from = most

    def prices_from(self, index: i64) -> float:
        """Return the prices of the terms from this one on."""
        return self.terms[index].prices_from if index < len(self.terms) else 0.0

    def gains_from(self, index: i64) -> float:
        """Return the gains of the terms from this one on."""
        return self.terms[index].gains_from if index < len(self.terms) else 0.0


def _insert(terms: list[Term], term: Term) -> None:
    """Insert a term in order, or merge it with an equal one.

    Terms are compared in place: a dozen take 0.3 µs compiled, where sorting by tuples took 10 µs.
    """
    count: i64 = len(terms)
    if not count or terms[count - 1].precedes(term):
        terms.append(term)
        return
    low: i64 = 0
    high: i64 = count - 1
    while low < high:
        middle: i64 = (low + high) >> 1
        if terms[middle].precedes(term):
            low = middle + 1
        else:
            high = middle
    if term.precedes(terms[low]):
        terms.insert(low, term)
    else:
        terms[low] = term.joined(terms[low])
