"""Measures how far the processor can be used before a deadline is missed.

A high- and a low-priority pair of supplier and consumer run in one channel. The work of the high-priority
consumer grows until the low-priority one no longer finishes in time. The periods are harmonic, so in theory
(docs/channel.md) no deadline is missed before the processor is used up.

Linux reserves 5 % of each second for ordinary tasks, and takes it from real-time ones if it must. So a load
is measured in shorter bursts, with pauses in between. The same load runs on plain threads without a channel,
in alternate bursts: what they reach is what the machine allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median_high
from threading import Thread
from typing import Final

from timebound.bench.channel_published import UTILISATION_SINGLE
from timebound.bench.channel_results import Reached, UtilisationRun, UtilisationStep
from timebound.bench.channel_tools import LIMIT_S, settle
from timebound.bench.channel_work import BusyWorker, Figures, Stall, StallDetector, join_laxities, laxity_of
from timebound.channel import ChannelBuilder, Event, EventChannel, Lanes, ThreadTiming, Timeout, every
from timebound.channel.base.realtime import LANE_PRIORITY_MAX, become_real_time, switch_interval
from timebound.units import MILLISECOND, SECOND

HIGH_PERIOD_NS: Final = 100 * MILLISECOND
LOW_PERIOD_NS: Final = 200 * MILLISECOND
LOW_SHARE: Final = 0.3
TARGETS: Final = (0.6, 0.8, 0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 0.9925, 0.995, 0.9975)
# The stated cost of a supplier: it only pushes.
SUPPLIER_COST_NS: Final = 20_000
# Shorter than the 950 ms that real-time tasks may run without a break (sched_rt_runtime_us).
BURST_S: Final = 0.85
PAUSE_S: Final = 0.3

# Works at a load; returns the figures of the high- and the low-priority pair, and the stalls.
Found = tuple[Figures, Figures, list[Stall]]
Burst = Callable[[float], Found]


class Pair:
    """A supplier that pushes once a period, and a consumer that works for a given time."""

    def __init__(
        self, channel: EventChannel, name: str, period_ns: int, cost_ns: int, stalls: StallDetector
    ) -> None:
        self._worker = BusyWorker(period_ns, cost_ns, stalls)
        self._released_ns: list[int] = []
        operation = channel.scheduler.operation
        self._supplier = channel.supplier(name, name)
        # The supplier is more critical in its lane: it must not wait for its own consumer.
        drive = operation(f"{name} supplier", period=period_ns, cost=SUPPLIER_COST_NS, criticality=1)
        stated_ns = max(cost_ns - SUPPLIER_COST_NS * 4, 1)
        work = operation(f"{name} consumer", period=period_ns, cost=stated_ns)
        channel.connect(self._work, name, name=f"{name} consumer", operation=work)
        channel.connect(self._push, every(period_ns), name=f"{name} supplier", operation=drive)

    def _push(self, event: Event) -> None:
        assert isinstance(event.payload, Timeout)
        self._released_ns.append(event.payload.due_ns)
        self._supplier.push(self._supplier.name, event.payload.due_ns)

    def _work(self, event: Event) -> None:
        assert isinstance(event.payload, int)
        self._worker.work(event.payload)

    def figures(self) -> Figures:
        return self._worker.figures(time.monotonic_ns(), self._released_ns)


def build_channel(name: str, *, real_time: bool, priority_max: int = LANE_PRIORITY_MAX) -> EventChannel:
    lanes = Lanes(real_time=real_time, priority_max=priority_max)
    builder = ChannelBuilder(name).filtering().dispatching(lanes)
    timing = ThreadTiming(real_time=real_time, priority=priority_max + 1)
    # Overruns are the point of the experiment: not reported.
    return builder.timers(timing).on_report(lambda report: None).build()


def costs_for(target: float) -> tuple[int, int]:
    """Return the costs of the high- and low-priority work that add up to a utilisation."""
    return int((target - LOW_SHARE) * HIGH_PERIOD_NS), int(LOW_SHARE * LOW_PERIOD_NS)


def measure(step_s: float, *, real_time: bool) -> UtilisationRun:
    """Raise the load of one channel until a deadline is missed."""
    found = raise_load(
        [lambda load: _burst(load, real_time), lambda load: bare_burst(load, real_time)], step_s
    )
    return summarise(found, federated=False, real_time=real_time, published=UTILISATION_SINGLE)


def summarise(
    found: list[list[UtilisationStep]], *, federated: bool, real_time: bool, published: float
) -> UtilisationRun:
    steps, bare_steps = found
    return UtilisationRun(
        federated, real_time, published, reached(steps), reached(bare_steps), steps, bare_steps
    )


def raise_load(bursts: Sequence[Burst], step_s: float) -> list[list[UtilisationStep]]:
    """Measure rising loads, alternating the kinds of bursts, until every burst of each kind fails."""
    found: list[list[UtilisationStep]] = [[] for _ in bursts]
    for target in TARGETS:
        seen: list[list[UtilisationStep]] = [[] for _ in bursts]
        for _ in range(max(round(step_s / BURST_S), 1)):
            for steps, burst in zip(seen, bursts, strict=True):
                steps.append(judge(target, *burst(target)))
                time.sleep(PAUSE_S)
        for all_steps, steps in zip(found, seen, strict=True):
            all_steps.append(sum_up(steps))
        if all(min(steps[-1].unexplained) for steps in found):
            break
    return found


def judge(target: float, high: Figures, low: Figures, stalls: list[Stall]) -> UtilisationStep:
    """Return the result of one burst."""
    laxities = laxity_of(high, (), stalls), laxity_of(low, (high,), stalls)
    stalled_ns = sum(length_ns for _, length_ns in stalls)
    return UtilisationStep(
        target,
        high.utilisation() + low.utilisation(),
        stalled_ns / (BURST_S * SECOND),
        *laxities,
        missed=(sum(laxity.misses for laxity in laxities),),
        unexplained=(sum(laxity.unexplained for laxity in laxities),),
    )


def sum_up(steps: Sequence[UtilisationStep]) -> UtilisationStep:
    """Combine several bursts of one load."""
    count = len(steps)
    return UtilisationStep(
        steps[0].target,
        sum(step.utilisation for step in steps) / count,
        sum(step.stalled for step in steps) / count,
        join_laxities([step.high for step in steps]),
        join_laxities([step.low for step in steps]),
        missed=tuple(count for step in steps for count in step.missed),
        unexplained=tuple(count for step in steps for count in step.unexplained),
    )


def reached(steps: Sequence[UtilisationStep]) -> Reached:
    """Return the highest utilisation before the first load that failed, for each way of judging."""
    return Reached(
        corrected=_highest(steps, lambda step: median_high(step.unexplained) == 0),
        best=_highest(steps, lambda step: min(step.missed) == 0),
        always=_highest(steps, lambda step: sum(step.missed) == 0),
    )


def _highest(steps: Sequence[UtilisationStep], passes: Callable[[UtilisationStep], bool]) -> float:
    best = 0.0
    for step in steps:
        if not passes(step):
            break
        best = max(best, step.utilisation)
    return best


def bare_burst(target: float, real_time: bool) -> Found:
    """Run the same load on two plain threads."""
    begin_ns = time.monotonic_ns() + 10 * MILLISECOND
    found: list[Figures] = []
    stalls = StallDetector(alone=True)

    def run(rank: int, period_ns: int, cost_ns: int) -> None:
        if real_time:
            become_real_time(LANE_PRIORITY_MAX - rank)
        worker = BusyWorker(period_ns, cost_ns, stalls)
        released_ns = begin_ns
        while released_ns < begin_ns + BURST_S * SECOND:
            time.sleep(max(released_ns - time.monotonic_ns(), 0) / SECOND)
            worker.work(released_ns)
            released_ns += period_ns
        found.append(worker.figures())

    high_ns, low_ns = costs_for(target)
    plans = [(0, HIGH_PERIOD_NS, high_ns), (1, LOW_PERIOD_NS, low_ns)]
    threads = [Thread(target=run, args=plan, daemon=True) for plan in plans]
    switch_interval.shorten()
    settle()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    switch_interval.restore()
    high, low = sorted(found, key=lambda figures: figures.period_ns)
    return high, low, stalls.found


def _burst(target: float, real_time: bool) -> Found:
    high_ns, low_ns = costs_for(target)
    stalls = StallDetector(alone=True)
    channel = build_channel("utilisation", real_time=real_time)
    # Before the start, so that both begin together: the critical instant.
    high = Pair(channel, "high", HIGH_PERIOD_NS, high_ns, stalls)
    low = Pair(channel, "low", LOW_PERIOD_NS, low_ns, stalls)
    settle()
    with channel:
        time.sleep(BURST_S)
        return high.figures(), low.figures(), list(stalls.found)
