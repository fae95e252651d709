"""Shared by the channel's experiments: channels, suppliers that push together, and stopwatches."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Barrier, Thread
from typing import Final

from timebound.bench.channel_results import Spread, spread_of
from timebound.channel import ChannelBuilder, Event, EventChannel, Lanes, Reactive
from timebound.channel.base.realtime import LANE_PRIORITY_MIN, become_real_time, set_priority

# Suppliers push at this period: long enough for the slowest cell to finish.
PERIOD_S: Final = 0.005
LIMIT_S: Final = 60.0


def build(name: str, dispatching: str) -> EventChannel:
    """Build a channel in the paper's ERD configuration, with the given dispatching."""
    return ChannelBuilder(name).dispatching(Lanes() if dispatching == "lanes" else Reactive()).build()


class Stopwatch:
    """A consumer that keeps latencies in a preallocated array, as the paper's does.

    With `origin`, only events of that channel count, timed by their payload: the time of the push, by
    the clock that all processes of one machine share.
    """

    def __init__(self, capacity: int, origin: str = "") -> None:
        self._values = [0] * capacity
        self._count = 0
        self._origin = origin
        self.last_ns = 0

    def __call__(self, event: Event) -> None:
        now_ns = time.monotonic_ns()
        begin_ns = event.time_ns
        if self._origin:
            if event.origin != self._origin:
                return
            assert isinstance(event.payload, int)
            begin_ns = event.payload
        self._values[self._count] = now_ns - begin_ns
        self._count += 1
        self.last_ns = now_ns

    def __len__(self) -> int:
        return self._count

    def values(self) -> list[int]:
        return self._values[: self._count]

    def spread(self) -> Spread:
        return spread_of(self.values())


def wait_for(condition: Callable[[], bool], what: str = "events were not delivered") -> None:
    """Wait for a condition, within a limit, without disturbing the measurement.

    Raises:
        TimeoutError: with `what` as the reason.
    """
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} within {LIMIT_S:.0f} s")
        time.sleep(0.005)


def push_together(
    channel: EventChannel, suppliers: int, events: int, period_s: float = PERIOD_S, begin_ns: int = 0
) -> None:
    """Push the time from every supplier, each in its thread, at the same moments, from `begin_ns` on.

    Call `settle` before. As in the paper, suppliers have real-time priorities where permitted; lanes have
    higher ones.
    """
    barrier = Barrier(suppliers)
    connected = [channel.supplier(f"{channel.name} supplier {n}", "x") for n in range(suppliers)]

    def push_all(number: int) -> None:
        become_real_time(LANE_PRIORITY_MIN)
        barrier.wait(LIMIT_S)
        first_ns = begin_ns or time.monotonic_ns()
        for event in range(events):
            due_ns = first_ns + int(event * period_s * 1e9)
            time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
            connected[number].push("x", time.monotonic_ns())

    run_threads([partial(push_all, number) for number in range(suppliers)])


def settle() -> None:
    """Collect garbage now, and not during the measurement."""
    gc.collect()
    gc.freeze()


def run_threads(works: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread of its own, and wait for all without polling."""
    threads = [Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)


def real_time_trouble() -> str:
    """Return why real-time priorities are not available; empty if they are."""
    found: list[str] = []
    run_threads([lambda: found.append(set_priority(0, LANE_PRIORITY_MIN))])
    return found[0]
