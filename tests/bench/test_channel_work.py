"""Work that uses the processor, and the stalls that explain a missed deadline."""

from __future__ import annotations

import time

import pytest

from timebound.bench.channel_work import STALL_NS_MIN, BusyWorker, Figures, StallDetector, laxity_of

# Beside each other they would delay each other, at the same priorities of one processor.
pytestmark = pytest.mark.xdist_group("real-time")


def figures(*jobs: tuple[int, int, int], period_ns: int = 100, used_ns: int = 0) -> Figures:
    return Figures(period_ns, list(jobs), used_ns)


def test_miss_is_explained_by_stalls_since_the_processor_was_last_free() -> None:
    high = figures((0, 60, 0), (100, 160, 0))
    late = figures((0, 230, 15), period_ns=200)

    def unexplained(*stalls: tuple[int, int]) -> int:
        return laxity_of(late, (high,), stalls).unexplained

    assert laxity_of(late, (high,), ()).misses == 1
    assert unexplained() == unexplained((50, 14)) == 1
    assert unexplained((50, 15)) == unexplained((50, 8), (150, 8)) == 0
    # Of one that outlasts the deadline, what lies before it counts, be it all of the job's time.
    assert unexplained((260, 160)) == unexplained((400, 390)) == 0
    # Stalls after the deadline, or while there was nothing to do, made nobody late.
    assert unexplained((210, 15)) == unexplained((-1, 15)) == 1
    # Of one that had begun before, only what came after the release counts.
    assert unexplained((10, 30)) == 1


def test_stalls_while_an_older_job_was_still_open_count_as_well() -> None:
    first_late = figures((0, 130, 9), (100, 210, 12))

    assert laxity_of(first_late, (), [(40, 12)]).unexplained == 0
    assert laxity_of(figures((0, 90, 0), (100, 210, 12)), (), [(40, 12)]).unexplained == 1


def test_worker_does_what_it_is_told_and_says_what_was_left_at_the_deadline() -> None:
    worker = BusyWorker(period_ns=10**9, cost_ns=2_000_000, stalls=StallDetector(alone=True))
    hurried = BusyWorker(period_ns=0, cost_ns=2_000_000, stalls=StallDetector(alone=False))

    worker.work(time.monotonic_ns())
    hurried.work(time.monotonic_ns())

    done = worker.figures()
    assert done.utilisation() == pytest.approx(0.002, rel=0.1)
    assert [left_ns for _, _, left_ns in done.jobs] == [0]
    assert [left_ns for _, _, left_ns in hurried.figures().jobs] == [2_000_000]
    # A job that nobody began counts as late once its deadline has passed.
    assert hurried.figures(100, [1, 2]).unfinished == 1


def test_stretch_without_processor_time_is_a_stall_only_while_somebody_works() -> None:
    stalls = StallDetector(alone=True)
    stalls.begin()
    stalls.end()
    time.sleep(20 * STALL_NS_MIN / 1e9)
    stalls.begin()
    assert stalls.found == []

    # Sleeping stands for a machine that takes the processor away.
    time.sleep(20 * STALL_NS_MIN / 1e9)
    stalls.look()

    assert len(stalls.found) == 1
    assert stalls.found[0][1] >= STALL_NS_MIN
