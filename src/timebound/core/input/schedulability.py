"""Schedulability of periodic operations: rate-monotonic analysis in exact integers.

An operation needs `cost_ns` of processor time every `period_ns`, and must finish before its next period.
Shorter periods have higher priority; operations of equal period share a priority (one queue, served one
after the other) and are ordered inside it by sub-priority: the more critical first, then the older.
The formulas are in docs/channel.md.
"""

from __future__ import annotations

from typing import Final

# Testing a set takes quadratic time; one processor carries far fewer periodic operations.
OPERATIONS_MAX: Final = 1_000
# The iteration nearly always ends within ten steps; beyond the limit the set counts as unschedulable: safe.
ITERATIONS_MAX: Final = 100_000
# Error of float sums of utilisation; closer cases are left to the exact test.
UTILISATION_TOLERANCE: Final = 1e-9

UTILISATION_BOUND: Final = "utilisation bound"
RESPONSE_TIME: Final = "response time"


class Operation:
    """The periodic demand of one consumer. `criticality` orders operations of equal period."""

    __slots__ = ("cost_ns", "criticality", "name", "period_ns")

    def __init__(self, name: str, *, period_ns: int, cost_ns: int, criticality: int = 0) -> None:
        if period_ns <= 0:
            raise ValueError(f"period of operation {name!r} is {period_ns} ns; it must be positive")
        if cost_ns <= 0:
            raise ValueError(f"cost of operation {name!r} is {cost_ns} ns; it must be positive")
        self.name: Final = name
        self.period_ns: Final = period_ns
        self.cost_ns: Final = cost_ns
        self.criticality: Final = criticality

    def utilisation(self) -> float:
        return self.cost_ns / self.period_ns


class Rank:
    """The priority of an operation, and its order within that priority; 0 is the highest of both."""

    __slots__ = ("operation", "priority", "sub_priority")

    def __init__(self, operation: Operation, priority: int, sub_priority: int) -> None:
        self.operation: Final = operation
        self.priority: Final = priority
        self.sub_priority: Final = sub_priority


class Available:
    """What would fit instead of a refused operation; 0 = nothing.

    `cost_ns_max` is the largest cost at the asked period, `period_ns_min` the shortest period at the
    asked cost.
    """

    __slots__ = ("cost_ns_max", "period_ns_min")

    def __init__(self, cost_ns_max: int, period_ns_min: int) -> None:
        self.cost_ns_max: Final = cost_ns_max
        self.period_ns_min: Final = period_ns_min

    def __repr__(self) -> str:
        return f"Available(cost_ns_max={self.cost_ns_max}, period_ns_min={self.period_ns_min})"


class Verdict:
    """Whether a set is schedulable, by which test, and if not, which operation would be late.

    `response_ns` is the response time of the late operation; 0 if it is unbounded.
    """

    __slots__ = ("late", "response_ns", "schedulable", "test", "utilisation")

    def __init__(
        self, schedulable: bool, test: str, utilisation: float, late: Operation | None, response_ns: int
    ) -> None:
        self.schedulable: Final = schedulable
        self.test: Final = test
        self.utilisation: Final = utilisation
        self.late: Final = late
        self.response_ns: Final = response_ns


def rank(operations: list[Operation]) -> list[Rank]:
    """Return rate-monotonic ranks, in the order of service."""
    keyed = [(op.period_ns, -op.criticality, index) for index, op in enumerate(operations)]
    keyed.sort()
    ranks: list[Rank] = []
    priority = -1
    sub_priority = 0
    period_before = 0
    for period_ns, _, index in keyed:
        if period_ns != period_before:
            priority += 1
            sub_priority = 0
            period_before = period_ns
        ranks.append(Rank(operations[index], priority, sub_priority))
        sub_priority += 1
    return ranks


def utilisation(operations: list[Operation]) -> float:
    """Return the share of the processor that a set needs: Σ C/P."""
    total = 0.0
    for operation in operations:
        total += operation.utilisation()
    return total


def utilisation_bound(count: int) -> float:
    """Return the utilisation up to which any `count` operations are schedulable: n(2^(1/n) - 1)."""
    if count <= 0:
        return 1.0
    power: float = 2.0 ** (1.0 / count)
    return count * (power - 1.0)


