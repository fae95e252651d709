"""Contracts of flows, and the decisions of admission control about them.

Values only; core/input/admission.py decides.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from timebound.core.input.bounds import OUTSIDE, UNBOUNDED, Bound
from timebound.core.input.cells import WEIGHT_MAX

BURST_MAX: Final = 10_000  # the search for a bound grows with it
_MILLISECOND: Final = 1_000_000
_SECOND: Final = 1_000_000_000


def rate_of(interval_ns: int) -> float:
    """Return the rate in messages per second that an interval stands for: the shortest number that gives it.

    A rate of 723.4 is stored as 1,382,361 ns, which is 723.400038.
    """
    exact = _SECOND / interval_ns
    if _SECOND % interval_ns == 0:
        return exact
    for digits in range(1, 18):
        text = f"{exact:.{digits}g}"
        if int(_SECOND / Fraction(text)) == interval_ns:
            return float(text)
    return exact


def _rate_text(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 1_000_000 else f"{rate:.6g}"


class Contract:
    """A flow as advertised: at most `burst + t / interval_ns` messages of `size` bytes in any time t.

    `weight` 0 leaves the topic's weight as it is; `delay_ns` 0 sets no delay limit.
    """

    __slots__ = ("burst", "client", "delay_ns", "interval_ns", "size", "topic", "weight")

    def __init__(
        self,
        client: str,
        topic: str,
        *,
        interval_ns: int,
        burst: int = 1,
        size: int = 1,
        weight: int = 0,
        delay_ns: int = 0,
    ) -> None:
        if interval_ns < 1:
            raise ValueError(f"interval {interval_ns} ns is not positive")
        if not 1 <= burst <= BURST_MAX:
            raise ValueError(f"burst {burst} is out of range (1 to {BURST_MAX})")
        if not 0 <= weight <= WEIGHT_MAX:
            raise ValueError(f"weight {weight} is out of range (1 to {WEIGHT_MAX}, or 0 for the topic's own)")
        if size < 0 or delay_ns < 0:
            raise ValueError(f"size {size} and delay {delay_ns} ns must not be negative")
        self.client = client
        self.topic = topic
        self.interval_ns = interval_ns
        self.burst = burst
        self.size = size
        self.weight = weight
        self.delay_ns = delay_ns

    def parts(self, quantum_bytes: int) -> int:
        """Return the quanta of its largest message."""
        return max(1, -(-self.size // quantum_bytes))

    def with_interval(self, interval_ns: int) -> Contract:
        return Contract(
            self.client,
            self.topic,
            interval_ns=interval_ns,
            burst=self.burst,
            size=self.size,
            weight=self.weight,
            delay_ns=self.delay_ns,
        )


class CounterOffer:
    """The nearest interval and weight that would fit; 0 = none, or none found in time."""

    __slots__ = ("interval_ns", "is_complete", "weight")

    def __init__(self, interval_ns: int, weight: int, is_complete: bool = True) -> None:
        self.interval_ns = interval_ns
        self.weight = weight
        self.is_complete = is_complete

    def text(self) -> str:
        offers = []
        if self.interval_ns:
            # Rounded up to the next microsecond: what is written must fit.
            offers.append(f"a period of {-(-self.interval_ns // 1000) / 1000:.3f} ms")
        if self.weight:
            offers.append(f"a weight of {self.weight}")
        if offers:
            return " or ".join(offers) + " would fit"
        return (
            f"no other period or weight {'would fit' if self.is_complete else 'that fits was found in time'}"
        )


class Decision:
    """The answer to an advertisement; `reason` is for the client.

    Accepted: `bound_ns` is the flow's delay bound, `weight` and `slot` are for the scheduler. Refused:
    `broken_client` and `broken_topic` name the flow whose guarantee would break, `bound_ns` is its bound then
    (UNBOUNDED: beyond its share), `limit_ns` its delay limit; `counter_offer` is what would fit.
    """

    __slots__ = (
        "accepted",
        "bound_ns",
        "broken_client",
        "broken_topic",
        "counter_offer",
        "limit_ns",
        "reason",
        "slot",
        "weight",
    )

    def __init__(self, accepted: bool, bound_ns: int, reason: str) -> None:
        self.accepted = accepted
        self.bound_ns = bound_ns
        self.reason = reason
        self.broken_client = ""
        self.broken_topic = ""
        self.limit_ns = 0
        self.counter_offer = CounterOffer(0, 0)
        self.weight = 0
        self.slot = -1


def accept(contract: Contract | None, bound_ns: int, weight: int, slot: int) -> Decision:
    reason = "background topic planned"
    if contract is not None:
        reason = f"{_name(contract)} waits at most {bound_ns / _MILLISECOND:.3f} ms"
    decision = Decision(True, bound_ns, reason)
    decision.weight = weight
    decision.slot = slot
    return decision


def refuse(
    broken: Contract,
    bound: Bound,
    limit_ns: int,
    *,
    outside_ns: int = 0,
    counter_offer: CounterOffer | None = None,
) -> Decision:
    """Refuse because of what would happen to `broken`.

    If the time outside the queues alone exceeds the limit, the reason says so: no counter-offer helps then.
    """
    if bound.delay_ns == UNBOUNDED:
        sent = _rate_text(rate_of(broken.interval_ns))
        share = _rate_text(_SECOND / bound.share_interval_ns)
        reason = (
            f"{_name(broken)} sends {sent} messages/s, but its share, which must be larger, would be {share}"
        )
    else:
        reason = (
            f"{_name(broken)} would wait up to {bound.delay_ns / _MILLISECOND:.3f} ms, "
            f"longer than its {limit_ns / _MILLISECOND:.3f} ms"
        )
        if outside_ns >= limit_ns:
            reason = f"{reason}: {OUTSIDE} alone take {outside_ns / _MILLISECOND:.3f} ms"
    if counter_offer is not None:
        reason = f"{reason}; {counter_offer.text()}"
    decision = Decision(False, bound.delay_ns, reason)
    decision.broken_client = broken.client
    decision.broken_topic = broken.topic
    decision.limit_ns = limit_ns
    if counter_offer is not None:
        decision.counter_offer = counter_offer
    return decision


def refuse_full(contract: Contract, limit: str, count_max: int) -> Decision:
    return Decision(False, UNBOUNDED, f"{_name(contract)} exceeds the limit of flows ({limit}={count_max})")


def refuse_change(contract: Contract, count_max: int) -> Decision:
    """Refuse because too many weights are changing: each layout of the cells has to be checked."""
    fact = f"{count_max} earlier changes of weights still count for waiting messages; try again later"
    return Decision(False, UNBOUNDED, f"{_name(contract)} cannot raise its topic's weight now: {fact}")


def refuse_share(
    contract: Contract, share: float, left: float, reserved: float, counter_offer: CounterOffer
) -> Decision:
    """Refuse because all flows together would take more than is reserved for them."""
    decision = Decision(
        False,
        UNBOUNDED,
        f"{_name(contract)} needs {share:.1%} of the service rate, but {max(left, 0):.1%} of the "
        f"{reserved:.0%} reserved for flows is left; {counter_offer.text()}",
    )
    decision.broken_client = contract.client
    decision.broken_topic = contract.topic
    decision.counter_offer = counter_offer
    return decision


def _name(contract: Contract) -> str:
    return f"flow {contract.topic!r} of client {contract.client!r}"
