"""The values that content filters compare, and how two of them compare.

A value is None (NULL), a bool, an int, a float, a str, a `Moment`, a frozenset, `OBJECT`, or
a `Property`. A user property has no type of its own: it is text that is read as whatever the
other side of the comparison is. Comparing values of unlike types has no answer, which
SQL-92 calls UNKNOWN.
"""

from __future__ import annotations

import math
import re
from datetime import date
from typing import Final

import msgspec

# Truth values, so that AND is the minimum, OR the maximum and NOT the change of sign.
FALSE: Final = -1
UNKNOWN: Final = 0
TRUE: Final = 1

# How two values lie to each other. Booleans and sets are equal or not, but have no order.
BEFORE: Final = 0
SAME: Final = 1
AFTER: Final = 2
EQUAL_UNORDERED: Final = 3
DIFFERENT_UNORDERED: Final = 4
UNLIKE: Final = 5

# A longer text is not a number: it bounds the work of reading one, and no double needs as much.
NUMBER_LENGTH_MAX: Final = 64
# A longer property is not a set: reading one takes time, and there may be many properties.
SET_LENGTH_MAX: Final = 4_096
# Long enough for a date-time with nanoseconds and an offset; anything longer is none.
MOMENT_LENGTH_MAX: Final = 40
BOOLEAN_LENGTH_MAX: Final = len("false")
# Larger integers become doubles in arithmetic, so that a chain of products stays cheap.
INTEGER_MAX: Final = 2**63 - 1

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2}))?)?"
)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_SECOND_NS: Final = 1_000_000_000

# What stands in a set for a boolean: Python's True equals 1, but TRUE is not a number.
_MEMBER_TRUE: Final = ("boolean", b"true")
_MEMBER_FALSE: Final = ("boolean", b"false")
# For what was read but cannot be written, such as an integer beyond 64 bits in an inner array.
_MEMBER_UNWRITABLE: Final = ("json", b"")


class Moment:
    """A point in time, in nanoseconds since 1970 UTC."""

    __slots__ = ("epoch_ns",)

    def __init__(self, epoch_ns: int) -> None:
        self.epoch_ns = epoch_ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and self.epoch_ns == other.epoch_ns

    def __hash__(self) -> int:
        return hash(self.epoch_ns)

    def __repr__(self) -> str:
        return f"Moment({self.epoch_ns})"


class JsonObject:
    """Stands for a JSON object: it is there, so not NULL, but equals and precedes nothing."""

    def __repr__(self) -> str:
        return "OBJECT"


OBJECT: Final = JsonObject()