def response_ns(ranks: list[Rank], index: int) -> int | None:
    """Return the worst response time of `ranks[index]`, or None if it exceeds the period.

    R = C + B + Σ ⌈R/P_j⌉·C_j over all that are served before it. B is the longest operation behind it in its
    own queue: once begun, that one is not pre-empted.
    """
    own = ranks[index]
    limit = own.operation.period_ns
    base = own.operation.cost_ns + _blocking_ns(ranks, index)
    before = [ranks[j].operation for j in range(index)]
    load = utilisation(before)
    if base > limit or load >= 1.0:
        return None
    # R >= base/(1-U): starting just below saves nearly all steps and cannot skip the result.
    response = max(base, int(base / (1.0 - load) * (1.0 - UTILISATION_TOLERANCE)) - 1)
    for _ in range(ITERATIONS_MAX):
        needed = base
        for other in before:
            needed += -(-response // other.period_ns) * other.cost_ns
        if needed > limit:
            return None
        if needed <= response:
            return needed
        response = needed
    return None


def _blocking_ns(ranks: list[Rank], index: int) -> int:
    priority = ranks[index].priority
    blocking = 0
    for behind in range(index + 1, len(ranks)):
        if ranks[behind].priority != priority:
            break
        blocking = max(blocking, ranks[behind].operation.cost_ns)
    return blocking


def judge(operations: list[Operation]) -> Verdict:
    """Decide whether all operations always finish in time: by the utilisation bound, or else exactly."""
    load = utilisation(operations)
    if load <= utilisation_bound(len(operations)) - UTILISATION_TOLERANCE:
        return Verdict(True, UTILISATION_BOUND, load, None, 0)
    ranks = rank(operations)
    for index in range(len(ranks)):
        if response_ns(ranks, index) is None:
            late = ranks[index].operation
            return Verdict(False, RESPONSE_TIME, load, late, _unlimited_response_ns(ranks, index))
    return Verdict(True, RESPONSE_TIME, load, None, 0)


def available(admitted: list[Operation], asked: Operation) -> Available:
    """Return what would fit beside `admitted`, at the asked period and at the asked cost.

    Less cost, or a longer period, never makes a schedulable set unschedulable: rate-monotonic priorities are
    optimal, so both limits can be found by bisection.
    """
    return Available(_cost_ns_max(admitted, asked), _period_ns_min(admitted, asked))


def _fits(admitted: list[Operation], asked: Operation, *, period_ns: int, cost_ns: int) -> bool:
    candidate = Operation(asked.name, period_ns=period_ns, cost_ns=cost_ns, criticality=asked.criticality)
    return judge([*admitted, candidate]).schedulable


def _cost_ns_max(admitted: list[Operation], asked: Operation) -> int:
    fits, too_much = 0, asked.period_ns + 1
    while too_much - fits > 1:
        middle = (fits + too_much) // 2
        if _fits(admitted, asked, period_ns=asked.period_ns, cost_ns=middle):
            fits = middle
        else:
            too_much = middle
    return fits


def _period_ns_min(admitted: list[Operation], asked: Operation) -> int:
    if utilisation(admitted) >= 1.0:
        return 0
    # With the longest period of all it is served last and delays no other: its own response time fits.
    last = Operation(asked.name, period_ns=asked.cost_ns, cost_ns=asked.cost_ns)
    ranks = [*rank(admitted), Rank(last, len(admitted), 0)]
    longest = max([operation.period_ns for operation in admitted], default=0)
    fits = max(longest + 1, _unlimited_response_ns(ranks, len(ranks) - 1))
    if not _fits(admitted, asked, period_ns=fits, cost_ns=asked.cost_ns):
        return 0
    too_short = 0
    while fits - too_short > 1:
        middle = (fits + too_short) // 2
        if _fits(admitted, asked, period_ns=middle, cost_ns=asked.cost_ns):
            fits = middle
        else:
            too_short = middle
    return fits


def _unlimited_response_ns(ranks: list[Rank], index: int) -> int:
    """Return the response time even beyond the period, for the explanation; 0 if it is unbounded."""
    own = ranks[index].operation
    load = utilisation([ranks[j].operation for j in range(index)])
    if load >= 1.0 - UTILISATION_TOLERANCE:
        return 0
    total = own.cost_ns + _blocking_ns(ranks, index)
    for j in range(index):
        total += ranks[j].operation.cost_ns
    # Σ(⌈R/P⌉·C) < R·U + ΣC, so no response time lies beyond this limit.
    limit = int(total / (1.0 - load) * (1.0 + UTILISATION_TOLERANCE)) + 1
    patient = Operation(own.name, period_ns=max(limit, own.period_ns), cost_ns=own.cost_ns)
    stretched = [*ranks[:index], Rank(patient, ranks[index].priority, ranks[index].sub_priority)]
    stretched += ranks[index + 1 :]
    return response_ns(stretched, index) or 0
