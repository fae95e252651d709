"""An allowance is full at first, fills up again, and may be overdrawn."""

from __future__ import annotations

from timebound.node.input.allowance import Allowance
from timebound.units import SECOND


def test_so_much_at_once_and_so_much_a_second_again() -> None:
    allowance = Allowance(3, 2)
    taken = 0
    for _ in range(10):
        if allowance.has_any(SECOND):
            allowance.take(1)
            taken += 1
    assert taken == 3

    assert not allowance.has_any(SECOND)
    assert allowance.has_any(SECOND + SECOND // 2)
    allowance.take(1)
    assert not allowance.has_any(SECOND + SECOND // 2)


def test_it_never_holds_more_than_its_burst() -> None:
    allowance = Allowance(3, 2)
    assert allowance.has_any(SECOND)
    allowance.take(1)

    assert allowance.has_any(1_000 * SECOND)
    allowance.take(3)

    assert not allowance.has_any(1_000 * SECOND)


def test_what_was_overdrawn_is_paid_first() -> None:
    allowance = Allowance(3, 2)
    assert allowance.has_any(SECOND)
    allowance.take(13)

    assert not allowance.has_any(6 * SECOND)
    assert allowance.has_any(6 * SECOND + SECOND // 100)


def test_time_that_goes_backwards_takes_nothing_away() -> None:
    allowance = Allowance(3, 2)
    assert allowance.has_any(5 * SECOND)

    assert allowance.has_any(4 * SECOND)
