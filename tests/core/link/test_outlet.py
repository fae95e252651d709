"""What every way out does: packet ids, the window, what is unanswered, and when a copy is dropped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.link.outlet import PACKET_ID_MAX, Outlet, time_of_drop
from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import NEVER_NS, Entry
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.delay import LinkDelay
from timebound.records import Reason


def make() -> Outlet[Any]:
    """The way out to a client: of the two kinds of outlets, the one that needs nothing else."""
    return Session("c", "", AccessList([]).for_client("", "c"))


def in_flight(outlet: Outlet[str], packet_id: int) -> None:
    outlet.inflight[packet_id] = "sent"


def test_packet_ids_begin_at_one_and_go_up() -> None:
    outlet = make()

    assert [outlet.next_packet_id() for _ in range(3)] == [1, 2, 3]


def test_packet_ids_wrap_around_and_skip_those_in_use() -> None:
    # MQTT 5, 2.2.1: a packet id is not 0 and not in use.
    outlet = make()
    outlet.last_packet_id = PACKET_ID_MAX - 1
    for packet_id in (PACKET_ID_MAX, 1, 2, 4):
        in_flight(outlet, packet_id)

    assert [outlet.next_packet_id() for _ in range(3)] == [3, 5, 6]


def test_the_last_free_packet_id_is_found() -> None:
    outlet = make()
    for packet_id in range(1, PACKET_ID_MAX + 1):
        if packet_id != 777:
            in_flight(outlet, packet_id)
    outlet.last_packet_id = 778

    assert outlet.next_packet_id() == 777


@settings(max_examples=50)
@given(st.sets(st.integers(1, 40)), st.integers(0, PACKET_ID_MAX))
def test_a_new_packet_id_is_never_in_use(used: set[int], last: int) -> None:
    outlet = make()
    for packet_id in used:
        in_flight(outlet, packet_id)
    outlet.last_packet_id = last

    packet_id = outlet.next_packet_id()

    assert packet_id not in used
    assert 1 <= packet_id <= PACKET_ID_MAX


def test_what_is_started_is_unanswered_until_it_is_confirmed() -> None:
    outlet = make()
    outlet.open_window(2)

    first, second = outlet.start("one"), outlet.start("two")
    assert (first, second, outlet.send_quota) == (1, 2, 0)
    assert outlet.unanswered() == ["one", "two"]
    outlet.confirm(first)

    assert outlet.unanswered() == ["two"]
    assert outlet.send_quota == 1
    Outlet._check(outlet)


def test_a_new_connection_opens_the_window_less_what_is_still_taken() -> None:
    outlet = make()
    outlet.start("one")

    outlet.open_window(10, taken=3)

    assert (outlet.receive_maximum, outlet.send_quota) == (10, 7)
    assert outlet.unanswered() == ["one"]


def test_confirmations_never_open_the_window_beyond_the_receive_maximum() -> None:
    outlet = make()
    packet_id = outlet.start("one")
    outlet.open_window(1)

    outlet.confirm(packet_id)

    assert outlet.send_quota == 1


def test_what_is_not_in_flight_cannot_be_confirmed() -> None:
    with pytest.raises(KeyError):
        make().confirm(1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_the_window_agrees_with_a_count(steps: list[tuple[bool, int]]) -> None:
    outlet = make()
    outlet.open_window(3)
    model: list[tuple[int, int]] = []  # packet ids and items, oldest first
    for is_start, number in steps:
        if is_start and len(model) < 3:
            model.append((outlet.start(number), number))
        elif not is_start and model:
            packet_id, _ = model.pop(number % len(model))
            outlet.confirm(packet_id)
        assert outlet.unanswered() == [item for _, item in model]
        assert outlet.send_quota == 3 - len(model)
        Outlet._check(outlet)


def queue_with(deadline_ns: int) -> LinkQueue:
    queue = LinkQueue(strategy_named("fifo"), LinkDelay(0.0, 0.0))
    queue.push(Entry("copy", 1_024, 0, Audience([Term(deadline_ns=deadline_ns)])), 0)
    return queue


def test_an_outlet_is_due_when_its_queue_drops() -> None:
    outlet = make()
    assert (outlet.next_drop_ns(), outlet.competing()) == (NEVER_NS, 0)

    outlet.scheduled = queue_with(deadline_ns=0)
    assert (outlet.next_drop_ns(), outlet.competing()) == (NEVER_NS, 1)
    outlet.scheduled = queue_with(deadline_ns=500)
    assert outlet.next_drop_ns() <= 500


@pytest.mark.parametrize("reason", [Reason.HOPELESS, Reason.TIMED_OUT])
def test_a_late_copy_counts_from_when_it_was_late_and_not_before_it_was_queued(reason: Reason) -> None:
    entry = Entry("copy", 1_024, 0, Audience([Term(deadline_ns=500)]))
    entry.reason = reason
    entry.drop_ns = 400

    assert time_of_drop(entry, 900) == 400
    assert time_of_drop(entry, 300) == 300
    entry.pushed_ns = 450
    assert time_of_drop(entry, 900) == 450


def test_a_copy_dropped_for_another_reason_counts_from_now() -> None:
    entry = Entry("copy", 1_024, 0, Audience([Term(deadline_ns=500)]))
    entry.reason = Reason.QUEUE_FULL
    entry.drop_ns = 400

    assert time_of_drop(entry, 900) == 900
