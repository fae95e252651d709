"""How far can the processor be used before a deadline is missed?

A high- and a low-priority pair of supplier and consumer run in one channel. The high-priority consumer is
given more and more work until the low-priority one no longer finishes in time. The periods are harmonic,
so by theory (docs/channel.md) nobody need miss a deadline before the processor is used up.

Linux keeps 5 % of each second for ordinary tasks, and takes it from real-time ones if it must. So a load is
measured in bursts that end before that, with pauses in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Final

from timebound.bench.channel_published import UTILISATION_SINGLE
from timebound.bench.channel_results import Laxity, UtilisationRun, UtilisationStep
from timebound.bench.channel_tools import LIMIT_S, settle
from timebound.channel import ChannelBuilder, Event, EventChannel, Lanes, ThreadTiming, Timeout, every
from timebound.channel.realtime import LANE_PRIORITY_MAX, become_real_time, switch_interval
from timebound.units import MILLISECOND, SECOND

HIGH_PERIOD_NS: Final = 100 * MILLISECOND
LOW_PERIOD_NS: Final = 200 * MILLISECOND
LOW_SHARE: Final = 0.3
TARGETS: Final = (0.6, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.9925, 0.995, 1.0)
# What a supplier itself states as its cost: it only pushes.
SUPPLIER_COST_NS: Final = 20_000
# Shorter than the 950 ms that real-time tasks may run on end (sched_rt_runtime_us).
BURST_S: Final = 0.85
PAUSE_S: Final = 0.3
# A stop of the whole machine is no property of the channel: each load gets more than one try.
TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """What a pair was seen to do: time left at each completion, and processor time of its consumer."""

    period_ns: int
    laxities_ns: list[int]
    used_ns: int

    def __add__(self, other: Figures) -> Figures:
        return Figures(self.period_ns, self.laxities_ns + other.laxities_ns, self.used_ns + other.used_ns)

    def laxity(self) -> Laxity:
        values = self.laxities_ns
        if not values:
            return Laxity(0, 0.0, 0.0, 0.0, 0)
        mean = sum(values) / len(values)
        late = sum(value < 0 for value in values)
        return Laxity(len(values), min(values) / 1e6, mean / 1e6, max(values) / 1e6, late)

    def utilisation(self) -> float:
        """The share of the processor that the consumer's own work took."""
        runs = len(self.laxities_ns)
        return self.used_ns / (runs * self.period_ns) if runs else 0.0


class Pair:
    """A supplier that pushes at each period, and a consumer that works for as long as it is told."""

    def __init__(self, channel: EventChannel, name: str, period_ns: int, cost_ns: int) -> None:
        self.period_ns = period_ns
        self.cost_ns = cost_ns
        self.used_ns = 0
        self._laxities_ns: list[int] = []
        self._lock = Lock()
        operation = channel.scheduler.operation
        self._supplier = channel.supplier(name, name)
        # The supplier is the more critical one of its lane: it must never wait for its own consumer.
        drive = operation(f"{name} supplier", period=period_ns, cost=SUPPLIER_COST_NS, criticality=1)
        stated_ns = max(cost_ns - SUPPLIER_COST_NS * 4, 1)
        work = operation(f"{name} consumer", period=period_ns, cost=stated_ns)
        channel.connect(self._work, name, name=f"{name} consumer", operation=work)
        channel.connect(self._push, every(period_ns), name=f"{name} supplier", operation=drive)

    def _push(self, event: Event) -> None:
        assert isinstance(event.payload, Timeout)
        self._supplier.push(self._supplier.name, event.payload.due_ns)

    def _work(self, event: Event) -> None:
        used_ns = _use_processor(self.cost_ns)
        assert isinstance(event.payload, int)
        laxity_ns = event.payload + self.period_ns - time.monotonic_ns()
        with self._lock:
            self._laxities_ns.append(laxity_ns)
            self.used_ns += used_ns

    def figures(self) -> Figures:
        with self._lock:
            return Figures(self.period_ns, list(self._laxities_ns), self.used_ns)


def build_channel(name: str, *, real_time: bool, priority_max: int = 47) -> EventChannel:
    lanes = Lanes(real_time=real_time, priority_max=priority_max)
    builder = ChannelBuilder(name).filtering().dispatching(lanes)
    timing = ThreadTiming(real_time=real_time, priority=priority_max + 1)
    # Overruns are the point of the experiment, so nobody is told of them.
    return builder.timers(timing).on_report(lambda report: None).build()


