"""Means over seeds with 95 % intervals, and ratios of finders on the same requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from timebound.sim.papers.paper004.grid import PathRow

MEASURES: Final = (
    "accepted",
    "utilisation",
    "latency_ms",
    "messages_per_accepted",
    "messages_all_per_accepted",
)
# Of Student's t for 95 %, by degrees of freedom; later ones are near the normal one.
STUDENT: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
NORMAL: Final = 1.96
# Finders that crankback is compared with, with their replicas.
RIVALS: Final = (("fns", 1), ("indiqos", 3), ("indiqos", 1))


@dataclass(frozen=True, slots=True)
class PathMean:
    """A mean over seeds, and half the width of its 95 % interval."""

    value: float
    margin: float
    count: int


@dataclass(frozen=True, slots=True)
class PathPoint:
    """The runs of one point of a figure over all seeds."""

    figure: int
    network: str
    finder: str
    replicas: int
    types: int
    means: dict[str, PathMean]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Crankback against another finder: the mean over seeds of the ratios on the same requests."""

    network: str
    finder: str
    replicas: int
    means: dict[str, PathMean]


def mean_of(values: list[float]) -> PathMean:
    """Return the mean of values with its 95 % interval; of one value the interval is unknown, and 0 here."""
    count = len(values)
    mean = sum(values) / count
    if count == 1:
        return PathMean(mean, 0.0, 1)
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    factor = STUDENT[count - 2] if count - 2 < len(STUDENT) else NORMAL
    return PathMean(mean, factor * math.sqrt(variance / count), count)


def points(rows: list[PathRow]) -> list[PathPoint]:
    """Summarise the rows of each point, in order."""
    groups: dict[tuple[int, str, str, int, int], list[PathRow]] = {}
    for row in rows:
        key = (row.figure, row.network, row.finder, row.replicas, row.types)
        groups.setdefault(key, []).append(row)
    return [
        PathPoint(*key, _means(lambda row, name: getattr(row, name), group)) for key, group in groups.items()
    ]


def ratios(rows: list[PathRow]) -> list[Ratio]:
    """Compare crankback with the others of figure 9, seed by seed."""
    by_run = {(row.network, row.finder, row.replicas, row.seed): row for row in rows if row.figure == 9}
    found: list[Ratio] = []
    for network in dict.fromkeys(key[0] for key in by_run):
        ours = [
            row for (where, finder, _, _), row in by_run.items() if (where, finder) == (network, "crankback")
        ]
        for rival, replicas in RIVALS:
            known = [row for row in ours if (network, rival, replicas, row.seed) in by_run]
            if known:
                found.append(Ratio(network, rival, replicas, _means(_over(by_run, rival, replicas), known)))
    return found


def _over(
    by_run: dict[tuple[str, str, int, int], PathRow], rival: str, replicas: int
) -> Callable[[PathRow, str], float]:
    def over(row: PathRow, name: str) -> float:
        other = float(getattr(by_run[row.network, rival, replicas, row.seed], name))
        return float(getattr(row, name)) / other if other else math.nan

    return over


def _means(value: Callable[[PathRow, str], float], group: list[PathRow]) -> dict[str, PathMean]:
    return {name: mean_of([float(value(row, name)) for row in group]) for name in MEASURES}
