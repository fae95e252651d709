"""How long things take, as a quantile of the recent past.

Values fall into buckets a quarter of an octave wide, so a quantile is at most a fifth too
large and never too small; adding one costs a logarithm. Old values fade by halves.
"""

from __future__ import annotations

from math import log2
from typing import Final

_PER_OCTAVE: Final = 4
_BUCKETS: Final = 40 * _PER_OCTAVE  # up to 2^40 ns, a quarter of an hour


class DurationMeter:
    """Durations in nanoseconds."""

    def __init__(self) -> None:
        self.count = 0
        self._buckets = [0] * _BUCKETS

    def add(self, duration_ns: float, weight: int = 1) -> None:
        bucket = int(log2(duration_ns) * _PER_OCTAVE) if duration_ns > 1.0 else 0
        self._buckets[min(bucket, _BUCKETS - 1)] += weight
        self.count += weight

    def quantile_ns(self, part: float) -> int:
        """A value that at least this part of the durations, by weight, did not exceed; 0 if none."""
        rank = self.count * part
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= rank and seen:
                return int(2.0 ** ((bucket + 1) / _PER_OCTAVE)) + 1
        return 0

    def overrun_ns(self, part: float, weight_min: int = 0) -> int:
        """A limit beyond which at most this part of the time was spent, in durations longer than it.

        So many of those who come at any moment meet a duration that lasts longer than the limit from
        then on. Weights have to be the durations, in any unit. Until there is `weight_min` of them, the
        part is of that: one long duration soon after the start says little about what is to come.
        """
        allowed = max(self.count, weight_min) * part
        limits = [2.0 ** ((bucket + 1) / _PER_OCTAVE) for bucket in range(_BUCKETS)]
        longer = 0  # weight of the durations longer than the limit
        rate = 0.0  # and how much less of it is beyond the limit for each nanosecond more
        for bucket in range(_BUCKETS - 1, -1, -1):
            if longer - rate * limits[bucket] > allowed:
                return int(limits[bucket + 1]) + 1
            longer += self._buckets[bucket]
            rate += self._buckets[bucket] / limits[bucket]
        return int(limits[0]) + 1 if self.count else 0

    def fade(self) -> None:
        """Let what was added so far count half, rounded down."""
        self._buckets = [count // 2 for count in self._buckets]
        self.count = sum(self._buckets)
