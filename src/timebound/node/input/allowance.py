"""An allowance: so much at once, and so much a second again.

What is taken may exceed what is left, since what a thing costs is often known only afterwards; then there is
nothing until the debt is paid.
"""

from __future__ import annotations

from timebound.units import SECOND


class Allowance:
    """Full at first. What it counts is for its owner to say."""

    __slots__ = ("_at_ns", "_left", "burst", "per_second")

    def __init__(self, burst: float, per_second: float) -> None:
        self.burst = burst
        self.per_second = per_second
        self._left = burst
        self._at_ns = 0  # when `_left` was right; 0: it was full

    def has_any(self, now_ns: int) -> bool:
        """Whether something may be taken."""
        if self._at_ns:
            gained = max(now_ns - self._at_ns, 0) * self.per_second / SECOND
            self._left = min(self._left + gained, self.burst)
        self._at_ns = now_ns
        return self._left > 0

    def take(self, amount: float) -> None:
        self._left -= amount
