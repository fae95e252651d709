"""Timers: order, ties, cancelling, and memory that is set aside beforehand."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.correlation.timers import CAPACITY_MAX, MADE_AT_ONCE, Timer, TimerHeap


def acquired(heap: TimerHeap, owner: object = None) -> Timer:
    timer = heap.acquire(owner)
    assert timer is not None
    return timer


def test_timers_expire_in_order_of_due_time() -> None:
    heap = TimerHeap(4)
    late, early = acquired(heap, "late"), acquired(heap, "early")
    heap.set(late, 20)
    heap.set(early, 10)

    assert heap.next_due_ns() == 10
    assert heap.pop_expired(9) is None
    assert heap.pop_expired(30) is early
    assert heap.pop_expired(30) is late
    assert heap.pop_expired(30) is None
    assert heap.next_due_ns() is None


def test_a_timer_due_exactly_now_expires() -> None:
    heap = TimerHeap(1)
    timer = acquired(heap)
    heap.set(timer, 7)

    assert heap.pop_expired(7) is timer
    assert timer.due_ns == 7
    assert not timer.is_set()


def test_equal_times_expire_in_the_order_they_were_set() -> None:
    heap = TimerHeap(5)
    timers = [acquired(heap, name) for name in "abcde"]
    for index in (3, 1, 4, 0, 2):
        heap.set(timers[index], 100)

    names = []
    while (timer := heap.pop_expired(100)) is not None:
        names.append(timer.owner)

    assert names == ["d", "b", "e", "a", "c"]


def test_setting_again_moves_the_timer_and_gives_it_the_last_place_among_equals() -> None:
    heap = TimerHeap(2)
    first, second = acquired(heap), acquired(heap)
    heap.set(first, 5)
    heap.set(second, 5)
    heap.set(first, 5)

    assert heap.pop_expired(5) is second
    assert heap.pop_expired(5) is first


def test_cancelled_timer_does_not_expire_and_can_be_set_again() -> None:
    heap = TimerHeap(1)
    timer = acquired(heap)
    heap.set(timer, 5)

    assert heap.cancel(timer)
    assert not heap.cancel(timer)
    assert heap.pop_expired(10) is None
    heap.set(timer, 6)
    assert heap.pop_expired(10) is timer


def test_acquire_answers_none_when_all_timers_are_taken() -> None:
    heap = TimerHeap(1)
    timer = acquired(heap)

    assert heap.acquire("second") is None
    heap.release(timer)
    assert heap.acquire("second") is timer


@pytest.mark.parametrize("made", [0, 1, MADE_AT_ONCE, 1_000])
def test_timers_are_made_some_at_a_time_up_to_the_capacity(made: int) -> None:
    capacity = 2 * MADE_AT_ONCE + 10
    heap = TimerHeap(capacity, made)
    assert (len(heap._timers), heap.available()) == (min(made, capacity), capacity)

    for taken in range(capacity):
        before = len(heap._timers)
        heap.set(acquired(heap, taken), capacity - taken)
        assert len(heap._timers) - before <= MADE_AT_ONCE
        assert heap.available() == capacity - taken - 1
        heap._check()

    assert heap.acquire("one more") is None
    owners = []
    while (timer := heap.pop_expired(capacity)) is not None:
        owners.append(timer.owner)
        heap.release(timer)
        heap._check()
    assert owners == list(reversed(range(capacity)))
    assert heap.available() == capacity


def test_all_timers_are_made_with_the_heap_unless_asked_otherwise() -> None:
    assert len(TimerHeap(1_000)._timers) == 1_000


def test_release_cancels_and_a_second_release_is_refused() -> None:
    heap = TimerHeap(2)
    timer = acquired(heap)
    heap.set(timer, 1)
    heap.release(timer)

    assert heap.pop_expired(1) is None
    assert timer.owner is None
    with pytest.raises(ValueError, match="already released"):
        heap.release(timer)
    with pytest.raises(ValueError, match="acquire one first"):
        heap.set(timer, 2)


@pytest.mark.parametrize("capacity", [0, -1, CAPACITY_MAX + 1])
def test_capacity_out_of_range_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        TimerHeap(capacity)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 7), st.integers(0, 30)),
        st.tuples(st.just("cancel"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("expire"), st.just(0), st.integers(0, 30)),
    ),
    max_size=80,
)


@given(steps, st.integers(0, 8))
def test_heap_agrees_with_a_sorted_list(program: list[tuple[str, int, int]], made: int) -> None:
    heap = TimerHeap(8, made)
    timers = [acquired(heap, index) for index in range(8)]
    model: dict[int, tuple[int, int]] = {}
    for sequence, (verb, index, value) in enumerate(program):
        if verb == "set":
            heap.set(timers[index], value)
            model[index] = (value, sequence)
        elif verb == "cancel":
            assert heap.cancel(timers[index]) == (model.pop(index, None) is not None)
        else:
            expected = sorted((key, index) for index, key in model.items() if key[0] <= value)
            popped = []
            while (timer := heap.pop_expired(value)) is not None:
                popped.append(timer.owner)
            assert popped == [index for _, index in expected]
            for owner in popped:
                del model[owner]  # type: ignore[arg-type]  # owners here are the indices above
        heap._check()
        assert len(heap) == len(model)
        assert heap.next_due_ns() == (min(model.values())[0] if model else None)


def test_a_hundred_thousand_timers_need_no_memory_while_they_run() -> None:
    count = 100_000
    heap = TimerHeap(count)
    timers = [acquired(heap) for _ in range(count)]
    gc.collect()
    lists_before = sys.getsizeof(heap._heap) + sys.getsizeof(heap._free)
    objects_before = len(gc.get_objects())

    for index, timer in enumerate(timers):
        heap.set(timer, (index * 7919) % count)
    for index in range(0, count, 2):
        heap.cancel(timers[index])
    expired = 0
    while heap.pop_expired(count) is not None:
        expired += 1

    assert expired == count // 2
    assert sys.getsizeof(heap._heap) + sys.getsizeof(heap._free) == lists_before
    # No entry, list or tuple was made; a few objects belong to the test runner.
    assert len(gc.get_objects()) - objects_before < 50


def entries_moved_in(count: int) -> int:
    """Entries that change place when a full heap's last timer becomes the first, and is cancelled."""
    heap = TimerHeap(count)
    timers = [acquired(heap) for _ in range(count)]
    for index, timer in enumerate(timers):
        heap.set(timer, index)
    moved_max = 0
    before = [timer._position for timer in timers]
    heap.set(timers[-1], -1)
    moved_max = max(moved_max, sum(a != t._position for a, t in zip(before, timers, strict=True)))
    before = [timer._position for timer in timers]
    heap.cancel(timers[-1])
    return max(moved_max, sum(a != t._position for a, t in zip(before, timers, strict=True)))


def test_set_and_cancel_move_only_logarithmically_many_entries() -> None:
    assert entries_moved_in(1_000) <= 12
    assert entries_moved_in(100_000) <= 19
