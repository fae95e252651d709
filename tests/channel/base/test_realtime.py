"""Real-time priorities, where the system grants them, and Python's switch interval."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from threading import Event as Signal
from threading import Thread, get_native_id

import pytest
from tests.channel.doubles import LIMIT_S, real_time_is_permitted

from timebound.channel.base.realtime import (
    LANE_PRIORITY_MAX,
    LANE_PRIORITY_MIN,
    SWITCH_INTERVAL_S,
    SwitchInterval,
    become_real_time,
    lane_priority,
    set_priority,
)


@pytest.fixture
def usual_interval() -> Iterator[float]:
    """A switch interval of one second, and afterwards what it was."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1.0)
    yield 1.0
    sys.setswitchinterval(before)


def test_each_lane_is_one_step_below_the_more_urgent_one_and_the_last_share_one() -> None:
    assert [lane_priority(rank) for rank in range(3)] == [
        LANE_PRIORITY_MAX,
        LANE_PRIORITY_MAX - 1,
        LANE_PRIORITY_MAX - 2,
    ]
    assert lane_priority(1000) == LANE_PRIORITY_MIN
    assert [lane_priority(rank, 3) for rank in range(3)] == [3, 2, 2]


def test_switch_interval_is_short_until_the_last_user_has_gone(usual_interval: float) -> None:
    interval = SwitchInterval()
    interval.shorten()
    interval.shorten()
    interval.restore()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S, abs=2e-6)

    interval.restore()

    assert sys.getswitchinterval() == pytest.approx(usual_interval)


def test_switch_interval_that_is_shorter_already_is_kept(usual_interval: float) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S / 2)
    interval = SwitchInterval()
    interval.shorten()

    # Python keeps whole microseconds.
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S / 2, abs=2e-6)
    interval.restore()


def test_priority_out_of_range_is_refused_by_the_system() -> None:
    assert set_priority(0, 1000) == "SCHED_FIFO was refused: Invalid argument"


def test_thread_that_has_ended_needs_no_priority() -> None:
    if not real_time_is_permitted():
        pytest.skip("SCHED_FIFO is not permitted here")
    # Linux has at most 2**22 threads.
    assert set_priority(2**22 + 1, 1) == ""


def test_thread_becomes_real_time_on_one_processor() -> None:
    if not real_time_is_permitted():
        pytest.skip("SCHED_FIFO is not permitted here")
    found: list[object] = []
    done = Signal()

    def run() -> None:
        found.append(become_real_time(3))
        thread_id = get_native_id()
        found.append(os.sched_getscheduler(thread_id))
        found.append(os.sched_getparam(thread_id).sched_priority)
        found.append(os.sched_getaffinity(thread_id))
        found.append(set_priority(thread_id, 2, takes_turns=True))
        found.append(os.sched_getscheduler(thread_id))
        done.set()

    allowed = os.sched_getaffinity(0)
    Thread(target=run, daemon=True).start()

    assert done.wait(LIMIT_S)
    assert found == ["", os.SCHED_FIFO, 3, {max(allowed)}, "", os.SCHED_RR]
