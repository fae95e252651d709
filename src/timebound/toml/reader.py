"""Reads one configuration value: what each kind of key accepts and refuses.

A refusal states what is allowed; the caller adds the file, the line and the key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from timebound.errors import UnitError
from timebound.toml.setting import NEVER_S, UNLIMITED, KeySpec, format_size
from timebound.units import SECOND, format_duration, parse_duration

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(B|KiB|MiB|GiB)?")
_SIZE_FACTORS: Final = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Plain decimals: an exponent is a typing error in a configuration.
_DURATION: Final = re.compile(r"[0-9]*\.?[0-9]*\s*[a-zµ]*")
# An error shows no more of a long value.
_SHOWN_LENGTH_MAX: Final = 60


class WrongValue(Exception):
    """A value cannot be used; the text states why, and what is allowed."""


def read_value(raw: object, spec: KeySpec, folder: Path) -> object:
    """Check a TOML value against its description and return the value for the code.

    Relative paths start at `folder`, where the configuration file is.

    Raises:
        WrongValue: the value is of the wrong type or out of range.
    """
    match spec.kind:
        case "switch":
            if not isinstance(raw, bool):
                raise WrongValue(f"must be true or false, not {shown(raw)}")
            return raw
        case "count":
            return _count(raw, spec)
        case "size":
            return _size(raw, spec)
        case "fraction":
            return _fraction(raw, spec)
        case "duration" | "seconds":
            return _duration(raw, spec)
        case "choice":
            return _choice(raw, spec)
        case "texts":
            if not isinstance(raw, list):
                raise WrongValue(f'must be a list of strings like ["a", "b"], not {shown(raw)}')
            return tuple(_text(entry) for entry in raw)
        case "path":
            return _path(_text(raw), folder)
        case "text":
            return _text(raw)


def shown(raw: object) -> str:
    """Write a value for an error text, shortened if it is long."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, list):
        return "a list"
    if isinstance(raw, int) and abs(raw) > UNLIMITED:
        # Python refuses to format very long integers.
        return "a number beyond all limits"
    text = repr(raw) if isinstance(raw, str) else str(raw)
    return text if len(text) <= _SHOWN_LENGTH_MAX else text[:_SHOWN_LENGTH_MAX] + "..."


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise WrongValue(f'must be a string in quotes like "a", not {shown(raw)}')
    if "\0" in raw:
        raise WrongValue("contains a null character, which no name or path may have")
    return raw


def _path(name: str, folder: Path) -> Path:
    if name == "":
        raise WrongValue("is empty; give a path or leave the key out")
    try:
        return folder / Path(name).expanduser()
    except RuntimeError as exc:
        raise WrongValue(f"no home directory is known for {shown(name)}; write the full path") from exc


def _choice(raw: object, spec: KeySpec) -> object:
    if raw in spec.choices:
        return raw
    choices = ", ".join(f'"{choice}"' for choice in spec.choices)
    close = difflib.get_close_matches(raw, spec.choices, n=1) if isinstance(raw, str) else []
    hint = f'; did you mean "{close[0]}"?' if close else ""
    raise WrongValue(f"must be one of {choices}, not {shown(raw)}{hint}")


def _count(raw: object, spec: KeySpec) -> int:
    if spec.was_size and isinstance(raw, str):
        return _size(raw, spec)
    # TOML's true and false are integers to Python.
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise WrongValue(f"must be a whole number {_range(spec, str)}, not {shown(raw)}")
    if not spec.minimum <= raw <= spec.maximum:
        raise WrongValue(f"must be {_range(spec, str)}, not {shown(raw)}")
    return raw


def _fraction(raw: object, spec: KeySpec) -> float:
    wanted = f"from {spec.least:g} to {spec.most:g}"
    if not isinstance(raw, int | float) or isinstance(raw, bool):
        raise WrongValue(f"must be a number {wanted}, not {shown(raw)}")
    if not spec.least <= raw <= spec.most:  # also refuses nan
        raise WrongValue(f"must be {wanted}, not {shown(raw)}")
    return float(raw)


def _size(raw: object, spec: KeySpec) -> int:
    size = -1
    if isinstance(raw, str):
        found = _SIZE.fullmatch(raw)
        if found:
            size = int(found[1]) * _SIZE_FACTORS[found[2]]
    elif isinstance(raw, int) and not isinstance(raw, bool):
        size = raw
    if size < 0:
        raise WrongValue(f'{shown(raw)} is not a size; write bytes like 65536, or "64KiB", "1MiB"')
    if not spec.minimum <= size <= spec.maximum:
        raise WrongValue(f"must be {_range(spec, format_size)}, not {shown(raw)}")
    return size


def _duration(raw: object, spec: KeySpec) -> int | float:
    if not isinstance(raw, str):
        raise WrongValue(f'must be a duration with a unit like "30s", not {shown(raw)}')
    if raw == "never" and spec.maximum == NEVER_S:
        return NEVER_S
    if not _DURATION.fullmatch(raw):
        raise WrongValue(f'{shown(raw)} is not a duration; write it like "250ms", "1.5s" or "2m"')
    try:
        duration_ns = parse_duration(raw)
    except UnitError as exc:
        raise WrongValue(str(exc)) from exc
    if spec.kind == "seconds" and duration_ns % SECOND:
        raise WrongValue(f"must be whole seconds, as MQTT sends them, not {shown(raw)}")
    if not spec.minimum * SECOND <= duration_ns <= spec.maximum * SECOND:
        raise WrongValue(f"must be {_range(spec, _seconds)}, not {shown(raw)}")
    return duration_ns // SECOND if spec.kind == "seconds" else duration_ns / SECOND


def _seconds(seconds: int) -> str:
    return format_duration(seconds * SECOND)


def _range(spec: KeySpec, write: Callable[[int], str]) -> str:
    if spec.maximum == UNLIMITED:
        return f"at least {write(spec.minimum)}"
    return f"from {write(spec.minimum)} to {write(spec.maximum)}"
