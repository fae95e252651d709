"""Outlets by the time at which they must be visited."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.due import STALE_MAX, DueList
from timebound.core.link.outlet import Outlet
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList


def outlets(count: int) -> list[Outlet[Any]]:
    access = AccessList([])
    return [Session(f"c{number}", "", access.for_client("", f"c{number}")) for number in range(count)]


def test_outlets_come_in_the_order_of_their_times_and_equal_ones_as_they_were_put() -> None:
    due = DueList()
    first, second, third = outlets(3)
    due.put(first, 20)
    due.put(second, 10)
    due.put(third, 20)

    assert due.next_ns() == 10
    assert due.pop(9) is None
    assert [due.pop(20), due.pop(20), due.pop(20), due.pop(20)] == [second, first, third, None]
    assert (len(due), first.due_ns) == (0, NEVER_NS)


def test_an_earlier_time_replaces_a_later_one_and_not_the_other_way_round() -> None:
    due = DueList()
    [outlet] = outlets(1)
    due.put(outlet, 20)
    due.put(outlet, 30)
    assert due.next_ns() == 20

    due.put(outlet, 10)

    assert due.pop(10) is outlet
    assert due.next_ns() is None  # the item at 20 is outdated


def test_an_outlet_that_was_removed_is_not_due_and_can_be_put_again() -> None:
    due = DueList()
    [outlet] = outlets(1)
    due.put(outlet, 10)

    due.remove(outlet)
    due.remove(outlet)

    assert (due.next_ns(), len(due)) == (None, 0)
    due.put(outlet, 20)
    assert due.next_ns() == 20


def test_outdated_items_are_removed_before_there_are_many() -> None:
    due = DueList()
    [outlet] = outlets(1)
    for number in range(3 * STALE_MAX):
        due.put(outlet, 10**18)  # in years
        due.put(outlet, number)
        assert due.pop(number) is outlet

    assert len(due._heap) <= STALE_MAX + 3
    due._check()


def test_a_touched_outlet_is_looked_up_once() -> None:
    due = DueList()
    first, second = outlets(2)
    for outlet in (second, first, second):
        due.touch(outlet)

    assert due.take_touched() == [second, first]
    assert due.take_touched() == []
    due.touch(second)
    assert due.take_touched() == [second]


@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "pop"]), st.integers(0, 3), st.integers(0, 20))))
def test_it_agrees_with_a_table(steps: list[tuple[str, int, int]]) -> None:
    due = DueList()
    known = outlets(4)
    table: dict[int, int] = {}
    for step, number, time_ns in steps:
        outlet = known[number]
        if step == "put":
            due.put(outlet, time_ns)
            table[number] = min(time_ns, table.get(number, NEVER_NS))
        elif step == "remove":
            due.remove(outlet)
            table.pop(number, None)
        else:
            popped = due.pop(time_ns)
            assert (popped is None) == (min(table.values(), default=NEVER_NS) > time_ns)
            if popped is not None:
                assert table.pop(known.index(popped)) <= min(table.values(), default=NEVER_NS)
        due._check()
        assert len(due) == len(table)
        assert due.next_ns() == min(table.values(), default=None)
