"""What a consumer waits for, as it is written, and what that means for one event."""

from __future__ import annotations

import pytest

from timebound.channel.base.dependency import (
    ANYTHING,
    NOTHING,
    Key,
    all_of,
    any_of,
    event,
    every,
    fits,
    key_of,
    nanoseconds,
    source,
    watchdog,
)
from timebound.core.correlation.expression import AllOf, AnyOf, Correlator, Dependency, Every, Leaf, Watchdog
from timebound.units import MILLISECOND


@pytest.mark.parametrize(
    ("dependency", "keys"),
    [
        (event("a"), [("a", "")]),
        (event("a", source="s"), [("a", "s")]),
        (event(), [ANYTHING]),
        (source("s"), [("", "s")]),
        (any_of("a", source("s")), [("a", ""), ("", "s")]),
        (all_of("a", any_of("b", "c")), [("a", ""), ("b", ""), ("c", "")]),
        (watchdog("a", "1ms"), [("a", "")]),
        (every("1ms"), []),
    ],
)
def test_leaves_stand_for_types_and_sources(dependency: Dependency, keys: list[Key]) -> None:
    assert [key_of(leaf) for leaf in Correlator(dependency).leaves] == keys


def test_durations_are_text_or_nanoseconds() -> None:
    window, period, timeout = all_of("a", "b", within="50ms"), every(7), watchdog("a", "2ms")

    assert isinstance(window, AllOf)
    assert window.within_ns == 50 * MILLISECOND
    assert isinstance(period, Every)
    assert period.period_ns == 7
    assert isinstance(timeout, Watchdog)
    assert timeout.timeout_ns == 2 * MILLISECOND
    assert nanoseconds("1s") == nanoseconds(10**9)


def test_parts_keep_their_order() -> None:
    together = any_of("b", "a")

    assert isinstance(together, AnyOf)
    assert [part.key for part in together.parts if isinstance(part, Leaf)] == [("b", ""), ("a", "")]


@pytest.mark.parametrize("key", ["a", ("a",), ("a", 1), (1, "a"), ("a", "b", "c"), None])
def test_leaf_made_by_hand_must_be_a_pair(key: object) -> None:
    with pytest.raises(TypeError, match="is not a \\(type, source\\) pair"):
        key_of(Leaf(key))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (ANYTHING, True),
        (("a", ""), True),
        (("", "s"), True),
        (("a", "s"), True),
        (("b", ""), False),
        (("", "t"), False),
        (("a", "t"), False),
        (NOTHING, False),
    ],
)
def test_key_fits_by_type_source_or_both(key: Key, expected: bool) -> None:
    assert fits(key, "a", "s") is expected
