"""The options of the demo, parsed from text."""

from __future__ import annotations

from typing import Final

from timebound.core.link.scheduling import DEFAULT_SCHEDULING
from timebound.demo.brokers import MOSQUITTO, Contender, mosquitto_program, ours
from timebound.errors import UnitError
from timebound.units import SECOND, parse_duration, parse_number

# Bytes a second in one unit; longest names first, so that "kbit/s" is not read as "bit/s".
_RATE_UNITS: Final = (
    ("Mbit/s", 125_000.0),
    ("kbit/s", 125.0),
    ("MB/s", 1_000_000.0),
    ("kB/s", 1_000.0),
    ("bit/s", 0.125),
    ("B/s", 1.0),
)
RATE_BYTES_PER_S_MIN: Final = 1_000.0
# One process makes and judges the traffic: beyond this it would be the limit, not the link.
RATE_BYTES_PER_S_MAX: Final = 1_250_000.0
LOAD_MAX: Final = 10.0
# The kernel's shaper needs a small buffer; beyond the largest, nothing with a deadline can be in time.
BUFFER_S_MIN: Final = 0.02
BUFFER_S_MAX: Final = 2.0


def parse_rate(text: str) -> float:
    """Read `1Mbit/s`, `500kbit/s`, `64kB/s` as bytes per second.

    Raises:
        ValueError: the text is not a rate, or out of range.
    """
    for unit, factor in _RATE_UNITS:
        if text.strip().endswith(unit):
            try:
                rate = parse_number(text.strip().removesuffix(unit).rstrip()) * factor
            except UnitError:
                break
            if not RATE_BYTES_PER_S_MIN <= rate <= RATE_BYTES_PER_S_MAX:
                raise ValueError(f"rate {text!r} is out of range (8kbit/s to 10Mbit/s)")
            return rate
    raise ValueError(f"{text!r} is not a rate; write it like 1Mbit/s, 500kbit/s or 64kB/s")


def parse_loads(text: str) -> list[float]:
    """Read `1.5,3`: the offered load, in multiples of what the link carries."""
    loads = []
    for part in text.split(","):
        try:
            load = parse_number(part.strip())
        except UnitError as error:
            raise ValueError(f"load {text!r} contains {part!r}; write it like 1.5,3") from error
        if not 0 < load <= LOAD_MAX:
            raise ValueError(f"load {part!r} must be above 0 and at most {LOAD_MAX:g}")
        loads.append(load)
    return loads


def parse_buffer(text: str) -> float:
    """Read `200ms` as seconds: the time that the buffer of a link holds.

    Raises:
        ValueError: the text is not a duration, or out of range.
    """
    try:
        buffer_s = parse_duration(text) / SECOND
    except UnitError as error:
        raise ValueError(f"buffer {text!r} is not a duration; write it like 200ms") from error
    if not BUFFER_S_MIN <= buffer_s <= BUFFER_S_MAX:
        raise ValueError(f"buffer {text!r} is out of range ({BUFFER_S_MIN * 1_000:g}ms to {BUFFER_S_MAX:g}s)")
    return buffer_s


def contenders(strategies: str) -> tuple[list[Contender], str]:
    """Return the brokers to run, and a note if Mosquitto is not installed.

    Raises:
        ValueError: a strategy is unknown.
    """
    found = [ours(name.strip()) for name in strategies.split(",")]
    if mosquitto_program() is None:
        return found, "mosquitto is not installed (Debian: mosquitto); it is left out"
    return [*found, Contender(MOSQUITTO, "")], ""


DEFAULT_STRATEGIES: Final = f"fifo,{DEFAULT_SCHEDULING.name}"
