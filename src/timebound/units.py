"""Durations and numbers as people write them, as integers and floats as the code uses them.

Time inside the package is an `int` of nanoseconds. On the wire and in configuration a
duration is written `250ms`, `1.5s`, `2m`; this module is the only place that reads it.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Final

from timebound.errors import UnitError

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 3_600 * SECOND
DAY: Final = 24 * HOUR

# Longest first, so that "ms" is not read as "m" followed by an "s".
_DURATION_UNITS: Final = [
    ("ns", 1),
    ("us", MICROSECOND),
    ("µs", MICROSECOND),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
    ("d", DAY),
]
# A century: a longer one is a slip of the pen, and it keeps sums inside 64 bits.
DURATION_NS_MAX: Final = 36_525 * DAY
_NUMBER_LENGTH_MAX: Final = 40
_PLAIN_CHARACTERS: Final = frozenset("0123456789.+-")


def parse_duration(text: str) -> int:
    """Read `250ms`, `1.5s`, `2m` as nanoseconds; `0` needs no unit.

    Raises:
        UnitError: the text is no duration, is negative, or is longer than a century.
    """
    stripped = text.strip()
    if stripped == "0":
        return 0
    for unit, factor in _DURATION_UNITS:
        if stripped.endswith(unit):
            number = _decimal(stripped[: -len(unit)].rstrip())
            if number is None:
                break
            duration_ns = int(number * factor)
            if number < 0 or duration_ns > DURATION_NS_MAX:
                raise UnitError(f"duration {text!r} is out of range (0 to 100 years)")
            return duration_ns
    raise UnitError(f"{text!r} is not a duration; write it like 250ms, 1.5s or 2m")


def format_duration(duration_ns: int) -> str:
    """Write nanoseconds so that `parse_duration` reads the same value back."""
    if duration_ns == 0:
        return "0s"
    for unit, factor in (("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND), ("us", MICROSECOND)):
        if duration_ns % factor == 0:
            return f"{duration_ns // factor}{unit}"
    return f"{duration_ns}ns"


def parse_number(text: str) -> float:
    """Read a decimal number such as `3` or `0.25`.

    Raises:
        UnitError: the text is no finite decimal number.
    """
    number = _decimal(text.strip())
    if number is None:
        raise UnitError(f"{text!r} is not a decimal number")
    value = float(number)
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is too large")
    return value


def _decimal(text: str) -> Decimal | None:
    # No exponents: 1e999990 is short to write and takes half a minute to turn into an integer.
    if not text or len(text) > _NUMBER_LENGTH_MAX or not _PLAIN_CHARACTERS.issuperset(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
