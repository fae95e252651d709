"""The steps of one turn: everybody has a share, who waits comes first, and a long queue comes in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.budget import STEPS_PER_TURN, TurnBudget


def test_steps_are_taken_until_the_turn_has_too_few() -> None:
    budget = TurnBudget()

    assert budget.take(STEPS_PER_TURN - 10)
    assert not budget.take(11)
    assert budget.take(10)
    assert not budget.take(1)

    budget.renew()
    assert budget.take(STEPS_PER_TURN)


def test_a_queue_longer_than_a_turn_has_one_for_itself() -> None:
    budget = TurnBudget()

    assert budget.take(1)
    assert not budget.take(STEPS_PER_TURN * 3), "another queue has had a part of this turn"
    budget.renew()
    assert budget.take(STEPS_PER_TURN * 3)
    assert not budget.take(1)
    budget.renew()
    assert budget.take(1)


def test_whoever_comes_waits_behind_those_who_wait() -> None:
    budget = TurnBudget()
    budget.is_awaited = True

    assert not budget.take(1)
    assert budget.take_awaited(1)

    budget.is_awaited = False
    assert budget.take(1)


@given(st.lists(st.integers(1, 2 * STEPS_PER_TURN), max_size=30))
def test_a_turn_has_one_long_queue_or_as_many_as_its_steps_are_enough_for(wanted: list[int]) -> None:
    budget = TurnBudget()

    taken = [steps for steps in wanted if budget.take(steps)]

    assert len(taken) == min(len(wanted), 1) or sum(taken) <= STEPS_PER_TURN
