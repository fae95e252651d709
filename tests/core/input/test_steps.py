"""Calculations in steps: nothing happens before the first, and the result comes after the last."""

from __future__ import annotations

import pytest

from timebound.core.input.steps import Steps, finish


def counting(seen: list[int], count: int) -> Steps[int]:
    for number in range(count):
        seen.append(number)
        yield
    return count


def adding(seen: list[int]) -> Steps[int]:
    first = yield from counting(seen, 2)
    second = yield from counting(seen, 3)
    return first + second


def test_steps_are_taken_one_at_a_time_and_finished_with_the_result() -> None:
    seen: list[int] = []
    steps = adding(seen)

    assert seen == []
    next(steps)
    assert seen == [0]
    assert finish(steps) == 5
    assert seen == [0, 1, 0, 1, 2]


def test_an_error_in_a_step_is_the_callers() -> None:
    def failing() -> Steps[int]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        finish(failing())
