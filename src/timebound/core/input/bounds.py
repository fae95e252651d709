"""Delay bounds of a flow through the input scheduler: as printed, corrected, and tight.

A flow is (σ, ρ)-bounded: at most `burst + t / interval_ns` messages in any time t. A delay runs from a
message's arrival to the end of its last quantum. docs/bounds.md has the derivation. Everything is an `int` of
nanoseconds or of quanta, so bounds are exact.
"""

from __future__ import annotations

from math import gcd
from typing import Final

from timebound.core.input.cells import EVEN, cell_order, check_weight, step_of

UNBOUNDED: Final = -1
# The interval of a flow that sends a single burst.
NEVER: Final = 1 << 60

# Where work is limited, messages of a busy period are checked one by one up to these limits: messages times
# cells of the cycle, and messages times cells of the topic.
_LOOKS_CELLS: Final = 1 << 18
_LOOKS_STARTS: Final = 1 << 14
_LOOKS_MIN: Final = 8
_COUNT_BITS: Final = 10  # a topic has fewer cells in a cycle than WEIGHT_MAX + 1

# The parts of a bound; the largest is the first to change.
OTHER_TOPICS: Final = "other topics"
OTHER_CLIENTS: Final = "other clients"
OWN_QUEUE: Final = "own queue"
OWN_SERVICE: Final = "own service"
MISSED_POLL: Final = "missed poll"
OVERLOAD: Final = "overload"
OUTSIDE: Final = "reading, writing, stalls"  # before its queue, after its quantum; see admission.py


