"""The terms of a message and of a subscription, which Timebound reads from User Properties.

Those of a subscription are the fields of `Terms` (`terms.py`); `docs/wire.md` lists all. Other user
properties are the application's: they are passed on, and filters can test them.
"""

from __future__ import annotations

from typing import Any, Final

from timebound.errors import ProtocolError, UnitError
from timebound.terms import (
    DEFAULT_TERMS,
    DURATION,
    NAME,
    NAME_LENGTH_MAX,
    NUMBER,
    TERM_PROPERTIES,
    TIMER,
    Form,
    Terms,
)
from timebound.units import MILLISECOND, parse_duration, parse_number

PRIORITY_MAX: Final = 9
# Largest price or penalty: in millionths, sums of an account and of Spark stay within 64 bits.
WORTH_MAX: Final = 1_000_000_000
# A shorter tick would keep the broker busy with nothing else.
TIMER_NS_MIN: Final = 10 * MILLISECOND
_SUBSCRIBE_TERMS: Final = frozenset(TERM_PROPERTIES)
_PUBLISH_TERMS: Final = frozenset(("timeout", "priority"))
# Terms of a SUBSCRIBE for paths with guarantees, which are not supported yet.
RESERVED_TERMS: Final = frozenset(("latency", "bandwidth", "period", "reserve"))
# Limits of the search for misspelt names.
_MISSPELT_LENGTH_MAX: Final = 16
_HINTS_MAX: Final = 4
_REASON: Final = 0x83  # implementation specific error: the rule is ours, not MQTT's
_SHOWN_VALUE_MAX: Final = 60

# Publishers repeat a few timeouts; parsing one costs 1 µs compiled, looking it up 0.05.
_DURATIONS: Final[dict[str, int]] = {}
_DURATIONS_MAX: Final = 1_024
_DURATION_CACHED_LENGTH_MAX: Final = 16

UserProperties = tuple[tuple[str, str], ...] | list[tuple[str, str]]


class PublishTerms:
    """The time that a message stays valid (0 = no limit) and its priority (0..9)."""

    __slots__ = ("priority", "timeout_ns")

    def __init__(self, timeout_ns: int = 0, priority: int = 0) -> None:
        self.timeout_ns = timeout_ns
        self.priority = priority


# Shared by all packets without terms: terms are never changed after parsing.
DEFAULT_PUBLISH_TERMS: Final = PublishTerms()


def parse_publish_terms(user_properties: UserProperties) -> PublishTerms:
    """Read `timeout` and `priority` from the user properties of a PUBLISH.

    Raises:
        ProtocolError: 0x83, a value that cannot be read or a term given twice.
    """
    if not user_properties:
        return DEFAULT_PUBLISH_TERMS
    timeout = ""
    priority = ""
    for name, value in user_properties:
        if name == "timeout":
            timeout = _once(name, timeout, value)
        elif name == "priority":
            priority = _once(name, priority, value)
    if not timeout and not priority:
        return DEFAULT_PUBLISH_TERMS
    return PublishTerms(
        _duration("timeout", timeout) if timeout else 0, _priority(priority) if priority else 0
    )


def parse_subscribe_terms(user_properties: UserProperties) -> Terms:
    """Read the terms of a subscription from the user properties of a SUBSCRIBE.

    Raises:
        ProtocolError: 0x83, a value that cannot be read or a term given twice.
    """
    given: dict[str, str] = {}
    for name, value in user_properties:
        if name in _SUBSCRIBE_TERMS:
            given[name] = _once(name, given.get(name, ""), value)
    if not given:
        return DEFAULT_TERMS
    if "within" in given and "correlate" not in given:
        raise ProtocolError(_REASON, "property 'within' is the window of 'correlate', which is not given")
    values: dict[str, Any] = {}
    for name, value in given.items():
        found = TERM_PROPERTIES[name]
        values[found.attribute] = _read(name, value, found.form)
    return Terms(**values)


def parse_unsubscribe_name(user_properties: UserProperties) -> str | None:
    """Read which subscription an UNSUBSCRIBE ends: None = all to its filters, empty = the unnamed one.

    Raises:
        ProtocolError: 0x83, the name is given twice.
    """
    found: str | None = None
    for name, value in user_properties:
        if name == "name":
            if found is not None:
                raise _given_twice(name, found, value)
            found = value
    return found


def refuse_reserved_terms(user_properties: UserProperties) -> None:
    """Refuse terms that are not supported yet, rather than grant them and do nothing.

    Raises:
        ProtocolError: 0x83, with the property and its value.
    """
    for name, value in user_properties:
        if name in RESERVED_TERMS:
            raise ProtocolError(
                _REASON, f"property {name!r} is {_shown(value)}; reservations are not supported, leave it out"
            )


