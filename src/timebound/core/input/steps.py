"""A calculation in steps: a generator that yields where it can be interrupted, and returns its result.

Whoever has the clock decides how many steps to take at a time. Between two steps only the calculation itself
may change what it looks at.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Take all steps that are left, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