class Rotation:
    """One cycle of cells with their real lengths, for the distances between a topic's cells.

    `quanta[k]` is the length of a cell of topic k: the number of clients that publish it, or for the
    corrected bound the number of all clients. A topic without publishers takes no time.

    A cycle longer than `cells_max` is not laid out: distances are then upper limits that hold for any order
    of the cells, since a broker must answer in time. `work` counts cells visited.
    """

    __slots__ = (
        "_counts",
        "_is_even",
        "_is_limited",
        "_others",
        "_slacks",
        "_spans",
        "cells",
        "is_exact",
        "length",
        "starts",
        "work",
    )

    def __init__(
        self,
        weights: list[int],
        quanta: list[int],
        order: str,
        slots: list[int] | None = None,
        *,
        cells_max: int = 0,
        step: int = 0,
    ) -> None:
        if step == 0 or order == EVEN:
            step = max(1, step_of(weights))
        self.starts: list[list[int]] = [[] for _ in weights]  # quanta before each cell of a topic
        self._counts: list[int] = [weight // step for weight in weights]
        self._spans: dict[int, int] = {}  # by topic and cells
        self._slacks: list[int] = [-1] * len(weights)
        self._is_even = order == EVEN
        self.cells = sum(self._counts)
        self.is_exact = cells_max == 0 or self.cells <= cells_max
        self._is_limited = cells_max > 0
        self.length = 0  # of the cycle, in quanta
        self.work = len(weights)
        self._others: list[int] = []
        if not self.is_exact:
            for topic, count in enumerate(self._counts):
                self.length += count * quanta[topic]
            total = sum(quanta)
            self._others = [total - own for own in quanta]
            return
        self.work += self.cells
        for topic in cell_order(weights, order, slots, step):
            self.starts[topic].append(self.length)
            self.length += quanta[topic]

    def span(self, topic: int, cells: int) -> int:
        """Return the most quanta that pass from one cell's start to that of the `cells`-th after it."""
        count = self._counts[topic]
        if not self.is_exact:
            return -(-(cells * self.length + self._slack(topic)) // count)
        cycles, rest = divmod(cells, count)
        key = topic << _COUNT_BITS | rest
        longest = self._spans.get(key, -1)
        if longest < 0:
            longest = 0
            starts = self.starts[topic]
            for first in range(count):
                last = first + rest
                distance = starts[last] if last < count else starts[last - count] + self.length
                distance -= starts[first]
                if distance > longest:
                    longest = distance
            self._spans[key] = longest
            self.work += count
        return longest + cycles * self.length

    def span_limit(self, topic: int, cells: int) -> int:
        """Return what `span` cannot exceed, in a straight line: no search through the cycle."""
        return -(-(cells * self.length + self._slack(topic)) // self._counts[topic])

    def whole_cycles(self, topic: int, cells: int) -> int:
        """Return the quanta of all cycles in which `cells` of a topic's cells begin, and of one more.

        No `span` is longer. The extra cycle is for later messages of a flow below its share: each comes an
        interval later, which is more than its part of a cycle, but only whole cycles are counted here.
        """
        return (cells // self._counts[topic] + 2) * self.length

    def looks_max(self, topic: int) -> int:
        """Return how many messages may be checked one by one to find a flow's bound; 0 = all."""
        if not self._is_limited:
            return 0
        return max(_LOOKS_MIN, min(_LOOKS_CELLS // self.cells, _LOOKS_STARTS // self._counts[topic]))

    def count(self, topic: int) -> int:
        """Return the topic's number of cells in a cycle."""
        return self._counts[topic]

    def is_stable(self, topic: int, interval_ns: int, parts: int, quantum_ns: int) -> bool:
        """Whether a client's share of the topic exceeds one message per `interval_ns`."""
        return parts * self.length * quantum_ns < self._counts[topic] * interval_ns

    def share_interval_ns(self, topic: int, parts: int, quantum_ns: int) -> int:
        """Return the longest interval for which a client's share of the topic is too small."""
        return parts * self.length * quantum_ns // self._counts[topic]

    def _slack(self, topic: int) -> int:
        """Return how far the topic's cells are from lying evenly, in quanta times its cells.

        Start j is j · length / count + e_j; no distance has more than the largest e less the smallest on top.
        """
        slack = self._slacks[topic]
        if slack >= 0:
            return slack
        count = self._counts[topic]
        if self.is_exact:
            most = least = self.starts[topic][0] * count
            for number, start in enumerate(self.starts[topic]):
                off = start * count - number * self.length
                most = max(most, off)
                least = min(least, off)
            slack = most - least
            self.work += count
        elif self._is_even:
            # A window of n of its cells has ⌈n · w / w_k⌉ cells of another topic, at most.
            slack = self._others[topic] * count
        else:
            slack = self.length * count
        self._slacks[topic] = slack
        return slack


class Bound:
    """A delay bound, and the message of the burst that waits so long.

    `delay_ns` is UNBOUNDED if the flow sends more than its share, which is one message per
    `share_interval_ns`.
    """

    __slots__ = ("delay_ns", "dominating", "message", "share_interval_ns")

    def __init__(self, delay_ns: int, message: int, dominating: str, share_interval_ns: float = 0.0) -> None:
        self.delay_ns = delay_ns
        self.message = message  # n, counted from 1
        self.dominating = dominating
        self.share_interval_ns = share_interval_ns


def flow_bound(
    rotation: Rotation,
    topic: int,
    *,
    burst: int,
    interval_ns: int,
    quantum_ns: int,
    clients: int,
    parts: int = 1,
    jitter_ns: int = 0,
) -> Bound:
    """Return the exact worst case of a flow whose messages need `parts` quanta each.

    D = T_quantum + max over n of (span(n · parts) · T_quantum - (n - σ)⁺ / ρ), n from the first
    message until the busy period ends. `clients` only splits the result into its terms.
    `jitter_ns` is how much earlier than that a message may come after its predecessors.

    However long the busy period, few messages have to be checked. Of those that may all come at once the last
    waits longest, so the search starts with it. From then on spans repeat with the cycle, and messages come
    more slowly than cycles pass: what the messages of one cycle do not exceed, none does. And none exceeds a
    straight line, which often ends the search earlier. If the rotation limits the search, the line replaces
    the rest: the bound then holds, but is not exact.
    """
    if not rotation.is_stable(topic, interval_ns, parts, quantum_ns):
        share_ns = parts * rotation.length * quantum_ns / rotation.count(topic)
        return Bound(UNBOUNDED, 0, OVERLOAD, share_ns)
    message = burst + jitter_ns // interval_ns
    count = rotation.count(topic)
    looks = count // gcd(count, parts) + 1
    looks_max = rotation.looks_max(topic)
    is_limited = 0 < looks_max < looks
    if is_limited:
        looks = looks_max
    worst_ns = -1
    worst_message = message
    while True:
        served_ns = quantum_ns + rotation.span(topic, message * parts) * quantum_ns
        delay_ns = served_ns - max(0, (message - burst) * interval_ns - jitter_ns)
        if delay_ns > worst_ns:
            worst_ns = delay_ns
            worst_message = message
        message += 1
        looks -= 1
        waited_ns = (message - burst) * interval_ns - jitter_ns
        if served_ns <= waited_ns or (looks == 0 and not is_limited):
            break
        limit_ns = quantum_ns + rotation.span_limit(topic, message * parts) * quantum_ns - waited_ns
        if limit_ns <= worst_ns:
            break
        if looks == 0:
            worst_ns = limit_ns
            worst_message = message
            break
    return Bound(worst_ns, worst_message, _dominating(rotation, topic, worst_message, clients, parts))


def _dominating(rotation: Rotation, topic: int, message: int, clients: int, parts: int) -> str:
    """Name the largest part of a bound, in quanta; the first named wins a tie."""
    own_cells = message * parts
    terms = [
        (rotation.span(topic, own_cells) - own_cells * clients, OTHER_TOPICS),
        (own_cells * (clients - 1), OTHER_CLIENTS),
        (own_cells - parts, OWN_QUEUE),
        (parts, OWN_SERVICE),
        (1, MISSED_POLL),
    ]
    largest, name = terms[0]
    for quanta, other in terms:
        if quanta > largest:
            largest = quanta
            name = other
    return name


def printed_rank(weights: list[int], topic: int) -> int:
    """Return the paper's k: the rank of the topic, from 1, by non-increasing weight."""
    own = weights[topic]
    heavier = sum(1 for weight in weights if weight > own)
    return heavier + sum(1 for weight in weights[:topic] if weight == own) + 1


def printed_cells(weights: list[int], topic: int) -> list[int]:
    """Return t(n) - s in cells for n = 1 .. w_k / g, as lemmas 1 and 3 print it."""
    for weight in weights:
        check_weight(weight)
    step = step_of(weights)
    rank = printed_rank(weights, topic)
    ordered = sorted(weights, reverse=True)
    own = ordered[rank - 1]
    cells = len(weights) - 1 + sum(weight - own for weight in ordered[: rank - 1]) // step  # η
    times = [cells]
    for message in range(2, own // step + 1):
        cells += rank - 1 + sum(1 for weight in ordered[rank:] if weight >= own - (message - 2) * step)
        times.append(cells)
    return times


def printed_bound(
    weights: list[int], topic: int, *, clients: int, quantum_ns: int, burst: int, interval_ns: int
) -> int:
    """Return theorem 1's bound in nanoseconds, which real schedules exceed.

    UNBOUNDED if its own overload test fails: ρ < w_k / Σw · R, with R one message per quantum.
    """
    if sum(weights) * quantum_ns >= weights[topic] * interval_ns:
        return UNBOUNDED
    cell_ns = clients * quantum_ns
    worst_ns = 0
    for index, cells in enumerate(printed_cells(weights, topic)):
        waited_ns = max(0, index + 1 - burst) * interval_ns
        worst_ns = max(worst_ns, (cells + 1) * cell_ns - waited_ns)
    return worst_ns


def printed_periodic_bound(weights: list[int], topic: int, *, clients: int, quantum_ns: int) -> int:
    """Return theorem 2's bound, equation 15: (η + 1) · T_cell."""
    return (printed_cells(weights, topic)[0] + 1) * clients * quantum_ns
