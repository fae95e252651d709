"""Rate-monotonic analysis: textbook sets, and random sets against a simulated processor."""

from __future__ import annotations

import heapq
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from timebound.core.input.schedulability import (
    RESPONSE_TIME,
    UTILISATION_BOUND,
    Operation,
    available,
    judge,
    rank,
    response_ns,
    utilisation,
    utilisation_bound,
)


def op(name: str, period: int, cost: int, criticality: int = 0) -> Operation:
    return Operation(name, period_ns=period, cost_ns=cost, criticality=criticality)


def test_shorter_periods_come_first_and_equal_periods_share_a_priority() -> None:
    ranks = rank([op("slow", 100, 1), op("fast", 10, 1), op("middle", 50, 1), op("middle too", 50, 1)])

    assert [(r.operation.name, r.priority, r.sub_priority) for r in ranks] == [
        ("fast", 0, 0),
        ("middle", 1, 0),
        ("middle too", 1, 1),
        ("slow", 2, 0),
    ]


def test_inside_one_priority_the_more_critical_comes_first() -> None:
    ranks = rank([op("plain", 10, 1), op("critical", 10, 1, criticality=5)])

    assert [r.operation.name for r in ranks] == ["critical", "plain"]


@pytest.mark.parametrize(("count", "bound"), [(0, 1.0), (1, 1.0), (2, 0.8284), (3, 0.7798), (1000, 0.6934)])
def test_utilisation_bound_has_the_known_values(count: int, bound: float) -> None:
    assert utilisation_bound(count) == pytest.approx(bound, abs=1e-4)


def test_utilisation_bound_falls_towards_the_logarithm_of_two() -> None:
    assert utilisation_bound(10**6) == pytest.approx(math.log(2), abs=1e-6)


def test_set_below_the_bound_needs_no_exact_test() -> None:
    verdict = judge([op("a", 10, 4), op("b", 20, 8)])

    assert verdict.schedulable
    assert verdict.test == UTILISATION_BOUND
    assert verdict.utilisation == pytest.approx(0.8)


def test_harmonic_set_at_full_utilisation_passes_the_exact_test() -> None:
    verdict = judge([op("a", 10, 5), op("b", 20, 10)])

    assert verdict.schedulable
    assert verdict.test == RESPONSE_TIME
    assert verdict.utilisation == pytest.approx(1.0)


def test_known_set_has_the_known_response_times() -> None:
    ranks = rank([op("a", 7, 3), op("b", 12, 3), op("c", 20, 5)])

    assert [response_ns(ranks, index) for index in range(3)] == [3, 6, 20]


def test_unschedulable_set_names_who_is_late_and_by_how_much() -> None:
    verdict = judge([op("a", 7, 3), op("b", 12, 3), op("c", 20, 6)])

    assert not verdict.schedulable
    assert verdict.late is not None
    assert verdict.late.name == "c"
    assert verdict.response_ns == 21


def test_overloaded_processor_has_no_response_time_at_all() -> None:
    verdict = judge([op("a", 10, 10), op("b", 20, 1)])

    assert not verdict.schedulable
    assert verdict.response_ns == 0


def test_operation_waits_for_the_one_begun_behind_it_in_its_queue() -> None:
    ranks = rank([op("first", 100, 10, criticality=1), op("second", 100, 30)])

    assert response_ns(ranks, 0) == 40
    assert response_ns(ranks, 1) == 40


def test_available_range_names_the_largest_cost_and_the_shortest_period() -> None:
    admitted = [op("a", 7, 3), op("b", 12, 3)]

    offer = available(admitted, op("c", 20, 6))

    assert offer.cost_ns_max == 5
    assert judge([*admitted, op("c", 20, 5)]).schedulable
    assert judge([*admitted, op("c", offer.period_ns_min, 6)]).schedulable
    assert not judge([*admitted, op("c", offer.period_ns_min - 1, 6)]).schedulable


def test_nothing_is_available_on_a_full_processor() -> None:
    offer = available([op("a", 10, 10)], op("b", 20, 1))

    assert (offer.cost_ns_max, offer.period_ns_min) == (0, 0)


def test_everything_is_available_on_an_idle_processor() -> None:
    offer = available([], op("b", 20, 30))

    assert (offer.cost_ns_max, offer.period_ns_min) == (20, 30)


def test_hours_beside_microseconds_are_judged_at_once() -> None:
    verdict = judge([op("fast", 1_000, 999), op("slow", 3_600 * 10**9, 3 * 10**9)])

    assert verdict.schedulable


@pytest.mark.parametrize(("period", "cost"), [(0, 1), (-1, 1), (1, 0), (1, -5)])
def test_meaningless_operations_are_refused(period: int, cost: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        op("x", period, cost)


# --- against a simulated processor ------------------------------------------------------


def worst_responses(operations: list[Operation]) -> dict[str, int] | None:
    """Run a pre-emptive processor from the critical instant over one hyperperiod; None when one is late."""
    order = {r.operation.name: place for place, r in enumerate(rank(operations))}
    hyperperiod = math.lcm(*[o.period_ns for o in operations])
    releases = sorted(
        (release, order[o.name], o) for o in operations for release in range(0, hyperperiod, o.period_ns)
    )
    ready: list[tuple[int, int, int, Operation]] = []
    worst = dict.fromkeys(order, 0)
    now, released = 0, 0
    while ready or released < len(releases):
        if not ready:
            now = max(now, releases[released][0])
        while released < len(releases) and releases[released][0] <= now:
            release, place, operation = releases[released]
            heapq.heappush(ready, (place, release, operation.cost_ns, operation))
            released += 1
        place, release, left, operation = heapq.heappop(ready)
        until = releases[released][0] if released < len(releases) else now + left
        ran = min(left, max(until - now, 0))
        now += ran
        if ran < left:
            heapq.heappush(ready, (place, release, left - ran, operation))
            continue
        worst[operation.name] = max(worst[operation.name], now - release)
        if now - release > operation.period_ns:
            return None
    return worst


periods = st.sampled_from([4, 5, 6, 8, 10, 12, 15, 20])
sets = st.lists(st.tuples(periods, st.integers(1, 6)), min_size=1, max_size=4)


@given(sets)
def test_judgement_agrees_with_a_simulated_processor(drawn: list[tuple[int, int]]) -> None:
    operations = [op(f"op{i}", period, cost) for i, (period, cost) in enumerate(drawn)]

    simulated = worst_responses(operations) if utilisation(operations) <= 1 else None

    assert judge(operations).schedulable == (simulated is not None)
    if simulated is not None and len({period for period, _ in drawn}) == len(drawn):
        ranks = rank(operations)
        assert {r.operation.name: response_ns(ranks, i) for i, r in enumerate(ranks)} == simulated


@given(sets, periods, st.integers(1, 8))
def test_available_range_is_exactly_where_admission_turns(
    drawn: list[tuple[int, int]], period: int, cost: int
) -> None:
    admitted = [op(f"op{i}", p, c) for i, (p, c) in enumerate(drawn)]
    assume(judge(admitted).schedulable)
    asked = op("asked", period, cost)

    offer = available(admitted, asked)

    fitting_costs = [
        c for c in range(1, period + 1) if judge([*admitted, op("asked", period, c)]).schedulable
    ]
    assert offer.cost_ns_max == max(fitting_costs, default=0)
    limit = offer.period_ns_min + 30 if offer.period_ns_min else 200
    fitting = [p for p in range(1, limit) if judge([*admitted, op("asked", p, cost)]).schedulable]
    assert offer.period_ns_min == min(fitting, default=0)