class Property:
    """The text of a user property, read as the type that a comparison asks for."""

    __slots__ = ("_members", "_members_read", "_number", "_number_read", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._number: int | float | None = None
        self._number_read = False
        self._members: frozenset[object] | None = None
        self._members_read = False

    def number(self) -> int | float | None:
        # One property is often compared with many thresholds; it is read once.
        if not self._number_read:
            self._number = read_number(self.text)
            self._number_read = True
        return self._number

    def boolean(self) -> bool | None:
        if len(self.text) > BOOLEAN_LENGTH_MAX:
            return None
        lowered = self.text.lower()
        if lowered == "true":
            return True
        return False if lowered == "false" else None

    def members(self) -> frozenset[object] | None:
        """Return the set that the text writes as a JSON array, or None."""
        if not self._members_read:
            if self.text.startswith("[") and len(self.text) <= SET_LENGTH_MAX:
                decoded = read_json(self.text.encode())
                if isinstance(decoded, list):
                    self._members = read_set(decoded)
            self._members_read = True
        return self._members

    def read_like(self, other: object) -> object:
        """Return the text as a value of the same type as `other`, or None if it is not one."""
        if isinstance(other, str):
            return self.text
        if isinstance(other, bool):
            return self.boolean()
        if isinstance(other, (int, float)):
            return self.number()
        if isinstance(other, Moment):
            return read_moment(self.text)
        if isinstance(other, frozenset):
            return self.members()
        return None


def read_number(text: str) -> int | float | None:
    """Return the decimal number that is the whole of `text`; None if it is not one."""
    if len(text) > NUMBER_LENGTH_MAX:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[1] is None and match[2] is None and match[3] is None:
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None


def read_moment(text: str) -> Moment | None:
    """Return the date-time that `text` writes as ISO 8601 (UTC without an offset); None if it is not one."""
    if len(text) > MOMENT_LENGTH_MAX:
        return None
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    try:
        day = date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    hour, minute, second = int(match[4] or 0), int(match[5] or 0), int(match[6] or 0)
    offset_hours, offset_minutes = int(match[10] or 0), int(match[11] or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_hours > 23 or offset_minutes > 59:
        return None
    offset_s = offset_hours * 3600 + offset_minutes * 60
    if match[9] == "-":
        offset_s = -offset_s
    seconds = day * 86_400 + hour * 3600 + minute * 60 + second - offset_s
    return Moment(seconds * _SECOND_NS + int((match[7] or "").ljust(9, "0")))


def read_json(data: bytes) -> object:
    """Decode JSON; anything that is not JSON, or nested too deeply, is None."""
    try:
        decoded: object = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    return decoded


def read_set(items: list[object]) -> frozenset[object]:
    return frozenset([member(item) for item in items])


def member(item: object) -> object:
    """Return the set member for a JSON value; only values of the same type are equal."""
    if isinstance(item, bool):
        return _MEMBER_TRUE if item else _MEMBER_FALSE
    if isinstance(item, (str, int, float)):
        return item
    # Arrays, objects and null inside an array: equal when written equally.
    try:
        return ("json", msgspec.json.encode(item, order="sorted"))
    except (OverflowError, RecursionError):
        return _MEMBER_UNWRITABLE


def order(left: object, right: object) -> int:
    """Compare two values; return one of BEFORE, SAME, AFTER, the unordered two, or UNLIKE."""
    if isinstance(left, float) and isinstance(right, float):
        return _order_numbers(left, right)  # by far the most frequent
    if isinstance(left, Property):
        if isinstance(right, Property):
            return _order_properties(left, right)
        left = left.read_like(right)
    elif isinstance(right, Property):
        right = right.read_like(left)
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool) and isinstance(right, bool):
            return EQUAL_UNORDERED if left == right else DIFFERENT_UNORDERED
        return UNLIKE
    if isinstance(left, (int, float)):
        return _order_numbers(left, right) if isinstance(right, (int, float)) else UNLIKE
    if isinstance(left, str):
        if isinstance(right, str):
            return _order_texts(left, right)
        return _order_moments(read_moment(left), right) if isinstance(right, Moment) else UNLIKE
    if isinstance(left, Moment):
        return _order_moments(left, read_moment(right) if isinstance(right, str) else right)
    if isinstance(left, frozenset) and isinstance(right, frozenset):
        return EQUAL_UNORDERED if left == right else DIFFERENT_UNORDERED
    return UNLIKE


def _order_properties(left: Property, right: Property) -> int:
    """Compare two properties: as numbers if both are, else as text."""
    left_number, right_number = left.number(), right.number()
    if left_number is None or right_number is None:
        return _order_texts(left.text, right.text)
    return _order_numbers(left_number, right_number)


def _order_numbers(left: int | float, right: int | float) -> int:
    # Python compares an int with a float exactly, without rounding either.
    if left == right:
        return SAME
    return BEFORE if left < right else AFTER


def _order_texts(left: str, right: str) -> int:
    if left == right:
        return SAME
    return BEFORE if left < right else AFTER


def _order_moments(left: Moment | None, right: object) -> int:
    if left is None or not isinstance(right, Moment):
        return UNLIKE
    if left.epoch_ns == right.epoch_ns:
        return SAME
    return BEFORE if left.epoch_ns < right.epoch_ns else AFTER


def number_of(value: object) -> int | float | None:
    """Return the operand of an arithmetic operator: a number, or the number that a property writes."""
    if isinstance(value, Property):
        return value.number()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def text_of(value: object) -> str | None:
    if isinstance(value, Property):
        return value.text
    return value if isinstance(value, str) else None


def calculate(operator: str, left: int | float, right: int | float) -> int | float | None:
    """Apply `+ - * /`; two integers divide as integers, towards zero. No result is None."""
    try:
        if operator == "+":
            result = left + right
        elif operator == "-":
            result = left - right
        elif operator == "*":
            result = left * right
        elif isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)
            result = quotient if (left < 0) == (right < 0) else -quotient
        else:
            result = left / right
        if isinstance(result, int) and abs(result) <= INTEGER_MAX:
            return result
        result = float(result)
    except (OverflowError, ZeroDivisionError):
        return None
    return result if math.isfinite(result) else None
