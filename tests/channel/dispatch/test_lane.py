"""One lane: its queue, and slow consumers, who delay nobody in it or in others, however many there are."""

from __future__ import annotations

import os
import time
from threading import Event as Signal
from threading import get_ident, get_native_id

import pytest
from tests.channel.doubles import (
    LIMIT_S,
    Blocker,
    laned,
    patient,
    push_all,
    reactive,
    real_time_is_permitted,
    wait_until,
)

from timebound.channel import Event, EventChannel, Kind, Lanes, Report, Supplier
from timebound.channel.base.consumer import BEST_EFFORT, PATIENCE_NS, PLAIN
from timebound.channel.base.realtime import APART_PRIORITY, LANE_PRIORITY_MAX
from timebound.channel.dispatch.lane import NEVER_NS, QUICK_RUNS, THREADS_MAX, Lane, LaneContext

# Beside each other they would delay each other, at one priority of one processor.
pytestmark = pytest.mark.xdist_group("real-time")

EVENTS = 200


# --- the queue alone --------------------------------------------------------------------


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def context(notices: list[str]) -> LaneContext:
    return LaneContext(
        real_time=False,
        cpu=None,
        priority_max=LANE_PRIORITY_MAX,
        threads_max=1,
        pass_on=lambda consumer, event, mask: None,
        notice=notices.append,
    )


def test_closed_lane_gives_what_waits_by_sub_priority_then_arrival_and_takes_no_more(
    context: LaneContext,
) -> None:
    carrier = reactive()
    plain, critical = carrier.connect(print, "a"), carrier.connect(print, "a")
    critical.sub_priority = -1
    events = [Event("a", "s", number, 0) for number in range(4)]
    lane = Lane(context, BEST_EFFORT, threads=1)
    for consumer, event in zip((plain, critical, plain, critical), events, strict=True):
        assert lane.put(consumer, event, PLAIN)

    assert [(consumer, event.payload) for consumer, event, _ in lane.close()] == [
        (critical, 1),
        (critical, 3),
        (plain, 0),
        (plain, 2),
    ]
    assert not lane.put(plain, events[0], PLAIN)
    assert lane.close() == []


def test_full_queue_of_a_lane_drops(context: LaneContext) -> None:
    consumer = reactive().connect(print, "a", queue_max=2)
    lane = Lane(context, BEST_EFFORT, threads=1)
    for number in range(3):
        assert lane.put(consumer, Event("a", "s", number, 0), PLAIN)

    assert (consumer.queued, consumer.dropped) == (2, 1)
    assert [event.payload for _, event, _ in lane.close()] == [0, 1]


def test_earliest_look_that_was_asked_for_is_the_next_one(context: LaneContext) -> None:
    assert context.look_ns == NEVER_NS
    for due_ns in (30, 20, 40):
        context.look_by(due_ns)
    assert context.look_ns == 20

    context.begin_look()

    assert context.look_ns == context.next_look_ns() == NEVER_NS


def test_missing_permission_is_noticed_once(context: LaneContext, notices: list[str]) -> None:
    context.note_permission("not permitted")
    context.note_permission("not permitted")

    assert notices == ["lanes run at normal priority: not permitted"]


# --- slow consumers ---------------------------------------------------------------------


def overtaken(channel: EventChannel, slow: Blocker) -> tuple[Supplier, list[object]]:
    """Let a slow and a quick consumer share a lane, until the quick one has all, the slow one its first."""
    got: list[object] = []
    channel.connect(slow, "a", name="slow")
    channel.connect(lambda e: got.append(e.payload), "a", name="quick")
    supplier = channel.supplier("s", "a")
    push_all(supplier, "a", range(EVENTS))
    # Also a thread that has not even reached the slow one may be overtaken.
    wait_until(lambda: len(got) == EVENTS and slow.entered.is_set())
    return supplier, got


@pytest.mark.parametrize("computes", [False, True], ids=["blocked", "computing"])
@pytest.mark.parametrize("real_time", [False, True], ids=["normal", "real-time"])
def test_others_of_the_lane_get_every_event_while_one_does_not_come_back(
    computes: bool, real_time: bool
) -> None:
    slow = Blocker(computes=computes)
    with laned(real_time=real_time) as channel:
        _, got = overtaken(channel, slow)

        assert slow.payloads == [0]
        slow.release.set()
        wait_until(lambda: len(slow.payloads) == EVENTS)
    assert got == slow.payloads == list(range(EVENTS))


