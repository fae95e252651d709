"""The results of the channel's experiments, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from timebound.bench.channel_published import Cell


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, maximum, average and percentiles, in microseconds."""

    count: int
    min_us: float
    max_us: float
    mean_us: float
    p50_us: float
    p99_us: float


def spread_of(values_ns: Iterable[int]) -> Spread:
    ordered = sorted(values_ns)
    if not ordered:
        return Spread(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    count = len(ordered)
    return Spread(
        count,
        ordered[0] / 1000,
        ordered[-1] / 1000,
        sum(ordered) / count / 1000,
        ordered[count // 2] / 1000,
        ordered[min(count * 99 // 100, count - 1)] / 1000,
    )


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One cell of table 1 (first and last consumer) or 2 (local and remote events)."""

    dispatching: str
    suppliers: int
    consumers: int
    near: Spread
    far: Spread
    published_near: Cell
    published_far: Cell


@dataclass(frozen=True, slots=True)
class Laxity:
    """Time left at completion, in milliseconds; negative is a missed deadline.

    `unexplained` misses are those that stalls of the machine do not explain.
    """

    runs: int
    min_ms: float
    mean_ms: float
    max_ms: float
    misses: int
    unexplained: int = 0


@dataclass(frozen=True, slots=True)
class UtilisationStep:
    """One load: the utilisation measured, and the laxity of each pair.

    `stalled` is the share of the time in which the machine stalled. `missed` and
    `unexplained` count the missed deadlines of each burst.
    """

    target: float
    utilisation: float
    stalled: float
    high: Laxity
    low: Laxity
    missed: tuple[int, ...]
    unexplained: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """The highest utilisation up to which deadlines were kept, judged in three ways.

    `corrected`: in most bursts of each load, except for misses that stalls explain; not every stall is
    detected, so one burst may fail. Raw, with every miss counted: `best` in at least one burst of each
    load, `always` in every burst.
    """

    corrected: float
    best: float
    always: float


@dataclass(frozen=True, slots=True)
class UtilisationRun:
    """Loads of rising utilisation, alternately in channels and on plain threads."""

    federated: bool
    real_time: bool
    published: float
    channel: Reached
    bare: Reached
    steps: list[UtilisationStep]
    bare_steps: list[UtilisationStep]


@dataclass(frozen=True, slots=True)
class SpacingStep:
    """The achieved share of the rate at one spacing of events."""

    dispatching: str
    spacing_us: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Time per event of the channel itself, from one supplier, in microseconds."""

    reactive_to_1_us: float
    reactive_to_20_us: float
    lanes_hand_over: Spread


@dataclass(frozen=True, slots=True)
class ChannelResults:
    """All results of one run, and its conditions."""

    compiled: bool
    processors: int
    notice: str
    speed: Speed | None = None
    collocated: list[LatencyRow] = field(default_factory=list)
    two_processes: list[LatencyRow] = field(default_factory=list)
    utilisation: list[UtilisationRun] = field(default_factory=list)
    spacing: list[SpacingStep] = field(default_factory=list)
    # Reasons of failed experiments, by name; these have no figures above.
    failed: dict[str, str] = field(default_factory=dict)
