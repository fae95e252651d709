"""Dependencies: what a consumer waits for.

    any_of("temperature", "pressure")
    all_of("position", event("speed", source="gps"), within="50ms")
    watchdog(source("engine"), "200ms")
    any_of("alarm", every("1s"))

A plain string is an event type. Durations are texts such as `250ms`, or integer nanoseconds.
"""

from __future__ import annotations

from typing import Final

from timebound.core.correlation.expression import AllOf, AnyOf, Dependency, Every, Leaf, Watchdog
from timebound.units import parse_duration

Part = Dependency | str
Duration = int | str
# Type and source of the wanted events; the empty string stands for any.
Key = tuple[str, str]
ANYTHING: Final[Key] = ("", "")
# A type that no supplier declares: what a gateway wants as long as no channel behind it wants anything.
NOTHING: Final[Key] = ("$nothing", "$nothing")


def nanoseconds(duration: Duration) -> int:
    return parse_duration(duration) if isinstance(duration, str) else duration


def event(type: str = "", *, source: str = "") -> Dependency:
    """Deliver events of one type, of one source, or of both; without either, every event."""
    return Leaf((type, source))


def source(name: str) -> Dependency:
    """Deliver every event of one source."""
    return Leaf(("", name))


def any_of(*parts: Part) -> Dependency:
    """Deliver whenever one part is satisfied."""
    return AnyOf([as_dependency(part) for part in parts])


def all_of(*parts: Part, within: Duration = 0) -> Dependency:
    """Deliver once all parts are satisfied, by events at most `within` apart, then start over."""
    return AllOf([as_dependency(part) for part in parts], nanoseconds(within))


def every(period: Duration) -> Dependency:
    """Deliver a timeout event periodically, at the consumer's priority."""
    return Every(nanoseconds(period))


def watchdog(part: Part, timeout: Duration) -> Dependency:
    """Deliver what the part delivers, and a timeout event whenever it was silent for `timeout`."""
    return Watchdog(as_dependency(part), nanoseconds(timeout))


def as_dependency(part: Part) -> Dependency:
    return Leaf((part, "")) if isinstance(part, str) else part


def key_of(leaf: Leaf) -> Key:
    """Return a leaf's type and source, checked: leaves can also be made by hand."""
    key = leaf.key
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], str):
        return (key[0], key[1])
    raise TypeError(f"leaf key {key!r} is not a (type, source) pair; make leaves with event() or source()")


def fits(key: Key, event_type: str, event_source: str) -> bool:
    return (not key[0] or key[0] == event_type) and (not key[1] or key[1] == event_source)
