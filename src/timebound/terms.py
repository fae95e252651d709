"""What a subscription asks for, as one frozen value: from the wire to client, storage, mesh and simulator.

A field of `Terms` is a User Property of SUBSCRIBE. Its line defines it: name, form of the text, default. The
reader (`wire/terms.py`), the hints about misspelt names, the keyword arguments of the client and the check of
docs/wire.md follow from it. CONTRIBUTING.md shows how to add one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypedDict

# Forms of a property's text; a pair of words is a choice, of which the first means True.
TEXT: Final = "text"
NAME: Final = "name"
DURATION: Final = "duration"
TIMER: Final = "timer"
NUMBER: Final = "number"
Form = str | tuple[str, str]

# Of a subscription's name, in characters: it is part of a key, in memory, on disk and between brokers.
NAME_LENGTH_MAX: Final = 128
# Joins a name to what it distinguishes; no text of MQTT has this character (MQTT 5, 1.5.4).
NAME_SEPARATOR: Final = "\0"


def _term(name: str, form: Form, default: object) -> Any:
    return field(default=default, metadata={"name": name, "form": form})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one subscription; those of a SUBSCRIBE without User Properties are the defaults."""

    name: str = _term("name", NAME, "")  # tells apart subscriptions of one client to one filter
    where: str = _term("where", TEXT, "")  # content filter
    deadline_ns: int = _term("deadline", DURATION, 0)  # 0 = none
    price: float = _term("price", NUMBER, 1.0)
    penalty: float = _term("penalty", NUMBER, 0.0)
    keep_last: bool = _term("keep", ("last", "all"), False)  # only the newest message of a topic waits
    is_ordered: bool = _term("ordered", ("true", "false"), False)  # forbids reordering
    notify_missed: bool = _term("notify", ("missed", "none"), False)  # notices of undelivered messages
    correlate: str = _term("correlate", TEXT, "")
    within_ns: int = _term("within", DURATION, 0)  # window of `correlate`; 0 = no limit
    watchdog_ns: int = _term("watchdog", TIMER, 0)  # 0 = none
    every_ns: int = _term("every", TIMER, 0)  # 0 = none


class TermArguments(TypedDict, total=False):
    """The same as keyword arguments of a client; a duration given as a number is in seconds."""

    name: str | None
    where: str | None
    deadline: str | float | timedelta | None
    price: float | None
    penalty: float | None
    keep: str | None
    ordered: str | bool | None
    notify: str | None
    correlate: str | None
    within: str | float | timedelta | None
    watchdog: str | float | timedelta | None
    every: str | float | timedelta | None


class TermProperty(NamedTuple):
    """The User Property of one field of `Terms`."""

    name: str
    attribute: str
    form: Form


# Shared by all subscriptions without terms.
DEFAULT_TERMS: Final = Terms()
# By name, in the order of the fields.
TERM_PROPERTIES: Final[dict[str, TermProperty]] = {
    one.metadata["name"]: TermProperty(one.metadata["name"], one.name, one.metadata["form"])
    for one in fields(Terms)
}


def with_name(text: str, name: str) -> str:
    """Return a key made of a text, such as a topic filter, and a subscription's name; it may be empty."""
    return f"{text}{NAME_SEPARATOR}{name}" if name else text
