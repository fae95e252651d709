"""Converts durations and numbers between text and the values that the code uses.

Time inside the package is an `int` of nanoseconds. On the wire and in configuration a duration is
written `250ms`, `1.5s`, `2m`; only this module reads it, and the numbers of clients. A number is ASCII
digits, possibly with a point: no sign, space or exponent, no other script.
"""

from __future__ import annotations

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
# A century: a longer one is a typing error, and sums stay within 64 bits.
DURATION_NS_MAX: Final = 36_525 * DAY
# Reading a longer one takes time that grows with the square of its length.
_NUMBER_LENGTH_MAX: Final = 40


def parse_duration(text: str) -> int:
    """Read `250ms`, `1.5s`, `2 m` as nanoseconds, rounded down; `0` needs no unit.

    Raises:
        UnitError: the text is not a duration, or longer than a century.
    """
    if text == "0":
        return 0
    for unit, factor in _DURATION_UNITS:
        if text.endswith(unit):
            number = text[: -len(unit)].rstrip(" ")
            if not _is_number(number):
                break
            whole, _, fraction = number.partition(".")
            duration_ns = int(whole + fraction) * factor // int(10 ** len(fraction))
            if duration_ns > DURATION_NS_MAX:
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
        UnitError: the text is not a decimal number without a sign.
    """
    if not _is_number(text):
        raise UnitError(f"{text!r} is not a decimal number; write it like 3 or 0.25")
    return float(text)


def parse_count(text: str, least: int, most: int) -> int:
    """Read a whole number such as `12`, within limits.

    Raises:
        UnitError: the text is not a whole number, or out of range.
    """
    if text.isascii() and text.isdigit() and len(text) <= _NUMBER_LENGTH_MAX:
        count = int(text)
        if least <= count <= most:
            return count
    raise UnitError(f"{text!r} is not a whole number from {least} to {most}")


def _is_number(text: str) -> bool:
    """Whether a text is digits, possibly with a point; never an exponent, as in 1e999990."""
    digits = text.replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and len(text) <= _NUMBER_LENGTH_MAX
