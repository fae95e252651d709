"""Converts what callers pass to what MQTT carries: payloads, durations, numbers, user properties.

Invalid values raise ValueError (or UnitError, a subclass) before anything is sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from timebound.errors import UnitError
from timebound.units import DURATION_NS_MAX, MICROSECOND, MILLISECOND, SECOND, format_duration, parse_duration
from timebound.wire.primitives import encode_string
from timebound.wire.terms import PRIORITY_MAX

# Types of payloads; dict and list become JSON.
Payload = bytes | bytearray | memoryview | str | int | float | dict[str, Any] | list[Any] | None
# A number is in seconds.
Duration = str | int | float | timedelta
Scalar = str | int | float | bool
UserPropertiesLike = Mapping[str, Scalar] | Iterable[tuple[str, Scalar]]

U32_MAX: Final = 0xFFFF_FFFF  # as a session expiry: never


def to_payload(value: Payload) -> bytes:
    """Return the bytes of a payload: text as UTF-8, numbers as decimal text, dict and list as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    if value is None:
        return b""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (bool, int, float, dict, list)):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8")
    raise TypeError(
        f"payload is a {type(value).__name__}; it must be bytes, str, int, float, dict, list or None"
    )


def to_ns(value: Duration, name: str) -> int:
    """Read a duration: `"250ms"`, a number of seconds, or a timedelta."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, timedelta):
        duration_ns = value // timedelta(microseconds=1) * MICROSECOND
    elif isinstance(value, int):
        duration_ns = value * SECOND
    else:
        duration_ns = round(value * SECOND) if math.isfinite(value) else -1
    if not 0 <= duration_ns <= DURATION_NS_MAX:
        raise UnitError(f"{name} {value!r} is out of range (0 to 100 years)")
    return duration_ns


def to_positive_ns(value: Duration, name: str) -> int:
    """Read a duration that must be above zero."""
    duration_ns = to_ns(value, name)
    if duration_ns == 0:
        raise UnitError(f"{name} is {value!r}; it must be above zero, like 250ms")
    return duration_ns


def to_whole_seconds(value: Duration, name: str) -> int:
    """Read a duration as whole seconds, rounded up, as MQTT carries it."""
    return min(-(-to_ns(value, name) // SECOND), U32_MAX)


def budget_text(timeout_ns: int, elapsed_ns: int) -> str:
    """Write the rest of a timeout, in which only whole milliseconds count as elapsed.

    Brokers cache the texts they parse; so a message sent at once repeats its timeout as given.
    """
    left_ns = timeout_ns - elapsed_ns + elapsed_ns % MILLISECOND
    return format_duration(max(left_ns, 1))


def duration_text(value: Duration, name: str) -> str:
    return format_duration(to_positive_ns(value, name))


def number_text(value: float, name: str) -> str:
    """Write a number of at least 0 without an exponent."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is {value!r}; it must be a number of at least 0")
    return format(Decimal(repr(value)), "f")


def priority_text(value: int) -> str:
    if not 0 <= value <= PRIORITY_MAX:
        raise ValueError(f"priority is {value!r}; it must be 0 to {PRIORITY_MAX}")
    return str(int(value))


def to_user_properties(value: UserPropertiesLike | None) -> list[tuple[str, str]]:
    """Return the pairs as text, in order; numbers and booleans are written as in JSON."""
    if value is None:
        return []
    pairs = value.items() if isinstance(value, Mapping) else value
    return [(name, scalar_text(name, item)) for name, item in pairs]


def scalar_text(name: str, value: Scalar) -> str:
    """Return a value as the text of a user property: numbers and booleans as in JSON."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int):
        text = str(value)
    else:
        if not math.isfinite(value):
            raise ValueError(f"user property {name!r} is {value!r}; it must be a finite number")
        text = format(Decimal(repr(value)), "f")
    # Refused now, while the caller is there, and not when the packet is encoded.
    encode_string(name)
    encode_string(text)
    return text


def check_qos(qos: int, name: str = "QoS") -> None:
    if qos not in (0, 1, 2):
        raise ValueError(f"{name} is {qos!r}; it must be 0, 1 or 2")