def subscribe_hints(user_properties: UserProperties) -> list[str]:
    """Return hints about property names of a SUBSCRIBE that look like mistakes."""
    hints: list[str] = []
    for name, _ in user_properties:
        if name in _PUBLISH_TERMS:
            hints.append(f"property {name!r} is a term of PUBLISH, not of SUBSCRIBE")
        elif name not in _SUBSCRIBE_TERMS:
            hint = _near_miss(name, _SUBSCRIBE_TERMS)
            if hint:
                hints.append(hint)
        if len(hints) == _HINTS_MAX:
            break
    return hints


def publish_hint(name: str) -> str:
    """Return a hint if a property name of a PUBLISH looks like a mistake; else empty."""
    return "" if name in _PUBLISH_TERMS else _near_miss(name, _PUBLISH_TERMS)


def _near_miss(name: str, terms: frozenset[str]) -> str:
    if len(name) > _MISSPELT_LENGTH_MAX:
        return ""
    plain = name.lower().replace("-", "").replace("_", "")
    for term in sorted(terms):
        if _is_one_edit(plain, term):
            return f"unknown property {name!r}; did you mean {term!r}?"
    return ""


def _is_one_edit(word: str, term: str) -> bool:
    """Whether at most one letter is wrong, missing or extra, or two are swapped."""
    start = 0
    shorter = min(len(word), len(term))
    while start < shorter and word[start] == term[start]:
        start += 1
    end = 0
    while end < shorter - start and word[-1 - end] == term[-1 - end]:
        end += 1
    rest = word[start : len(word) - end]
    expected = term[start : len(term) - end]
    if len(rest) <= 1 and len(expected) <= 1:
        return True
    return len(rest) == 2 and len(expected) == 2 and rest[0] == expected[1] and rest[1] == expected[0]


def _read(name: str, value: str, form: Form) -> object:
    """Return the value of a property's text."""
    if isinstance(form, tuple):
        return _choice(name, value, form[0], form[1])
    if form == DURATION:
        return _duration(name, value)
    if form == TIMER:
        return _timer(name, value)
    if form == NUMBER:
        return _worth(name, value)
    if form == NAME and len(value) > NAME_LENGTH_MAX:
        reason = f"property {name!r} has {len(value)} characters; it may have {NAME_LENGTH_MAX}"
        raise ProtocolError(_REASON, reason)
    return value


def _timer(name: str, value: str) -> int:
    """Read the duration of a timer, which has a minimum."""
    duration_ns = _duration(name, value)
    if duration_ns < TIMER_NS_MIN:
        raise ProtocolError(_REASON, f"property {name!r} is {_shown(value)}; the shortest is 10ms")
    return duration_ns


def _choice(name: str, value: str, chosen: str, otherwise: str) -> bool:
    """Whether a term has the first of its two values."""
    word = value.strip()
    if word not in (chosen, otherwise):
        raise ProtocolError(
            _REASON, f"property {name!r} is {_shown(value)}; write {chosen!r} or {otherwise!r}"
        )
    return word == chosen


def _once(name: str, before: str, value: str) -> str:
    """Return the value of a term, which must not be empty nor given before."""
    if before:
        raise _given_twice(name, before, value)
    if not value.strip():
        raise ProtocolError(_REASON, f"property {name!r} is empty; leave it out or give it a value")
    return value


def _given_twice(name: str, first: str, second: str) -> ProtocolError:
    return ProtocolError(
        _REASON, f"property {name!r} is given twice, as {_shown(first)} and {_shown(second)}; give it once"
    )


def _duration(name: str, value: str) -> int:
    known_ns = _DURATIONS.get(value)
    if known_ns is not None:
        return known_ns
    duration_ns = _parse_duration(name, value)
    if len(value) <= _DURATION_CACHED_LENGTH_MAX:
        if len(_DURATIONS) >= _DURATIONS_MAX:
            _DURATIONS.clear()
        _DURATIONS[value] = duration_ns
    return duration_ns


def _parse_duration(name: str, value: str) -> int:
    try:
        duration_ns = parse_duration(value)
    except UnitError:
        duration_ns = 0
    if duration_ns == 0:
        raise ProtocolError(
            _REASON,
            f"property {name!r} is {_shown(value)}; it must be a duration above zero like 250ms, 1.5s or 2m, "
            "at most 100 years",
        )
    return duration_ns


def _priority(value: str) -> int:
    if len(value) == 1 and "0" <= value <= "9":
        return ord(value) - ord("0")
    raise ProtocolError(_REASON, f"property 'priority' is {_shown(value)}; it must be 0 to {PRIORITY_MAX}")


def _worth(name: str, value: str) -> float:
    try:
        number = parse_number(value)
    except UnitError:
        number = -1.0
    if not 0 <= number <= WORTH_MAX:
        raise ProtocolError(
            _REASON,
            f"property {name!r} is {_shown(value)}; "
            f"it must be a decimal number from 0 to {WORTH_MAX} like 2.5",
        )
    return number


def _shown(value: str) -> str:
    return repr(value) if len(value) <= _SHOWN_VALUE_MAX else f"{value[:_SHOWN_VALUE_MAX]!r}..."
