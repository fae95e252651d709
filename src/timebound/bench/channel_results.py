"""What the channel's experiments produce; plain values that become JSON as they are."""

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
    """Time left at completion, in milliseconds; negative is a missed deadline."""

    runs: int
    min_ms: float
    mean_ms: float
    max_ms: float
    misses: int


@dataclass(frozen=True, slots=True)
class UtilisationStep:
    """One load: what the consumers really used, and what was left to each pair.

    It is the best of `tries`; `discarded_misses` has the missed deadlines of each try that was thrown away,
    so that nobody takes a load that passed at the third attempt for one that always passes.
    """

    target: float
    utilisation: float
    high: Laxity
    low: Laxity
    tries: int = 1
    discarded_misses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UtilisationRun:
    """Loads of rising utilisation.

    `reached` is the highest one that some try passed without a miss, `reached_at_once` the highest up to
    which every load passed at its first try. `bare` is what plain threads reached in the same way without
    any channel: what the machine itself leaves to a program.
    """

    federated: bool
    real_time: bool
    reached: float
    reached_at_once: float
    published: float
    steps: list[UtilisationStep]
    bare: float = 0.0


@dataclass(frozen=True, slots=True)
class SpacingStep:
    """How much of the asked rate was achieved at one spacing of events."""

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
    """Everything one run measured, and under which conditions."""

    compiled: bool
    processors: int
    notice: str
    speed: Speed | None = None
    collocated: list[LatencyRow] = field(default_factory=list)
    two_processes: list[LatencyRow] = field(default_factory=list)
    utilisation: list[UtilisationRun] = field(default_factory=list)
    spacing: list[SpacingStep] = field(default_factory=list)