def costs_for(target: float) -> tuple[int, int]:
    """The high and the low cost that make up a utilisation."""
    return int((target - LOW_SHARE) * HIGH_PERIOD_NS), int(LOW_SHARE * LOW_PERIOD_NS)


Burst = Callable[[float], tuple[Figures, Figures]]


def measure(step_s: float, *, real_time: bool) -> UtilisationRun:
    """Raise the load until somebody misses a deadline."""
    steps = raise_load(lambda target: _burst(target, real_time), step_s)
    at_once = reached(steps, tries_max=1)
    bare = measure_bare(step_s, real_time=real_time)
    return UtilisationRun(False, real_time, reached(steps), at_once, UTILISATION_SINGLE, steps, bare)


def measure_bare(step_s: float, *, real_time: bool) -> float:
    """The same loads on two plain threads: how far the machine itself lets a program go."""
    return reached(raise_load(lambda target: _bare_burst(target, real_time), step_s))


def raise_load(burst: Burst, step_s: float) -> list[UtilisationStep]:
    """Measure one load after the other, up to the first at which somebody misses a deadline each time."""
    steps: list[UtilisationStep] = []
    for target in TARGETS:
        tries = [_measure_step(burst, target, step_s)]
        while misses(tries[-1]) and len(tries) < TRIES:
            tries.append(_measure_step(burst, target, step_s))
        best = min(tries, key=misses)
        discarded = tuple(misses(other) for other in tries if other is not best)
        steps.append(replace(best, tries=len(tries), discarded_misses=discarded))
        if misses(best):
            break
    return steps


def _measure_step(burst: Burst, target: float, step_s: float) -> UtilisationStep:
    high, low = burst(target)
    for _ in range(round(step_s / BURST_S) - 1):
        time.sleep(PAUSE_S)
        more_high, more_low = burst(target)
        high, low = high + more_high, low + more_low
    time.sleep(PAUSE_S)
    return UtilisationStep(target, high.utilisation() + low.utilisation(), high.laxity(), low.laxity())


def misses(step: UtilisationStep) -> int:
    return step.high.misses + step.low.misses


def reached(steps: list[UtilisationStep], *, tries_max: int = TRIES) -> float:
    """The highest utilisation before the first load that missed a deadline in so many tries."""
    best = 0.0
    for step in steps:
        if misses(step) or step.tries > tries_max:
            break
        best = max(best, step.utilisation)
    return best


def _bare_burst(target: float, real_time: bool) -> tuple[Figures, Figures]:
    begin_ns = time.monotonic_ns() + 10 * MILLISECOND
    found: list[Figures] = []

    def run(rank: int, period_ns: int, cost_ns: int) -> None:
        if real_time:
            become_real_time(LANE_PRIORITY_MAX - rank)
        laxities_ns: list[int] = []
        used_ns = 0
        due_ns = begin_ns
        while due_ns < begin_ns + BURST_S * SECOND:
            time.sleep(max(due_ns - time.monotonic_ns(), 0) / SECOND)
            worked_ns = _use_processor(cost_ns)
            due_ns += period_ns
            laxities_ns.append(due_ns - time.monotonic_ns())
            used_ns += worked_ns
        found.append(Figures(period_ns, laxities_ns, used_ns))

    high_ns, low_ns = costs_for(target)
    plans = [(0, HIGH_PERIOD_NS, high_ns), (1, LOW_PERIOD_NS, low_ns)]
    threads = [Thread(target=run, args=plan, daemon=True) for plan in plans]
    switch_interval.shorten()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    switch_interval.restore()
    high, low = sorted(found, key=lambda figures: figures.period_ns)
    return high, low


def _use_processor(cost_ns: int) -> int:
    """Work for so long; gives how long it was."""
    begin_ns = time.thread_time_ns()
    while time.thread_time_ns() - begin_ns < cost_ns:
        pass
    return time.thread_time_ns() - begin_ns


def _burst(target: float, real_time: bool) -> tuple[Figures, Figures]:
    high_ns, low_ns = costs_for(target)
    with build_channel("utilisation", real_time=real_time) as channel:
        settle()
        high = Pair(channel, "high", HIGH_PERIOD_NS, high_ns)
        low = Pair(channel, "low", LOW_PERIOD_NS, low_ns)
        time.sleep(BURST_S)
        return high.figures(), low.figures()
