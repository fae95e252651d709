"""Descriptions of keys: the kind of a value, its range, and the reason for its default.

A table of a document is a dataclass whose fields are made by `setting`. A duration has a field that ends
in `_s`, which its key does not have: `connect_timeout_s` is the key `connect_timeout = "10s"`.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, Literal

# Kinds of values; `reader.py` has a function for each.
Kind = Literal[
    "text", "path", "switch", "count", "size", "duration", "seconds", "choice", "texts", "fraction"
]

KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
GIBIBYTE: Final = 1024 * MEBIBYTE
# MQTT 5, 3.1.2.11.2: this session expiry interval means "never".
NEVER_S: Final = 0xFFFF_FFFF
UNLIMITED: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The description of one key, besides its name and default."""

    kind: Kind
    reason: str
    minimum: int = 0
    maximum: int = UNLIMITED
    choices: tuple[str, ...] = ()
    least: float = 0.0  # of a fraction
    most: float = 1.0
    was_size: bool = False  # a count that may still be written as a size, like "4KiB", as it once was


def setting(kind: Kind, default: object, reason: str, **more: Any) -> Any:
    """Declare a field of a configuration table; `default` may be MISSING for a required key."""
    return field(default=default, metadata={"setting": KeySpec(kind, reason, **more)})


def settings_of(table: type) -> dict[str, tuple[Field[Any], KeySpec]]:
    """Return the TOML keys of one table, in order, each with its field and description."""
    found: dict[str, tuple[Field[Any], KeySpec]] = {}
    for known in fields(table):
        described = known.metadata.get("setting")
        if isinstance(described, KeySpec):
            found[toml_key(known.name, described)] = (known, described)
    return found


def toml_key(field_name: str, described: KeySpec) -> str:
    if described.kind in ("duration", "seconds"):
        return field_name.removesuffix("_s")
    return field_name.removesuffix("_")  # of a word that Python keeps for itself


def format_size(size: int) -> str:
    for unit, factor in (("GiB", GIBIBYTE), ("MiB", MEBIBYTE), ("KiB", KIBIBYTE)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
