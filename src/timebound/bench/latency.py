"""Percentiles of latencies: exact ones, of all samples, by nearest rank.

Nearest rank always returns a latency that was measured, which matters at the far end, where
samples are too few to interpolate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """The distribution of latencies, in nanoseconds."""

    count: int
    min_ns: int
    median_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int


def percentile(ordered: Sequence[int], percent: float) -> int:
    """Return the smallest sample that at least `percent` of all samples do not exceed.

    Raises:
        ValueError: there are no samples, or `percent` is not within 0 to 100.
    """
    if not ordered:
        raise ValueError("no samples to take a percentile of")
    if not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent:g} is out of range (0 to 100)")
    # Rounded, because 99.9 / 100 * 1000 is a little more than 999 in binary fractions.
    rank = math.ceil(round(percent * len(ordered) / 100, 9))
    return ordered[max(rank, 1) - 1]


def summarize(latencies_ns: Iterable[int]) -> Latency | None:
    """Return the distribution of the samples, or None if there are none."""
    ordered = sorted(latencies_ns)
    if not ordered:
        return None
    return Latency(
        count=len(ordered),
        min_ns=ordered[0],
        median_ns=percentile(ordered, 50),
        p90_ns=percentile(ordered, 90),
        p99_ns=percentile(ordered, 99),
        p999_ns=percentile(ordered, 99.9),
        max_ns=ordered[-1],
    )
