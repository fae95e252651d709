"""An allowance is full at first, fills up again, and may be overdrawn."""

from __future__ import annotations

from timebound.core.input.allowance import REQUESTERS_MAX, Allowance, Requesters
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


def test_requester_is_remembered_while_it_owes_or_has_flows() -> None:
    requesters = Requesters(3, 1)
    spent = requesters.get("10.0.0.1", SECOND)
    assert spent.allowance.has_any(SECOND)
    spent.allowance.take(3)
    holder = requesters.get("user a", SECOND)
    holder.flows.add(("c", "t"))

    for number in range(50):
        requesters.get(f"10.1.0.{number}", 2 * SECOND)

    assert requesters.known("10.0.0.1") is spent
    assert requesters.known("user a") is holder
    assert len(requesters) <= 5, "those that are idle are forgotten"
    for number in range(50):
        requesters.get(f"10.2.0.{number}", 9 * SECOND)
    assert requesters.known("10.0.0.1") is None, "it owes nothing any more"


def test_requesters_have_a_limit_and_those_with_flows_stay() -> None:
    requesters = Requesters(3, 1)
    holder = requesters.get("user a", SECOND)
    holder.flows.add(("c", "t"))

    for number in range(REQUESTERS_MAX + 100):
        one = requesters.get(f"user {number}", SECOND)
        assert one.allowance.has_any(SECOND)
        one.allowance.take(1)

    assert len(requesters) == REQUESTERS_MAX
    assert requesters.known("user a") is holder
