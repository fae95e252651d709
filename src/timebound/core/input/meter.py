"""Quantiles of recent durations.

Values are counted in buckets a quarter of an octave wide, so a quantile is at most a fifth too large and
never too small; adding one costs a logarithm. Old values fade by halves.

The counts are plain numbers in an array. In a list each is an object, replaced at every change: those last
made in a flood stay for hours, and each keeps a megabyte of the flood from being returned.
"""

from __future__ import annotations

from array import array
from math import log2
from typing import Final

_PER_OCTAVE: Final = 4
_BUCKETS: Final = 40 * _PER_OCTAVE  # up to 2^40 ns, a quarter of an hour


class DurationMeter:
    """A histogram of durations in nanoseconds."""

    def __init__(self) -> None:
        self.count = 0
        self._buckets = array("q", [0] * _BUCKETS)

    def add(self, duration_ns: float, weight: int = 1) -> None:
        bucket = int(log2(duration_ns) * _PER_OCTAVE) if duration_ns > 1.0 else 0
        self._buckets[min(bucket, _BUCKETS - 1)] += weight
        self.count += weight

    def quantile_ns(self, part: float) -> int:
        """Return a value that at least this part of the durations, by weight, did not exceed; 0 if empty."""
        rank = self.count * part
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= rank and seen:
                return int(2.0 ** ((bucket + 1) / _PER_OCTAVE)) + 1
        return 0

    def overrun_ns(self, part: float, weight_min: int = 0) -> int:
        """Return a limit that durations exceed for at most this part of the total time.

        Of all messages that come at random times, at most this part waits longer than the limit for a
        duration to end. Weights must be proportional to the durations. Below a total weight of `weight_min`
        the part is of that: one long duration soon after the start says little about later ones.
        """
        allowed = max(self.count, weight_min) * part
        limits = [2.0 ** ((bucket + 1) / _PER_OCTAVE) for bucket in range(_BUCKETS)]
        longer = 0  # weight of the durations longer than the limit
        rate = 0.0  # by how much that falls for each nanosecond of the limit
        for bucket in range(_BUCKETS - 1, -1, -1):
            if longer - rate * limits[bucket] > allowed:
                return int(limits[bucket + 1]) + 1
            longer += self._buckets[bucket]
            rate += self._buckets[bucket] / limits[bucket]
        return int(limits[0]) + 1 if self.count else 0

    def fade(self) -> None:
        """Halve the weight of all earlier values, rounded down."""
        self._buckets = array("q", [count // 2 for count in self._buckets])
        self.count = sum(self._buckets)
