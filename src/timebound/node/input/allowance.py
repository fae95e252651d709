"""A token bucket that may go into debt.

The cost of a request is often known only afterwards, so it may exceed what is left; then nothing is allowed
until the debt is paid off.
"""

from __future__ import annotations

from timebound.units import SECOND


class Allowance:
    """At most `burst` at once, refilled by `per_second`; full at first. The owner chooses the unit."""

    __slots__ = ("_at_ns", "_left", "burst", "per_second")

    def __init__(self, burst: float, per_second: float) -> None:
        self.burst = burst
        self.per_second = per_second
        self._left = burst
        self._at_ns = 0  # when `_left` was computed; 0 = still full

    def has_any(self, now_ns: int) -> bool:
        """Whether anything is left."""
        if self._at_ns:
            gained = max(now_ns - self._at_ns, 0) * self.per_second / SECOND
            self._left = min(self._left + gained, self.burst)
        self._at_ns = now_ns
        return self._left > 0

    def take(self, amount: float) -> None:
        self._left -= amount
