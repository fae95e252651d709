"""Measured costs of consumers: exact maxima, and percentiles from a histogram of fixed size.

Each power of two is cut into 32 steps, so a percentile is at most 3.2 % too high; recording is a shift
and an increment, and the memory is set aside beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from timebound.core.input.schedulability import Operation

_STEPS_BITS: Final = 5
_STEPS: Final = 1 << _STEPS_BITS
# Values up to 2**42 ns, over an hour; a longer one counts as that.
_VALUE_BITS: Final = 42
_BUCKETS: Final = (_VALUE_BITS - _STEPS_BITS + 1) * _STEPS


class Histogram:
    """Counts of durations in nanoseconds."""

    __slots__ = ("_buckets", "count", "max_ns", "min_ns")

    def __init__(self) -> None:
        self._buckets: list[int] = [0] * _BUCKETS
        self.count = 0
        self.max_ns = 0
        self.min_ns = 0

    def record(self, duration_ns: int) -> None:
        value = max(duration_ns, 0)
        if self.count == 0 or value < self.min_ns:
            self.min_ns = value
        if value > self.max_ns:
            self.max_ns = value
        self.count += 1
        self._buckets[_bucket_of(value)] += 1

    def percentile_ns(self, percent: float) -> int:
        """Return the value that `percent` of all durations do not exceed; 0 when there are none."""
        if not 0.0 <= percent <= 100.0:
            raise ValueError(f"percentile {percent} is out of range (0 to 100)")
        wanted = self.count * percent / 100.0
        seen = 0
        for index, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                return min(_upper_end(index), self.max_ns)
        return self.max_ns


def _bucket_of(value: int) -> int:
    small: i64 = min(value, (1 << _VALUE_BITS) - 1)
    if small < _STEPS:
        return int(small)
    shift: i64 = int(small).bit_length() - _STEPS_BITS - 1
    return int((shift << _STEPS_BITS) + (small >> shift))


def _upper_end(index: int) -> int:
    if index < _STEPS:
        return index
    shift = (index >> _STEPS_BITS) - 1
    return (((index & (_STEPS - 1)) | _STEPS) + 1 << shift) - 1


class Meter:
    """Measured cost and response time of one operation, beside what it stated.

    `cost` is processor time of the consumer's own thread; `response` is from the event's entry into the
    channel to the consumer's return, so it includes waiting and pre-emption.
    """

    __slots__ = ("cost", "misses", "operation", "overruns", "response")

    def __init__(self, operation: Operation) -> None:
        self.operation: Final = operation
        self.cost: Final = Histogram()
        self.response: Final = Histogram()
        self.overruns = 0
        self.misses = 0

    def record(self, cost_ns: int, response_ns: int) -> bool:
        """Record one run; return True when it cost more than was stated."""
        self.cost.record(cost_ns)
        self.response.record(response_ns)
        if response_ns > self.operation.period_ns:
            self.misses += 1
        if cost_ns <= self.operation.cost_ns:
            return False
        self.overruns += 1
        return True
