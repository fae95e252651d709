"""What the channel's tests share: a clock, consumers that record, fail or do not come back, and waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from threading import Event as Signal
from threading import get_ident

from timebound.channel import ChannelBuilder, Consumer, Event, EventChannel, Lanes, Report, Supplier
from timebound.channel.base.filtering import Filtering, Subscriptions
from timebound.channel.base.realtime import set_priority
from timebound.channel.carrier import Carrier
from timebound.channel.dispatch.dispatcher import Reactive
from timebound.channel.dispatch.lane import THREADS_MAX
from timebound.channel.timing import Timing
from timebound.units import SECOND

LIMIT_S = 20.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something another thread does, within a limit."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, "waited too long"
        os.sched_yield()


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Recorder:
    """A consumer that keeps what it was given, optionally failing instead."""

    def __init__(self, failing: bool = False) -> None:
        self.events: list[Event] = []
        self.failing = failing

    def __call__(self, event: Event) -> None:
        if self.failing:
            raise RuntimeError("no thanks")
        self.events.append(event)

    @property
    def payloads(self) -> list[object]:
        return [event.payload for event in self.events]


class Blocker:
    """A consumer that stays inside until it is let out, or computes there."""

    def __init__(self, *, computes: bool = False) -> None:
        self.entered = Signal()
        self.release = Signal()
        self.payloads: list[object] = []
        self.threads: list[int] = []
        self.computes = computes
        self.consumer: Consumer  # set by who connects it

    def __call__(self, event: Event) -> None:
        self.threads.append(get_ident())
        self.payloads.append(event.payload)
        self.entered.set()
        until = time.monotonic() + LIMIT_S
        while self.computes and not self.release.is_set():
            assert time.monotonic() < until, "was not let out"
        assert self.release.wait(LIMIT_S)


def reactive(
    reports: list[Report] | None = None,
    clock: Clock | None = None,
    *,
    filtering: Filtering | None = None,
    timers_max: int = 4,
) -> Carrier:
    """A carrier under virtual time that calls consumers in the pushing thread."""
    return Carrier(
        "test",
        filtering=filtering or Subscriptions(),
        dispatcher=Reactive(),
        timing=Timing(),
        scheduler=None,
        clock=clock or Clock(),
        timers_max=timers_max,
        on_report=(reports if reports is not None else []).append,
    )


def laned(
    reports: list[Report] | None = None,
    *,
    real_time: bool = False,
    threads: int = 1,
    threads_max: int = THREADS_MAX,
) -> EventChannel:
    """A channel with lanes, of ordinary priority unless told otherwise."""
    lanes = Lanes(real_time=real_time, threads=threads, threads_max=threads_max)
    builder = ChannelBuilder("lanes").filtering().dispatching(lanes)
    return builder.on_report((reports if reports is not None else []).append).build()


def patient(consumer: Consumer) -> Consumer:
    """Let others wait for a consumer however long it takes: also when the machine stops while it runs."""
    consumer.patience_ns = 3600 * SECOND
    return consumer


def push_all(supplier: Supplier, event_type: str, payloads: Iterable[object]) -> None:
    for payload in payloads:
        supplier.push(event_type, payload)


def real_time_is_permitted() -> bool:
    if set_priority(0, 1):
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True
