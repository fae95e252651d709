"""The event channel's experiments: the published ones on this machine, and the speed of the channel itself.

`run` measures, `channel_report` shows. Consumers only note the time, as in the paper, except in the
utilisation experiments, where they use the processor for a given time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from timebound.bench import channel_federated, channel_utilisation
from timebound.bench.channel_published import COLLOCATED, CONSUMERS, SUPPLIERS
from timebound.bench.channel_results import ChannelResults, LatencyRow, SpacingStep, Speed, Spread
from timebound.bench.channel_tools import (
    Stopwatch,
    build,
    push_together,
    real_time_trouble,
    run_threads,
    settle,
    wait_for,
)
from timebound.channel import ChannelBuilder, Event, any_of
from timebound.channel.base.realtime import LANE_PRIORITY_MIN, become_real_time

EXPERIMENTS: Final = ("speed", "collocated", "two-processes", "utilisation", "federated", "spacing")
DISPATCHING: Final = ("reactive", "lanes")
SPACINGS_NS: Final = (1_000_000, 500_000, 200_000, 100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000)
SPACING_EVENTS: Final = 500
# Shorter waits poll the clock; sleeping would be too coarse.
_SPIN_NS: Final = 200_000
_HAND_OVER_SPACING_S: Final = 0.0003
_REPEATS: Final = 5


@dataclass(frozen=True, slots=True)
class RunLengths:
    """Length of a run: events per supplier, pushes for the speed, seconds for each utilisation."""

    events: int = 150
    speed_events: int = 100_000
    step_s: float = 2.5


QUICK: Final = RunLengths(events=20, speed_events=5_000, step_s=0.4)


def say_nothing(text: str) -> None:
    """Ignore progress; the default."""


def run(
    experiments: Sequence[str] = EXPERIMENTS,
    *,
    lengths: RunLengths | None = None,
    progress: Callable[[str], None] = say_nothing,
) -> ChannelResults:
    """Run the named experiments; `progress` is called with each name before it runs.

    The reason of one that fails is kept in `failed`; the others run nevertheless.

    Raises:
        ValueError: an experiment is unknown.
    """
    for name in experiments:
        if name not in EXPERIMENTS:
            raise ValueError(f"unknown experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    lengths = lengths or RunLengths()
    results = ChannelResults(is_compiled(), os.cpu_count() or 1, real_time_trouble())
    for name in experiments:
        progress(name)
        try:
            results = _add(results, name, lengths)
        # Any error: the figures of the other experiments took minutes and must not be lost.
        except Exception as error:
            reason = str(error) or type(error).__name__
            results = replace(results, failed={**results.failed, name: reason})
    return results


def _add(results: ChannelResults, name: str, lengths: RunLengths) -> ChannelResults:
    real_time = not results.notice
    if name == "speed":
        return replace(results, speed=measure_speed(lengths))
    if name == "collocated":
        return replace(results, collocated=measure_collocated(lengths))
    if name == "two-processes":
        return replace(results, two_processes=channel_federated.measure_two_processes(lengths.events))
    if name == "utilisation":
        single = channel_utilisation.measure(lengths.step_s, real_time=real_time)
        return replace(results, utilisation=[*results.utilisation, single])
    if name == "federated":
        federated = channel_federated.measure_utilisation(lengths.step_s, real_time=real_time)
        return replace(results, utilisation=[*results.utilisation, federated])
    return replace(results, spacing=measure_spacing())


def is_compiled() -> bool:
    from timebound.channel import channel

    return not str(channel.__file__).endswith(".py")


# --- speed ------------------------------------------------------------------------------


def measure_speed(lengths: RunLengths) -> Speed:
    """Measure a push with reactive dispatching, and the hand-over to a lane."""
    return Speed(
        _push_us(1, lengths.speed_events),
        _push_us(20, lengths.speed_events // 10),
        _hand_over(lengths.events * 5),
    )


def ignore(event: Event) -> None:
    """Do nothing: the cheapest consumer."""


def _push_us(consumers: int, events: int) -> float:
    with ChannelBuilder("speed").filtering().build() as channel:
        for number in range(consumers):
            channel.connect(ignore, any_of("x"), name=f"consumer {number}")
        push = channel.supplier("supplier", "x").push
        best_ns = 0
        # The best of several: disturbances only add time.
        for _ in range(_REPEATS):
            begin_ns = time.perf_counter_ns()
            for number in range(events // _REPEATS):
                push("x", number)
            taken_ns = time.perf_counter_ns() - begin_ns
            best_ns = min(best_ns or taken_ns, taken_ns)
    return best_ns / max(events // _REPEATS, 1) / 1000


def _hand_over(events: int) -> Spread:
    watch = Stopwatch(events)
    with build("hand-over", "lanes") as channel:
        channel.connect(watch)
        settle()
        push_together(channel, 1, events, _HAND_OVER_SPACING_S)
        wait_for(lambda: len(watch) == events)
    return watch.spread()


# --- table 1 ----------------------------------------------------------------------------


def measure_collocated(lengths: RunLengths) -> list[LatencyRow]:
    """Measure latency to the first and last consumer, for each number of suppliers and consumers."""
    rows = []
    for dispatching in DISPATCHING:
        for suppliers in SUPPLIERS:
            for consumers in CONSUMERS:
                first, last = _collocated(dispatching, suppliers, consumers, lengths.events)
                published = COLLOCATED[(suppliers, consumers)]
                rows.append(LatencyRow(dispatching, suppliers, consumers, first, last, *published))
    return rows


def _collocated(dispatching: str, suppliers: int, consumers: int, events: int) -> tuple[Spread, Spread]:
    total = suppliers * events
    watches = [Stopwatch(total) for _ in range(consumers)]
    with build("collocated", dispatching) as channel:
        for number, watch in enumerate(watches):
            channel.connect(watch, name=f"consumer {number}")
        settle()
        push_together(channel, suppliers, events)
        wait_for(lambda: all(len(watch) == total for watch in watches))
    return watches[0].spread(), watches[-1].spread()


# --- event spacing ----------------------------------------------------------------------


def measure_spacing() -> list[SpacingStep]:
    """Push 500 events at ever shorter spacings; return the achieved share of each rate."""
    return [
        SpacingStep(dispatching, spacing_ns / 1000, _spacing_ratio(dispatching, spacing_ns))
        for dispatching in DISPATCHING
        for spacing_ns in SPACINGS_NS
    ]


def _spacing_ratio(dispatching: str, spacing_ns: int) -> float:
    watch = Stopwatch(SPACING_EVENTS)
    begin_ns = 0

    def push_all() -> None:
        nonlocal begin_ns
        become_real_time(LANE_PRIORITY_MIN)
        begin_ns = time.monotonic_ns()
        for number in range(SPACING_EVENTS):
            _wait_till(begin_ns + number * spacing_ns)
            supplier.push("x", number)

    with build("spacing", dispatching) as channel:
        channel.connect(watch)
        supplier = channel.supplier("supplier", "x")
        run_threads([push_all])
        wait_for(lambda: len(watch) == SPACING_EVENTS)
    expected_ns = (SPACING_EVENTS - 1) * spacing_ns
    return min(expected_ns / max(watch.last_ns - begin_ns, 1), 1.0)


def _wait_till(due_ns: int) -> None:
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > _SPIN_NS:
        time.sleep((left_ns - _SPIN_NS // 2) / 1e9)
    while time.monotonic_ns() < due_ns:
        pass
