"""The bound: by hand, and against all ways to divide the time among messages."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.demo.best import SendJob, best_possible, most_bytes
from timebound.demo.traffic import Fate, Traffic, TrafficClass
from timebound.units import SECOND

# One byte takes one second, so bytes and seconds are the same.
RATE = 1.0


def job(release: int, due: int, size: int) -> SendJob:
    return SendJob(release * SECOND, due * SECOND, size)


def most_by_flow(jobs: list[SendJob]) -> int:
    """The most bytes by maximum flow from jobs to seconds, one augmenting path at a time."""
    assigned: dict[int, int] = {}  # second -> job
    left = [round(one.size_bytes) for one in jobs]

    def seconds_of(index: int) -> range:
        return range(jobs[index].release_ns // SECOND, jobs[index].due_ns // SECOND)

    def augment(start: int) -> bool:
        came_from: dict[int, tuple[int, int]] = {}  # second -> job that wants it, second it leaves (-1: none)
        waiting = deque([(start, -1)])
        while waiting:
            index, held = waiting.popleft()
            for second in seconds_of(index):
                if second in came_from:
                    continue
                came_from[second] = (index, held)
                if second not in assigned:
                    while second >= 0:
                        index, second_before = came_from[second]
                        assigned[second] = index
                        second = second_before
                    return True
                waiting.append((assigned[second], second))
        return False

    for index in range(len(jobs)):
        while left[index] and augment(index):
            left[index] -= 1
    return len(assigned)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 8), st.integers(1, 6)).map(
            lambda drawn: job(drawn[0], drawn[0] + drawn[1], drawn[2])
        ),
        max_size=8,
    )
)
def test_most_bytes_is_the_maximum_flow(jobs: list[SendJob]) -> None:
    assert most_bytes(jobs, RATE) == pytest.approx(most_by_flow(jobs), abs=0.01)


def test_nothing_to_send_is_nothing() -> None:
    assert most_bytes([], RATE) == 0


def test_a_link_that_is_free_later_cannot_help_what_is_due() -> None:
    assert most_bytes([job(0, 2, 5), job(10, 11, 1)], RATE) == pytest.approx(3)


def traffic(name: str, deadline_s: int, price: float, published_s: list[int]) -> Traffic:
    kind = TrafficClass(name, 100, deadline_s * SECOND, price, 1.0)
    return Traffic(kind, [Fate(second * SECOND) for second in published_s])


def test_the_dearer_class_comes_first_and_the_rest_fills_the_gaps() -> None:
    dear = traffic("dear", 1, 10.0, [0, 5])
    cheap = traffic("cheap", 0, 1.0, [0])
    size = dear.kind.frame_bytes
    other = cheap.kind.frame_bytes

    # In ten seconds at the size of a dear message each second: both dear ones, and eight seconds.
    best = best_possible([cheap, dear], float(size), 10 * SECOND)

    assert [one.name for one in best] == ["cheap", "dear"]
    assert best[1].messages == pytest.approx(2)
    assert best[1].value == pytest.approx(20)
    assert best[0].messages == pytest.approx(min(1, 8 * size / other))


def test_a_slow_link_carries_parts_of_what_is_due() -> None:
    dear = traffic("dear", 2, 10.0, [0])
    cheap = traffic("cheap", 0, 1.0, [0])

    best = best_possible([dear, cheap], dear.kind.frame_bytes / 4, 4 * SECOND)

    assert best[0].messages == pytest.approx(0.5)
    assert best[1].messages * cheap.kind.frame_bytes == pytest.approx(dear.kind.frame_bytes / 2)


def test_no_run_can_earn_more_than_the_best() -> None:
    # Every message in time: the bound has to allow that.
    dear = traffic("dear", 1, 10.0, list(range(10)))

    best = best_possible([dear], dear.kind.frame_bytes * 1.0, 20 * SECOND)

    assert best[0].value == pytest.approx(100)