def test_consumer_that_kept_others_waiting_twice_never_takes_their_thread_again() -> None:
    slow, threads = Blocker(), list[int]()
    with laned() as channel:
        slow.consumer = channel.connect(slow, "slow", name="slow")
        patient(channel.connect(lambda e: threads.append(get_ident()), "quick", name="quick"))
        supplier = channel.supplier("s", "slow", "quick")
        keep_waiting(slow, supplier, threads)
        assert [c.is_set_apart for c in channel.statistics().consumers] == [True, False]

        slow.release.set()
        served = len(threads)
        for number in range(2, 20):
            supplier.push("slow", number)
            supplier.push("quick")
        wait_until(lambda: len(threads) == served + 18 and len(slow.payloads) == 20)

    assert slow.payloads == list(range(20))
    assert not set(slow.threads[2:]) & set(threads[served:])


def keep_waiting(slow: Blocker, supplier: Supplier, served: list[int]) -> None:
    """Let one consumer keep another waiting twice in a row; afterwards it is still at its second event."""
    for number in range(2):
        supplier.push("slow", number)
        assert slow.entered.wait(LIMIT_S)
        slow.entered.clear()
        # Served by another thread, and seen a second time: then it has been set apart.
        until = time.monotonic() + LIMIT_S
        while slow.consumer.strikes <= number:
            assert time.monotonic() < until, "was not set apart"
            before = len(served)
            supplier.push("quick")
            wait_until(lambda before=before: len(served) > before)  # type: ignore[misc]  # untyped default
        if number == 0:
            slow.release.set()
            wait_until(lambda: slow.consumer.queued == 0)
            slow.release.clear()


def test_consumer_that_has_become_quick_again_shares_the_thread_again() -> None:
    slow, served = Blocker(), list[int]()
    with laned() as channel:
        consumer = slow.consumer = channel.connect(slow, "slow", name="slow")
        channel.connect(lambda e: served.append(1), "quick", name="quick")
        supplier = channel.supplier("s", "slow", "quick")

        def is_apart() -> bool:
            return channel.statistics().consumers[0].is_set_apart

        keep_waiting(slow, supplier, served)
        assert is_apart()
        slow.release.set()
        # The machine may stop in one of its runs, which then was not quick.
        for number in range(2, 100 * QUICK_RUNS):
            supplier.push("slow", number)
            wait_until(lambda: consumer.queued == 0)
            if not is_apart():
                break

        assert not is_apart()
        assert len(slow.payloads) >= QUICK_RUNS
    assert slow.payloads == list(range(len(slow.payloads)))


def test_more_blocked_consumers_than_ever_had_threads_delay_nobody() -> None:
    blocked, got, reports = [Blocker() for _ in range(20)], list[object](), list[Report]()
    with laned(reports) as channel:
        for blocker in blocked:
            channel.connect(blocker, "a")
        channel.connect(lambda e: got.append(e.payload), "a", name="quick")
        supplier = channel.supplier("s", "a")

        push_all(supplier, "a", range(EVENTS))
        wait_until(lambda: len(got) == EVENTS and all(blocker.entered.is_set() for blocker in blocked))

        assert [len(blocker.payloads) for blocker in blocked] == [1] * 20
        for blocker in blocked:
            blocker.release.set()
        wait_until(lambda: all(len(blocker.payloads) == EVENTS for blocker in blocked))
    assert got == list(range(EVENTS))
    assert all(blocker.payloads == got for blocker in blocked)
    assert [r for r in reports if r.kind is Kind.NOTICE] == []


def test_limit_of_threads_is_said_once_and_all_goes_on_when_one_comes_back() -> None:
    blocked, got, reports = [Blocker() for _ in range(4)], list[object](), list[Report]()
    with laned(reports, threads_max=3) as channel:
        for blocker in blocked:
            channel.connect(blocker, "a")
        channel.connect(lambda e: got.append(e.payload), "a", name="quick")
        supplier = channel.supplier("s", "a")
        push_all(supplier, "a", [0, 1])
        wait_until(lambda: any(r.kind is Kind.NOTICE for r in reports))
        assert got == []

        for blocker in blocked:
            blocker.release.set()
        wait_until(lambda: len(got) == 2 and all(len(blocker.payloads) == 2 for blocker in blocked))

    assert got == [0, 1]
    notice = "consumers without operations wait for slow ones in their lane: "
    notice += "no threads are left (threads_max=3)"
    assert [r.message for r in reports if r.kind is Kind.NOTICE] == [notice]
    with pytest.raises(ValueError, match=r"threads=65 is out of range \(1 to threads_max=64\)"):
        Lanes(threads=THREADS_MAX + 1)


