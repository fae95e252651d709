"""How conditions are looked up: by which test of which attribute, and whether that is all."""

from __future__ import annotations

import pytest

from timebound.core.predicate.index.lookup import (
    CONTAINS,
    EQUAL,
    INTERVAL,
    MEMBER,
    PREFIX,
    PRESENT,
    SUFFIX,
    THRESHOLD,
    Access,
    access_of,
    bound_of,
    interval_of,
    member_key,
)
from timebound.core.predicate.parser import Parser
from timebound.core.predicate.terms import Condition
from timebound.core.predicate.values import Moment, member


def condition_of(text: str) -> Condition:
    return Parser(text).parse_condition()


def access_to(text: str) -> Access:
    access = access_of(condition_of(text))
    assert access is not None
    return access


@pytest.mark.parametrize(
    ("text", "kind", "values", "operator"),
    [
        ("a = 1", EQUAL, (1,), "="),
        ("1 = a", EQUAL, (1,), "="),
        ("a", EQUAL, (True,), ""),
        ("NOT a", EQUAL, (False,), ""),
        ("a IN (1, 'x')", EQUAL, (1, "x"), ""),
        ("a LIKE 'xy'", EQUAL, ("xy",), ""),
        ("a < 1", THRESHOLD, (1,), "<"),
        ("1 < a", THRESHOLD, (1,), ">"),
        ("1 <= a", THRESHOLD, (1,), ">="),
        ("NOT a > 'x'", THRESHOLD, ("x",), "<="),
        ("a LIKE 'xy%'", PREFIX, ("xy",), ""),
        ("a STARTS WITH 'xy'", PREFIX, ("xy",), ""),
        ("a ENDS WITH 'xy'", SUFFIX, ("xy",), ""),
        ("a IS NOT NULL", PRESENT, (), ""),
    ],
)
def test_what_is_found_need_not_be_evaluated(
    text: str, kind: int, values: tuple[object, ...], operator: str
) -> None:
    access = access_to(text)

    assert (access.kind, access.values, access.operator) == (kind, values, operator)
    assert access.name.key == '."a"'
    assert access.is_exact


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("a LIKE 'x%y'", PREFIX, ("x",)),
        ("a LIKE 'x_'", PREFIX, ("x",)),
        ("a LIKE '%xy'", SUFFIX, ("xy",)),
        ("a CONTAINS 'x'", CONTAINS, ("x",)),
        ("a CONTAINS TRUE", CONTAINS, (True,)),
        ("{1, 2} SUBSET OF a", MEMBER, (1,)),
        ("a <> 1", PRESENT, ()),
        ("a = {1}", PRESENT, ()),
        ("a LIKE '%x%'", PRESENT, ()),
        ("a NOT LIKE 'x'", PRESENT, ()),
        ("a NOT STARTS WITH 'x'", PRESENT, ()),
        ("a NOT IN (1)", PRESENT, ()),
        ("a NOT CONTAINS 'x'", PRESENT, ()),
        ("a SUBSET OF {1}", PRESENT, ()),
        ("{} SUBSET OF a", PRESENT, ()),
        ("{1} NOT SUBSET OF a", PRESENT, ()),
        ("a = b", PRESENT, ()),
        ("1 + a > 2", PRESENT, ()),
        ("a + 1 IS NOT NULL", PRESENT, ()),
    ],
)
def test_what_is_found_has_still_to_be_evaluated(text: str, kind: int, values: tuple[object, ...]) -> None:
    access = access_to(text)

    assert (access.kind, access.values) == (kind, values)
    assert access.name.key == '."a"'
    assert not access.is_exact


@pytest.mark.parametrize(
    "text", ["a IS NULL", "a = 1 OR b = 1", "a = 1 AND b = 1", "TRUE", "1 = 1", "1 IN (1)"]
)
def test_some_conditions_cannot_be_looked_up(text: str) -> None:
    assert access_of(condition_of(text)) is None


def test_an_access_knows_its_condition() -> None:
    condition = condition_of("a = 1")

    access = access_of(condition)

    assert access is not None
    assert access.condition is condition


def intervals(*texts: str) -> list[tuple[int, str, tuple[object, ...], bool]]:
    found = interval_of([access_to(text) for text in texts])
    return [(access.kind, access.name.key, access.values, access.is_exact) for access in found]


def test_bounds_on_both_sides_are_an_interval() -> None:
    assert intervals("a < 9", "a >= 1") == [(INTERVAL, '."a"', (1, 9), False)]
    assert intervals("b > 3", "a > 1", "b < 4", "a < 2") == [
        (INTERVAL, '."b"', (3, 4), False),
        (INTERVAL, '."a"', (1, 2), False),
    ]


def test_of_several_bounds_on_a_side_the_first_is_taken() -> None:
    assert intervals("a > 1", "a > 5", "a < 9", "a < 7") == [(INTERVAL, '."a"', (1, 9), False)]


@pytest.mark.parametrize(
    "texts",
    [
        ("a > 1",),
        ("a > 1", "b < 2"),
        ("a > 1", "a = 2"),
        ("a > 'x'", "a < 'y'"),
        ("a > 1", "a < DATE '2026-01-31'"),
        ("a > 1", "payload.a < 2"),
    ],
)
def test_other_bounds_are_no_interval(texts: tuple[str, ...]) -> None:
    assert intervals(*texts) == []


def test_bounds_are_numbers_and_moments_as_numbers() -> None:
    assert [bound_of(value) for value in (3, 2.5, Moment(7))] == [3, 2.5, 7]
    assert [bound_of(value) for value in (True, "3", None, frozenset())] == [None] * 4


def test_a_member_is_looked_up_as_it_stands_in_a_set() -> None:
    assert member_key(access_to("a CONTAINS TRUE")) == member(True)
    assert member_key(access_to("{TRUE} SUBSET OF a")) == member(True)
    assert member_key(access_to("a CONTAINS 'x'")) == "x"
