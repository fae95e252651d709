"""Errors carry their values, and the list at the top of their module is complete."""

from __future__ import annotations

import re

import pytest

from timebound import errors
from timebound.errors import (
    ClientError,
    ConfigError,
    FilterError,
    JournalGap,
    MalformedPacket,
    NotConnected,
    ProtocolError,
    TimeboundError,
    UnitError,
)


def shown_tree() -> dict[str, str]:
    """Return each class that the module's docstring shows, with the one it stands under."""
    assert errors.__doc__ is not None
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            parents[found[2]] = above[depth - 1] if depth else "Exception"
            above[depth:] = [found[2]]
    return parents


def test_every_error_is_shown_under_its_base() -> None:
    classes = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}

    assert shown_tree() == {name: kind.__bases__[0].__name__ for name, kind in classes.items()}


def test_every_error_of_the_package_is_caught_by_its_base() -> None:
    assert all(issubclass(getattr(errors, name), TimeboundError) for name in shown_tree())


def test_message_of_a_protocol_error_is_cut_because_a_peer_may_fill_it() -> None:
    limit = ProtocolError.MESSAGE_LENGTH_MAX

    assert str(ProtocolError(0x82, "x" * limit)) == "x" * limit
    assert str(ProtocolError(0x82, "x" * (limit + 1))) == "x" * limit + "…"


def test_malformed_packet_is_answered_as_such_unless_told_otherwise() -> None:
    assert MalformedPacket("cut short").reason_code == 0x81
    assert MalformedPacket("too large", 0x95).reason_code == 0x95


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError("is wrong"), "is wrong"),
        (ConfigError("is wrong", key="a.b"), "a.b: is wrong"),
        (ConfigError("is wrong", path="t.toml"), "t.toml: is wrong"),
        (ConfigError("is wrong", path="t.toml", line=3, key="a.b"), "t.toml:3: a.b: is wrong"),
    ],
)
def test_config_error_begins_with_what_is_known_of_its_place(error: ConfigError, text: str) -> None:
    assert str(error) == text


def test_errors_carry_their_values() -> None:
    assert FilterError("is wrong", position=7).position == 7
    assert NotConnected("gone", reason_code=0x8B).reason_code == 0x8B
    assert ClientError("gone").reason_code == 0
    gap = JournalGap("rows were removed", offset=5, count=2)
    assert (gap.offset, gap.count) == (5, 2)


def test_unreadable_unit_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="not a duration"):
        raise UnitError("'x' is not a duration")
