"""Correlation: each rule by example, and trees of any shape against an oracle that looks back over all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.correlation.expression import (
    DEPTH_MAX,
    SIGNALS_MAX,
    AllOf,
    AnyOf,
    Correlator,
    Dependency,
    Every,
    Leaf,
    Timeout,
    Watchdog,
)
from timebound.core.correlation.timers import TimerHeap

A, B, C, D = Leaf("a"), Leaf("b"), Leaf("c"), Leaf("d")


class Waiting:
    """Drives one correlator under virtual time: events by key, timers when due."""

    def __init__(self, dependency: Dependency, capacity: int = 8) -> None:
        self.heap = TimerHeap(capacity)
        self.correlator = Correlator(dependency, self.heap)
        assert self.correlator.start(0, self)

    def hits(self, keys: str) -> int:
        return sum(1 << i for i, leaf in enumerate(self.correlator.leaves) if str(leaf.key) in keys)

    def event(self, keys: str, now_ns: int, name: str = "") -> list[object] | None:
        return self.correlator.arrive(self.hits(keys), name or f"{keys}{now_ns}", now_ns)

    def wake(self, now_ns: int) -> list[list[object]]:
        delivered = []
        while (timer := self.heap.pop_expired(now_ns)) is not None:
            assert timer.owner is self
            found = self.correlator.expire(timer, now_ns)
            if found is not None:
                delivered.append(found)
        return delivered


def test_any_of_delivers_each_part_alone() -> None:
    waiting = Waiting(AnyOf([A, B]))

    assert waiting.event("a", 1) == ["a1"]
    assert waiting.event("b", 2) == ["b2"]
    assert waiting.correlator.is_stateless


def test_all_of_delivers_once_every_part_has_come_and_starts_over() -> None:
    waiting = Waiting(AllOf([A, B]))

    assert waiting.event("b", 1) is None
    assert waiting.event("a", 2) == ["a2", "b1"]
    assert waiting.event("a", 3) is None
    assert waiting.event("b", 4) == ["a3", "b4"]
    assert not waiting.correlator.is_stateless


def test_all_of_keeps_the_latest_of_each_part() -> None:
    waiting = Waiting(AllOf([A, B]))
    waiting.event("a", 1)
    waiting.event("a", 2)

    assert waiting.event("b", 3) == ["a2", "b3"]


def test_part_exactly_as_old_as_the_window_counts_and_an_older_one_does_not() -> None:
    waiting = Waiting(AllOf([A, B], within_ns=10))
    waiting.event("a", 0)
    assert waiting.event("b", 10) == ["a0", "b10"]

    waiting.event("a", 20)
    assert waiting.event("b", 31) is None
    assert waiting.event("a", 41) == ["a41", "b31"]


def test_window_of_an_outer_conjunction_counts_from_the_oldest_event_of_an_inner_one() -> None:
    waiting = Waiting(AllOf([AllOf([A, B]), C], within_ns=10))
    waiting.event("a", 0)
    waiting.event("b", 9)

    assert waiting.event("c", 11) is None


def test_event_that_fits_two_parts_serves_both_and_is_delivered_once() -> None:
    waiting = Waiting(AllOf([A, B]))

    assert waiting.event("ab", 1) == ["ab1"]


def test_disjunction_lets_a_conjunction_beside_it_collect_its_part() -> None:
    waiting = Waiting(AnyOf([A, AllOf([A, B])]))

    assert waiting.event("a", 1) == ["a1"]
    assert waiting.event("b", 2) == ["a1", "b2"]


def test_two_conjunctions_completed_at_once_are_one_delivery() -> None:
    waiting = Waiting(AnyOf([AllOf([A, B]), AllOf([B, C])]))
    waiting.event("a", 1)
    waiting.event("c", 2)

    assert waiting.event("b", 3) == ["a1", "b3", "c2"]


def test_completing_an_outer_conjunction_restarts_the_inner_one() -> None:
    waiting = Waiting(AllOf([A, AnyOf([B, AllOf([C, D])])]))
    waiting.event("c", 1)
    waiting.event("a", 2)
    assert waiting.event("b", 3) == ["a2", "b3"]

    waiting.event("a", 4)
    assert waiting.event("d", 5) is None
    assert waiting.event("c", 6) == ["a4", "c6", "d5"]


def test_every_ticks_without_drift_from_the_start() -> None:
    waiting = Waiting(Every(10))

    assert waiting.wake(9) == []
    ((first,),) = waiting.wake(12)
    ((second,),) = waiting.wake(20)

    assert isinstance(first, Timeout)
    assert isinstance(second, Timeout)
    assert (first.kind, first.due_ns, first.count, first.missed) == ("every", 10, 1, 0)
    assert (second.due_ns, second.count) == (20, 2)


def test_late_waking_skips_ticks_and_says_how_many() -> None:
    waiting = Waiting(Every(10))

    ((tick,),) = waiting.wake(45)

    assert isinstance(tick, Timeout)
    assert (tick.due_ns, tick.count, tick.missed) == (40, 4, 3)
    assert waiting.heap.next_due_ns() == 50


def test_all_of_a_tick_and_an_event_samples_the_latest_event() -> None:
    waiting = Waiting(AllOf([A, Every(10)]))
    waiting.event("a", 3)
    waiting.event("a", 7)

    ((sample, tick),) = waiting.wake(10)

    assert sample == "a7"
    assert isinstance(tick, Timeout)
    # The tick at 20 waits for the next event.
    assert waiting.wake(20) == []
    assert waiting.event("a", 25) is not None


def test_watchdog_fires_before_the_first_event_ever_came() -> None:
    waiting = Waiting(Watchdog(A, 100))

    assert waiting.wake(99) == []
    ((silence,),) = waiting.wake(100)

    assert isinstance(silence, Timeout)
    assert (silence.kind, silence.due_ns, silence.count) == ("watchdog", 100, 1)


def test_watchdog_is_put_off_by_its_dependency_and_counts_silences_in_a_row() -> None:
    waiting = Waiting(Watchdog(A, 100))

    assert waiting.event("a", 60) == ["a60"]
    assert waiting.wake(100) == []
    assert waiting.heap.next_due_ns() == 160
    counts = [silence.count for now in (160, 260) for (silence,) in waiting.wake(now)]  # type: ignore[attr-defined]  # Timeout
    assert counts == [1, 2]
    waiting.event("a", 300)
    ((silence,),) = waiting.wake(400)
    assert isinstance(silence, Timeout)
    assert silence.count == 1


def test_watchdog_of_a_conjunction_is_not_satisfied_by_one_part() -> None:
    waiting = Waiting(Watchdog(AllOf([A, B]), 100))
    waiting.event("a", 90)

    assert len(waiting.wake(100)) == 1
    assert waiting.event("b", 150) == ["a90", "b150"]
    assert waiting.wake(249) == []
    assert len(waiting.wake(250)) == 1


def test_start_without_enough_timers_arms_none() -> None:
    heap = TimerHeap(1)
    correlator = Correlator(AnyOf([Every(1), Every(2)]), heap)

    assert correlator.timer_count == 2
    assert not correlator.start(0, None)
    assert heap.available() == 1


def test_stop_gives_the_timers_back_and_forgets_what_was_collected() -> None:
    waiting = Waiting(AnyOf([AllOf([A, B]), Every(5)]))
    waiting.event("a", 1)

    waiting.correlator.stop()

    assert waiting.heap.available() == 8
    assert waiting.heap.next_due_ns() is None
    assert waiting.correlator.start(10, waiting)
    assert waiting.event("b", 11) is None


def deep(levels: int) -> Dependency:
    tree: Dependency = A
    for _ in range(levels):
        tree = AnyOf([tree])
    return tree


def test_limits_on_leaves_and_depth_are_enforced() -> None:
    Correlator(AnyOf([Leaf(i) for i in range(SIGNALS_MAX)]))
    Correlator(deep(DEPTH_MAX))

    with pytest.raises(ValueError, match="more than 62 leaves"):
        Correlator(AnyOf([Leaf(i) for i in range(SIGNALS_MAX + 1)]))
    with pytest.raises(ValueError, match="more than 8 deep"):
        Correlator(deep(DEPTH_MAX + 1))


def test_last_bits_of_a_full_mask_work() -> None:
    waiting = Waiting(AllOf([Leaf(i) for i in range(SIGNALS_MAX - 1)] + [Every(5)]))
    for index in range(SIGNALS_MAX - 1):
        assert waiting.correlator.arrive(1 << index, index, 1) is None

    ((*events, tick),) = waiting.wake(5)

    assert events == list(range(SIGNALS_MAX - 1))
    assert isinstance(tick, Timeout)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AnyOf([]), "needs at least one part"),
        (lambda: AllOf([]), "needs at least one part"),
        (lambda: AllOf([A], -1), "is negative"),
        (lambda: Every(0), "not positive"),
        (lambda: Watchdog(A, 0), "not positive"),
    ],
)
def test_meaningless_dependencies_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]  # a lambda of the table


# --- against an oracle ------------------------------------------------------------------

Arrival = tuple[int, str]  # time, and the keys it fits


def completions(tree: Dependency, history: list[Arrival], first: int) -> dict[int, list[int]]:
    """When a tree is satisfied by history[first:], and by which arrivals: straight from the definition."""
    if isinstance(tree, Leaf):
        key = str(tree.key)
        return {i: [i] for i in range(first, len(history)) if key in history[i][1]}
    if isinstance(tree, AnyOf):
        merged: dict[int, list[int]] = {}
        for part in tree.parts:
            for index, arrivals in completions(part, history, first).items():
                known = merged.setdefault(index, [])
                known += [a for a in arrivals if a not in known]
        return merged
    assert isinstance(tree, AllOf)
    found: dict[int, list[int]] = {}
    start = first
    while (done := first_conjunction(tree, history, start)) is not None:
        index, arrivals = done
        found[index] = arrivals
        start = index + 1
    return found


def first_conjunction(tree: AllOf, history: list[Arrival], first: int) -> tuple[int, list[int]] | None:
    parts = [completions(part, history, first) for part in tree.parts]
    for index in range(first, len(history)):
        if not any(index in part for part in parts):
            continue
        latest = [max((i for i in part if i <= index), default=None) for part in parts]
        together: list[int] = []
        for part, last in zip(parts, latest, strict=True):
            if last is not None:
                together += [a for a in part[last] if a not in together]
        if None in latest:
            continue
        span = history[index][0] - history[min(together)][0]
        if tree.within_ns == 0 or span <= tree.within_ns:
            return index, together
    return None


def extend(children: st.SearchStrategy[Dependency]) -> st.SearchStrategy[Dependency]:
    parts = st.lists(children, min_size=1, max_size=3)
    return st.one_of(st.builds(AnyOf, parts), st.builds(AllOf, parts, st.sampled_from([0, 3, 8])))


trees = st.recursive(st.sampled_from([A, B, C, D]).map(lambda leaf: leaf), extend, max_leaves=8)
histories = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", "c", "d", "ab", "cd"])), max_size=25
)


@given(trees, histories)
def test_any_tree_delivers_what_the_definition_says(tree: Dependency, gaps: list[tuple[int, str]]) -> None:
    history: list[Arrival] = []
    now = 0
    for gap, keys in gaps:
        now += gap
        history.append((now, keys))
    expected = completions(tree, history, 0)

    correlator = Correlator(tree)
    for index, (time_ns, keys) in enumerate(history):
        hits = sum(1 << i for i, leaf in enumerate(correlator.leaves) if str(leaf.key) in keys)
        # A name that is equal to no other and the same object wherever it is kept.
        delivered = correlator.arrive(hits, f"event {index}", time_ns) if hits else None
        found = None if delivered is None else [int(str(name).split()[1]) for name in delivered]
        assert found == expected.get(index)


@given(st.lists(st.integers(1, 30), max_size=15), st.integers(5, 12))
def test_watchdog_fires_exactly_in_the_gaps(gaps: list[int], timeout: int) -> None:
    waiting = Waiting(Watchdog(A, timeout))
    expected = []
    fired = []
    now = 0
    for gap in gaps:
        expected += [now + timeout * n for n in range(1, gap) if timeout * n < gap]
        # The driver wakes at every instant the heap asks for, before the event of that instant.
        while (due := waiting.heap.next_due_ns()) is not None and due < now + gap:
            fired += [due for _ in waiting.wake(due)]
        now += gap
        waiting.event("a", now)

    assert fired == expected
