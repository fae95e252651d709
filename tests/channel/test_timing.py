"""Who wakes the channel: a thread of its own, or the program. (For event loops see dispatch/test_aio.py.)"""

from __future__ import annotations

import time
from threading import Event as Signal

import pytest
from tests.channel.doubles import LIMIT_S, wait_until

from timebound.channel import (
    ChannelBuilder,
    ChannelError,
    Event,
    Report,
    every,
    watchdog,
)
from timebound.channel.timing import ThreadTiming, Timing


def threaded() -> ThreadTiming:
    return ThreadTiming(real_time=False)


def test_thread_wakes_the_channel_for_timers_set_before_and_after_the_start() -> None:
    before, after = Signal(), Signal()
    channel = ChannelBuilder("c").filtering().timers(threaded()).build()
    channel.connect(lambda e: before.set(), every("2ms"))
    with channel:
        channel.connect(lambda e: after.set(), every("1ms"))

        assert before.wait(LIMIT_S)
        assert after.wait(LIMIT_S)


def test_timer_set_while_the_thread_sleeps_long_is_not_missed() -> None:
    fired = Signal()
    with ChannelBuilder("c").filtering().timers(threaded()).build() as channel:
        channel.connect(print, watchdog("never", "1h"))
        channel.connect(lambda e: fired.set(), watchdog("never", "5ms"))

        assert fired.wait(LIMIT_S)


def test_ticks_keep_their_rate() -> None:
    ticks: list[int] = []
    enough = Signal()

    def tick(event: Event) -> None:
        ticks.append(time.monotonic_ns())
        if len(ticks) == 20:
            enough.set()

    with ChannelBuilder("c").filtering().timers(threaded()).build() as channel:
        begin_ns = time.monotonic_ns()
        channel.connect(tick, every("2ms"))
        assert enough.wait(LIMIT_S)

    assert ticks[19] - begin_ns >= 40_000_000


def test_consumer_may_close_the_channel_from_the_timer_thread() -> None:
    closed = Signal()
    channel = ChannelBuilder("c").filtering().timers(threaded()).build()

    def close(event: Event) -> None:
        channel.close()
        closed.set()

    with channel:
        channel.connect(close, every("1ms"))
        assert closed.wait(LIMIT_S)


def test_timer_module_serves_only_one_channel() -> None:
    timing = threaded()
    with (
        ChannelBuilder("1").timers(timing).build(),
        pytest.raises(ChannelError, match="started before"),
        ChannelBuilder("2").timers(timing).build(),
    ):
        pass


def test_swapping_the_timer_module_keeps_the_timers() -> None:
    reports: list[Report] = []
    counts: list[int] = []
    enough = Signal()

    def tick(event: Event) -> None:
        counts.append(event.payload.count)  # type: ignore[attr-defined]  # a Timeout
        if len(counts) >= 6:
            enough.set()

    builder = ChannelBuilder("c").filtering().timers(Timing()).on_report(reports.append)
    with builder.build() as channel:
        channel.connect(tick, every("2ms"))
        channel.reconfigure(timing=threaded())
        wait_until(lambda: len(counts) >= 3)
        channel.reconfigure(timing=threaded())
        assert enough.wait(LIMIT_S)

    assert counts == sorted(set(counts))
