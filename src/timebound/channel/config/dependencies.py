"""Dependencies as a channel's file states them: a text, or a table that joins parts.

"position"                                        { type = "speed", source = "gps" }
{ any = [ … ] }                                   { all = [ … ], within = "50ms" }
{ every = "10ms" }                                { watchdog = …, timeout = "200ms" }
"""

from __future__ import annotations

from typing import Any, Final

from timebound.channel.base.dependency import event
from timebound.channel.config.tables import Document, read_duration, shown
from timebound.core.correlation.expression import (
    DEPTH_MAX,
    AllOf,
    AnyOf,
    Correlator,
    Dependency,
    Every,
    Watchdog,
)
from timebound.toml.lines import KeyPath

# The key that determines what a table is, and the keys allowed beside it.
_KINDS: Final = {"any": (), "all": ("within",), "every": (), "watchdog": ("timeout",)}
_LEAF: Final = ("type", "source")
_HELP: Final = (
    'write "type", { type = …, source = … }, { any = […] }, { all = […] }, { every = … } or { watchdog = … }'
)


def read_dependency(document: Document, value: object, at: KeyPath) -> Dependency | None:
    """Read what an operation waits for; note mistakes, and return None if there are any."""
    noted = len(document.mistakes)
    found = _read(document, value, at, 0)
    if found is None or len(document.mistakes) > noted:
        return None
    try:
        Correlator(found)
    except ValueError as error:
        document.note(at, str(error))
        return None
    return found


def has_timers(dependency: Dependency) -> bool:
    return Correlator(dependency).timer_count > 0


def _read(document: Document, value: object, at: KeyPath, depth: int) -> Dependency | None:
    if depth > DEPTH_MAX:
        document.note(at, f"is nested more than {DEPTH_MAX} deep")
        return None
    if isinstance(value, str) and value:
        return event(value)
    if not isinstance(value, dict) or not value:
        document.note(at, f"cannot be {shown(value)}; {_HELP}")
        return None
    kinds = [kind for kind in _KINDS if kind in value]
    if len(kinds) > 1:
        document.note(
            at, f"has {' and '.join(repr(kind) for kind in kinds)}; a table may state only one of them"
        )
        return None
    allowed = (kinds[0], *_KINDS[kinds[0]]) if kinds else _LEAF
    for key in value:
        if key not in allowed:
            beside = f"beside {kinds[0]!r}" if kinds else "in a dependency"
            document.note((*at, key), f"unknown key {beside}; known are {', '.join(allowed)}")
    if not kinds:
        return _leaf(document, value, at)
    return _joined(document, kinds[0], value, at, depth)


def _leaf(document: Document, value: dict[str, Any], at: KeyPath) -> Dependency | None:
    for key in _LEAF:
        if key in value and (not isinstance(value[key], str) or not value[key]):
            document.note((*at, key), f"must be text in quotes, not {shown(value[key])}")
            return None
    return event(value.get("type", ""), source=value.get("source", ""))


def _joined(
    document: Document, kind: str, value: dict[str, Any], at: KeyPath, depth: int
) -> Dependency | None:
    if kind == "every":
        period_ns = read_duration(document, value[kind], (*at, kind))
        return Every(period_ns) if period_ns else None
    if kind == "watchdog":
        part = _read(document, value[kind], (*at, kind), depth + 1)
        if "timeout" not in value:
            document.note((*at, "timeout"), 'is required: how long it may be silent, such as "200ms"')
            return None
        timeout_ns = read_duration(document, value["timeout"], (*at, "timeout"))
        return Watchdog(part, timeout_ns) if part is not None and timeout_ns else None
    parts = _parts(document, value[kind], (*at, kind), depth)
    within_ns = read_duration(document, value["within"], (*at, "within")) if "within" in value else 0
    if not parts:
        return None
    return AnyOf(parts) if kind == "any" else AllOf(parts, within_ns)


def _parts(document: Document, value: object, at: KeyPath, depth: int) -> list[Dependency]:
    if not isinstance(value, list) or not value:
        document.note(at, f'must be a list of parts like ["a", "b"], not {shown(value)}')
        return []
    read = [_read(document, part, (*at, index), depth + 1) for index, part in enumerate(value)]
    return [part for part in read if part is not None]
