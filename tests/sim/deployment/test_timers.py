"""Clocks of simulated processes: offsets, turns, and that nothing happens after the end."""

from __future__ import annotations

import pytest

from timebound.sim.deployment.timers import VirtualClock
from timebound.sim.kernel.kernel import Kernel


def test_timers_happen_at_the_clocks_own_time_unless_cancelled() -> None:
    kernel = Kernel()
    clock = VirtualClock(kernel, lambda: None, offset_ns=1_000)
    seen: list[int] = []

    clock.call_at_ns(1_005, lambda: seen.append(clock.now_ns()))
    clock.call_at_ns(1_006, lambda: seen.append(0)).cancel()
    clock.call_at_ns(3, lambda: seen.append(clock.now_ns()))
    kernel.run(100)

    assert seen == [1_000, 1_005]


def test_turn_is_taken_once_and_after_everything_of_its_time() -> None:
    kernel = Kernel()
    seen: list[str] = []
    clock = VirtualClock(kernel, lambda: seen.append("turn"))

    clock.schedule()
    clock.schedule()
    clock.call_at_ns(0, lambda: seen.append("timer"))
    kernel.run(1)

    assert seen == ["timer", "turn"]


def test_nothing_happens_after_the_end() -> None:
    kernel = Kernel()
    seen: list[str] = []
    clock = VirtualClock(kernel, lambda: seen.append("turn"))

    clock.schedule()
    clock.call_at_ns(5, lambda: seen.append("timer"))
    clock.stop()
    clock.schedule()
    kernel.run(10)

    assert seen == []


def test_internal_error_is_raised_and_a_note_kept() -> None:
    clock = VirtualClock(Kernel(), lambda: None)

    clock.note("link is up", is_warning=False)

    assert clock.notes == ["link is up"]
    with pytest.raises(ZeroDivisionError):
        clock.fault("a link", ZeroDivisionError())
