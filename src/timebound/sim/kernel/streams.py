"""Named streams of random numbers, all from one seed.

Each part of a simulation draws from its own stream, so a change in one part, such as another
strategy, leaves the numbers of all other parts unchanged.
"""

from __future__ import annotations

from random import Random


class Streams:
    """Random streams of one run; equal seed and name give equal numbers on every machine."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> Random:
        """Return a new generator at the start of the named stream."""
        return Random(f"timebound {self.seed} {name}")
