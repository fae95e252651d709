"""Distributions from which a scenario draws its numbers.

5                                   always this number
{uniform = [10, 30]}                any number between the two
{choice = [10, 30, 60]}             one of these, equally likely
{normal = [50, 10], min = 1}        mean and deviation, drawn again below `min`
{exponential = 20}                  mean
{lognormal = [50, 0.5]}             median and deviation of the logarithm
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

# After this many draws below the minimum in a row, the minimum is considered out of reach.
_TRIES_MAX: Final = 10_000
KINDS: Final = {"uniform": 2, "normal": 2, "lognormal": 2, "exponential": 1, "choice": 0}


class Draw:
    """A fixed number or a distribution; `numbers` are its parameters, as in the module's table."""

    __slots__ = ("kind", "least", "numbers")

    def __init__(self, kind: str, numbers: tuple[float, ...], least: float = -math.inf) -> None:
        if kind != "fixed" and kind not in KINDS:
            raise ValueError(f"distribution {kind!r} is unknown; choose one of {', '.join(KINDS)}")
        wanted = KINDS.get(kind, 1)
        if (wanted and len(numbers) != wanted) or not numbers:
            raise ValueError(f"{kind} has {len(numbers)} numbers; expected {wanted or 'at least 1'}")
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError(f"{kind} has a number that is not finite: {numbers}")
        if kind == "uniform" and numbers[0] > numbers[1]:
            raise ValueError(f"uniform {list(numbers)} has its ends in the wrong order")
        if kind in ("normal", "lognormal") and numbers[1] < 0:
            raise ValueError(f"{kind} {list(numbers)} has a negative deviation")
        if kind in ("exponential", "lognormal") and numbers[0] <= 0:
            raise ValueError(
                f"{kind} {list(numbers)} requires a positive {'mean' if wanted == 1 else 'median'}"
            )
        self.kind = kind
        self.numbers = numbers
        self.least = least

    def draw(self, random: Random) -> float:
        """Draw one number.

        Raises:
            ValueError: the minimum was not reached in many draws.
        """
        for _ in range(_TRIES_MAX):
            number = self._once(random)
            if number >= self.least:
                return number
        raise ValueError(f"{self.kind} {list(self.numbers)} almost never reaches its minimum {self.least}")

    def lowest(self) -> float:
        """Return the smallest number that can be drawn, for checks."""
        if self.kind in ("fixed", "choice", "uniform"):
            return max(min(self.numbers), self.least)
        return max(0.0 if self.kind != "normal" else -math.inf, self.least)

    def _once(self, random: Random) -> float:
        numbers = self.numbers
        if self.kind == "fixed":
            return numbers[0]
        if self.kind == "choice":
            return random.choice(numbers)
        if self.kind == "uniform":
            return random.uniform(numbers[0], numbers[1])
        if self.kind == "normal":
            return random.gauss(numbers[0], numbers[1])
        if self.kind == "lognormal":
            return numbers[0] * math.exp(random.gauss(0.0, numbers[1]))
        return random.expovariate(1.0 / numbers[0])


def fixed(number: float) -> Draw:
    return Draw("fixed", (number,))


def uniform(low: float, high: float) -> Draw:
    return Draw("uniform", (low, high))


def choice(*numbers: float) -> Draw:
    return Draw("choice", numbers)
