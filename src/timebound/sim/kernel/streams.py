"""Named streams of random numbers, all from one seed.

Each part of a simulation draws from its own stream, so that a change in one part, another
strategy for example, leaves all other parts with the very same numbers.
"""

from __future__ import annotations

from random import Random


class Streams:
    """Streams of one run; the same seed and name give the same numbers on every machine."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> Random:
        """A new generator at the start of the named stream."""
        return Random(f"timebound {self.seed} {name}")