def test_blocked_consumer_with_an_operation_is_replaced_and_keeps_its_priority() -> None:
    slow, got = Blocker(), list[object]()
    with laned() as channel:
        operation = channel.scheduler.operation
        channel.connect(slow, "a", name="slow", operation=operation("slow", period="1s", cost="2ms"))
        quick = operation("quick", period="1s", cost="1ms")
        channel.connect(lambda e: got.append(e.payload), "a", name="quick", operation=quick)
        supplier = channel.supplier("s", "a")

        push_all(supplier, "a", range(EVENTS))
        wait_until(lambda: len(got) == EVENTS)

        # It used no processor time, so it is not set apart: its next event is served like everybody's.
        assert not channel.statistics().consumers[0].is_set_apart
        slow.release.set()
        wait_until(lambda: len(slow.payloads) == EVENTS)
    assert slow.payloads == list(range(EVENTS))


def test_overrun_of_an_urgent_consumer_does_not_delay_a_less_urgent_one() -> None:
    if not real_time_is_permitted():
        pytest.skip("SCHED_FIFO is not permitted here")
    release, apart = Signal(), Signal()
    got: list[object] = []
    begun_at: list[tuple[int, int]] = []

    def priority() -> tuple[int, int]:
        thread_id = get_native_id()
        return os.sched_getscheduler(thread_id), os.sched_getparam(thread_id).sched_priority

    def urgent(event: Event) -> None:
        begun_at.append(priority())
        until = time.monotonic() + LIMIT_S
        while not release.is_set():
            assert time.monotonic() < until, "was not let out"
            # Among those behind all lanes, each has its turn.
            if priority() == (os.SCHED_RR, APART_PRIORITY):
                apart.set()

    with laned(real_time=True) as channel:
        operation = channel.scheduler.operation
        channel.connect(urgent, "a", operation=operation("urgent", period="100ms", cost="1ms"))
        less = operation("less", period="1s", cost="1ms")
        channel.connect(lambda e: got.append(e.payload), "b", operation=less)
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", 0)
        # Sooner or later one of these has to wait for it.
        until = time.monotonic() + LIMIT_S
        while not apart.wait(0.001):
            assert time.monotonic() < until, "was not set apart"
            supplier.push("b", 0)
        supplier.push("b", 1)
        wait_until(lambda: bool(got) and got[-1] == 1)
        assert len(begun_at) == 1
        release.set()
        supplier.push("a", 1)
        wait_until(lambda: len(begun_at) == 2)

    # It began its next event at its own priority again.
    assert begun_at == [(os.SCHED_FIFO, LANE_PRIORITY_MAX)] * 2


def test_slow_filter_holds_up_nobody_and_its_events_keep_their_order() -> None:
    gate, got, filtered = Blocker(), list[object](), list[object]()

    def slow_filter(event: Event) -> bool:
        gate(event)
        return event.payload != 7

    with laned() as channel:
        channel.connect(lambda e: filtered.append(e.payload), "a", where=slow_filter, name="filtered")
        channel.connect(lambda e: got.append(e.payload), "a", name="quick")
        supplier = channel.supplier("s", "a")
        push_all(supplier, "a", range(EVENTS))
        wait_until(lambda: len(got) == EVENTS)
        gate.release.set()
        wait_until(lambda: len(filtered) == EVENTS - 1)

    assert filtered == [number for number in range(EVENTS) if number != 7]


def test_lanes_are_swapped_while_consumers_run_apart_and_nothing_is_lost() -> None:
    slow = Blocker()
    with laned() as channel:
        supplier, got = overtaken(channel, slow)

        slow.release.set()
        channel.reconfigure(dispatching=Lanes(real_time=False))
        push_all(supplier, "a", range(EVENTS, 2 * EVENTS))
        wait_until(lambda: len(got) == len(slow.payloads) == 2 * EVENTS)

    assert got == slow.payloads == list(range(2 * EVENTS))


def test_quick_consumer_waits_no_longer_than_the_patience_and_a_little() -> None:
    until = time.monotonic() + LIMIT_S
    # The machine may stop in any of the tries, but not in all that there is time for.
    while (waited_ns := wait_for_a_slow_one()) >= 10 * PATIENCE_NS:
        assert time.monotonic() < until, f"still waited {waited_ns} ns"


def wait_for_a_slow_one() -> int:
    """How long a quick consumer waits for a slow one of its lane."""
    slow, served = Blocker(), Signal()
    with laned() as channel:
        channel.connect(slow, "a")
        channel.connect(lambda e: served.set(), "a")
        begin_ns = time.monotonic_ns()
        channel.supplier("s", "a").push("a")
        assert served.wait(LIMIT_S)
        waited_ns = time.monotonic_ns() - begin_ns
        slow.release.set()
    return waited_ns
