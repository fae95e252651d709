"""Sessions by the time at which they must be visited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.sessions.due import STALE_MAX, DueList
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList


def sessions(count: int) -> list[Session]:
    return [Session(f"c{number}", "", AccessList([]).for_client("", "c")) for number in range(count)]


def test_sessions_come_in_the_order_of_their_times_and_equal_ones_as_they_were_put() -> None:
    due = DueList()
    first, second, third = sessions(3)
    due.put(first, 20)
    due.put(second, 10)
    due.put(third, 20)

    assert due.next_ns() == 10
    assert due.pop(9) is None
    assert [due.pop(20), due.pop(20), due.pop(20), due.pop(20)] == [second, first, third, None]
    assert (len(due), first.due_ns) == (0, NEVER_NS)


def test_an_earlier_time_replaces_a_later_one_and_not_the_other_way_round() -> None:
    due = DueList()
    [session] = sessions(1)
    due.put(session, 20)
    due.put(session, 30)
    assert due.next_ns() == 20

    due.put(session, 10)

    assert due.pop(10) is session
    assert due.next_ns() is None  # the item at 20 is outdated


def test_a_session_that_was_removed_is_not_due_and_can_be_put_again() -> None:
    due = DueList()
    [session] = sessions(1)
    due.put(session, 10)

    due.remove(session)
    due.remove(session)

    assert (due.next_ns(), len(due)) == (None, 0)
    due.put(session, 20)
    assert due.next_ns() == 20


def test_outdated_items_are_removed_before_there_are_many() -> None:
    due = DueList()
    [session] = sessions(1)
    for number in range(3 * STALE_MAX):
        due.put(session, 10**18)  # in years
        due.put(session, number)
        assert due.pop(number) is session

    assert len(due._heap) <= STALE_MAX + 3
    due._check()


@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "pop"]), st.integers(0, 3), st.integers(0, 20))))
def test_it_agrees_with_a_table(steps: list[tuple[str, int, int]]) -> None:
    due = DueList()
    known = sessions(4)
    table: dict[str, int] = {}
    for step, number, time_ns in steps:
        session = known[number]
        if step == "put":
            due.put(session, time_ns)
            table[session.client_id] = min(time_ns, table.get(session.client_id, NEVER_NS))
        elif step == "remove":
            due.remove(session)
            table.pop(session.client_id, None)
        else:
            popped = due.pop(time_ns)
            assert (popped is None) == (min(table.values(), default=NEVER_NS) > time_ns)
            if popped is not None:
                assert table.pop(popped.client_id) <= min(table.values(), default=NEVER_NS)
        due._check()
        assert len(due) == len(table)
        assert due.next_ns() == min(table.values(), default=None)
