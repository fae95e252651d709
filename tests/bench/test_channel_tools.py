"""What the channel's experiments share: stopwatches, suppliers that push together, waiting."""

from __future__ import annotations

import os
import threading
import time

import pytest

from timebound.bench import channel_tools
from timebound.bench.channel_tools import (
    Stopwatch,
    build,
    push_together,
    real_time_trouble,
    run_threads,
    wait_for,
)
from timebound.channel import Event

# Beside each other they would delay each other, at the same priorities of one processor.
pytestmark = pytest.mark.xdist_group("real-time")


@pytest.mark.parametrize("dispatching", ["reactive", "lanes"])
def test_every_event_of_every_supplier_is_timed_once(dispatching: str) -> None:
    watch = Stopwatch(6)

    with build("tools", dispatching) as channel:
        channel.connect(watch)
        push_together(channel, suppliers=2, events=3, period_s=0.001)
        wait_for(lambda: len(watch) == 6)

    assert len(watch.values()) == watch.spread().count == 6
    assert min(watch.values()) > 0


def test_suppliers_begin_no_sooner_than_they_are_told() -> None:
    pushed_ns: list[int] = []
    begin_ns = time.monotonic_ns() + 20_000_000

    with build("tools", "reactive") as channel:
        channel.connect(lambda event: pushed_ns.append(event.payload))
        push_together(channel, suppliers=1, events=2, period_s=0.01, begin_ns=begin_ns)

    assert pushed_ns[0] >= begin_ns
    assert pushed_ns[1] >= begin_ns + 10_000_000


def test_stopwatch_of_one_origin_leaves_the_events_of_others_out() -> None:
    watch = Stopwatch(2, origin="left")
    pushed_ns = time.monotonic_ns()

    watch(Event("x", "supplier", pushed_ns, 0, origin="left"))
    watch(Event("x", "supplier", pushed_ns, 0, origin="right"))

    assert len(watch) == 1
    assert 0 <= watch.values()[0] <= time.monotonic_ns() - pushed_ns


def test_wait_that_takes_too_long_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_tools, "LIMIT_S", 0.01)

    with pytest.raises(TimeoutError, match="the other side did not come within 0 s"):
        wait_for(lambda: False, "the other side did not come")


def test_threads_run_side_by_side_and_are_waited_for() -> None:
    barrier = threading.Barrier(3)
    met: list[int] = []

    run_threads([lambda: met.append(barrier.wait(10.0))] * 3)

    assert sorted(met) == [0, 1, 2]


def test_asking_for_real_time_priorities_leaves_this_thread_as_it_was() -> None:
    before = os.sched_getscheduler(0)

    trouble = real_time_trouble()

    assert os.sched_getscheduler(0) == before
    assert trouble == "" or "SCHED_FIFO" in trouble
