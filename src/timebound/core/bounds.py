"""Worst-case delays of a flow through the input scheduler: as printed, corrected, and tight.

A flow is (σ, ρ)-bounded: at most `burst + t / interval_ns` messages in any time t. A delay runs
from a message's arrival to the end of its last quantum. docs/bounds.md has the derivation.
Everything is an `int` of nanoseconds or of quanta, so a bound is exact, not nearly so.
"""

from __future__ import annotations

from typing import Final

from timebound.core.cells import cell_order, check_weight, step_of

UNBOUNDED: Final = -1
# The interval of a flow that sends one burst and nothing more: no second one is ever due.
NEVER: Final = 1 << 60

# What a bound consists of; the largest is what a user has to change first.
OTHER_TOPICS: Final = "other topics"
OTHER_CLIENTS: Final = "other clients"
OWN_QUEUE: Final = "own queue"
OWN_SERVICE: Final = "own service"
MISSED_POLL: Final = "missed poll"
OVERLOAD: Final = "overload"
OUTSIDE: Final = "reading and writing"  # before its queue and after its quantum; see core/admission.py


class Rotation:
    """One cycle of cells with their real lengths, to ask how far apart a topic's cells are.

    `quanta[k]` is the length of a cell of topic k: how many clients publish it, or for the
    corrected bound the number of all clients. A topic that nobody publishes takes no time.
    """

    __slots__ = ("cells", "length", "starts")

    def __init__(
        self, weights: list[int], quanta: list[int], order: str, slots: list[int] | None = None
    ) -> None:
        self.starts: list[list[int]] = [[] for _ in weights]  # quanta before each cell of a topic
        self.cells = 0
        self.length = 0  # of the cycle, in quanta
        for topic in cell_order(weights, order, slots):
            self.starts[topic].append(self.length)
            self.length += quanta[topic]
            self.cells += 1

    def span(self, topic: int, cells: int) -> int:
        """Return the most quanta that pass from one cell's start to that of the `cells`-th after it."""
        starts = self.starts[topic]
        count = len(starts)
        cycles, rest = divmod(cells, count)
        longest = 0
        for first in range(count):
            last = first + rest
            distance = starts[last] if last < count else starts[last - count] + self.length
            longest = max(longest, distance - starts[first])
        return longest + cycles * self.length

    def is_stable(self, topic: int, interval_ns: int, parts: int, quantum_ns: int) -> bool:
        """Tell whether a client's share of the topic exceeds one message per `interval_ns`."""
        return parts * self.length * quantum_ns < len(self.starts[topic]) * interval_ns


class Bound:
    """A worst-case delay, and the message of the burst that suffers it.

    `delay_ns` is UNBOUNDED when the flow asks for more than its share.
    """

    __slots__ = ("delay_ns", "dominating", "message")

    def __init__(self, delay_ns: int, message: int, dominating: str) -> None:
        self.delay_ns = delay_ns
        self.message = message  # n, counted from 1
        self.dominating = dominating


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
    """
    if not rotation.is_stable(topic, interval_ns, parts, quantum_ns):
        return Bound(UNBOUNDED, 0, OVERLOAD)
    # Before the burst is over every further message waits longer, so its last one comes first here.
    message = burst
    worst_ns = -1
    worst_message = burst
    while True:
        served_ns = quantum_ns + rotation.span(topic, message * parts) * quantum_ns
        delay_ns = served_ns - max(0, (message - burst) * interval_ns - jitter_ns)
        if delay_ns > worst_ns:
            worst_ns = delay_ns
            worst_message = message
        message += 1
        if served_ns <= (message - burst) * interval_ns - jitter_ns:
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


def corrected_bound(
    weights: list[int],
    topic: int,
    *,
    clients: int,
    quantum_ns: int,
    burst: int,
    interval_ns: int,
    order: str,
    parts: int = 1,
) -> Bound:
    """Return the bound for `clients` clients that all publish every topic; weights in any order."""
    rotation = Rotation(weights, [clients] * len(weights), order)
    return flow_bound(
        rotation,
        topic,
        burst=burst,
        interval_ns=interval_ns,
        quantum_ns=quantum_ns,
        clients=clients,
        parts=parts,
    )


def printed_rank(weights: list[int], topic: int) -> int:
    """Return the paper's k: the topic's place, from 1, with the weights in non-increasing order."""
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
