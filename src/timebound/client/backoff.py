"""The delays between attempts to connect."""

from __future__ import annotations

from random import Random
from typing import Final

DELAY_S_FIRST: Final = 0.1  # a restarting broker is back within a second
DELAY_S_MAX: Final = 30.0  # the longest wait for a broker that is back
_FACTOR: Final = 2.0
# Half of the delay is random, so that a thousand clients of one broker do not all return at once.
_JITTER: Final = 0.5


class Backoff:
    """Delays that double up to a limit, each shortened by a random part."""

    __slots__ = ("_delay_s", "_delay_s_max", "_random")

    def __init__(self, random: Random, *, delay_s_max: float = DELAY_S_MAX) -> None:
        self._random = random
        self._delay_s_max = delay_s_max
        self._delay_s = min(DELAY_S_FIRST, delay_s_max)

    def reset(self) -> None:
        """Start over with the shortest delay."""
        self._delay_s = min(DELAY_S_FIRST, self._delay_s_max)

    def next_delay_s(self) -> float:
        delay_s = self._delay_s
        self._delay_s = min(delay_s * _FACTOR, self._delay_s_max)
        return delay_s * (1.0 - _JITTER * self._random.random())
