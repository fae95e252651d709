"""Content filters as a user writes them: what parses, what matches, and what errors say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.predicate import CONDITIONS_MAX, LENGTH_MAX, Attributes, parse
from timebound.errors import FilterError

MESSAGE = Attributes(
    (("site", "north"), ("floor", "7"), ("armed", "True"), ("tags", '["red", "hot"]'), ("site", "south")),
    b"""{"value": 91.5, "count": 3, "site": "west", "engine": {"temp": 95, "odd name": 1},
         "list": [10, 20], "ok": true, "seen": "2026-01-31T12:00:00Z", "none": null, "tags2": ["a", 1]}""",
    "plant/7/temp",
)


@pytest.mark.parametrize(
    "text",
    [
        "value > 90",
        "value >= 91.5 and value <= 91.5",
        "value BETWEEN 91 AND 92",
        "value not between 0 and 91",
        "value - 1.5 = 90",
        "-value < -91",
        "count / 2 = 1",
        "count / 2.0 = 1.5",
        "1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9 AND 8 - 4 - 2 = 2",
        "site = 'north'",
        "payload.site = 'west'",
        "site <> 'nowhere' AND NOT site = 'south'",
        "floor > 6.5 AND floor = 7.0 AND floor = '7'",
        "armed",
        "armed = TRUE AND NOT armed = FALSE",
        "engine.temp > 90",
        'payload.engine."odd name" = 1',
        "payload.list.1 = 20",
        "list SUBSET OF {10, 20, 30} AND list PROPER SUBSET OF {10, 20, 30}",
        "{} SUBSET OF list AND {10} SUBSET OF list AND list = {20, 10, 10}",
        "NOT list PROPER SUBSET OF {10, 20}",
        "tags CONTAINS 'red' AND tags NOT CONTAINS 're'",
        "tags2 CONTAINS 1 AND tags2 NOT CONTAINS TRUE",
        "site CONTAINS 'ort'",
        "seen > TIMESTAMP '2026-01-31T11:59:59.999Z' AND seen < DATE '2026-02-01'",
        "seen = TIMESTAMP '2026-01-31 13:00:00+01:00'",
        "none IS NULL AND missing IS NULL AND engine IS NOT NULL",
        "site IN ('south', 'north') AND count IN {1, 2, 3} AND count NOT IN (4, -5)",
        "site LIKE 'no%' AND site LIKE '_orth' AND site NOT LIKE 'no'",
        "site STARTS WITH 'no' AND site ENDS WITH 'th' AND site NOT STARTS WITH 'th'",
        "$topic STARTS WITH 'plant/' AND $topic LIKE 'plant/%/temp'",
        "missing = 1 OR ok",
        "ok = TRUE AND (FALSE OR TRUE)",
        "count = 3 OR count = 4 AND missing = 1",
    ],
)
def test_filters_that_match(text: str) -> None:
    assert parse(text).matches(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "site = 'south'",  # of two properties of one name the first counts
        "missing <> 1",
        "NOT missing = 1",
        "missing NOT IN (1, 2)",
        "missing NOT LIKE 'a%'",
        "value = '91.5'",  # a JSON number is no string
        "value <> '91.5'",
        "site > 3",
        "NOT site > 3",
        "ok = 1",
        "count IN ('a', 4)",
        "count NOT IN ('a', 4)",  # 3 = 'a' is UNKNOWN
        "count / 0 = 1",
        "NOT count / 0 = 1",
        "engine = 1",
        "engine <> 1",
        "value",
        "NOT value",
        "payload.list.2 = 1",
        "payload.list.x = 1",
        "Site = 'north'",  # names mind their case
        "payload = 3",
    ],
)
def test_filters_that_are_false_or_unknown_do_not_match(text: str) -> None:
    assert not parse(text).matches(MESSAGE)


def test_a_scalar_payload_is_tested_by_its_own_name() -> None:
    predicate = parse("payload > 90")

    assert predicate.matches(Attributes((), b"91.5"))
    assert not predicate.matches(Attributes((), b"89"))
    assert not predicate.matches(Attributes((), b"warm"))
    assert not predicate.matches(Attributes((("payload", "95"),), b""))
    assert parse('"payload" > 90').matches(Attributes((("payload", "95"),), b""))


def test_an_error_in_a_long_filter_shows_only_its_surroundings() -> None:
    with pytest.raises(FilterError) as caught:
        parse("a = 1 OR " * 100 + "? OR " + "a = 1 OR " * 100 + "a = 1")

    assert len(str(caught.value)) < 150


def test_a_filter_may_be_as_long_as_the_limit_and_no_longer() -> None:
    longest = "a = 1" + " OR b = 2" * ((LENGTH_MAX - 5) // 9)
    longest += " " * (LENGTH_MAX - len(longest))

    assert parse(longest).matches(Attributes((("b", "2"),), b""))
    with pytest.raises(FilterError, match="length_max=4096"):
        parse(longest + " ")


def test_a_shorter_limit_can_be_asked_for() -> None:
    with pytest.raises(FilterError, match=r"length_max=4"):
        parse("a = 1", length_max=4)


def test_equal_texts_are_read_once() -> None:
    where = "a = 1 AND value BETWEEN 17 AND 4711"

    assert parse(where) is parse(str(where.encode(), "ascii"))


def test_what_is_wrong_with_a_filter_is_told_each_time() -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(FilterError) as caught:
            parse("a = = 1")
        errors.append((str(caught.value), caught.value.position))

    assert errors[0] == errors[1]
    assert errors[0][1] == 4


def test_multiplying_out_is_bounded_in_conditions_too() -> None:
    ors = " AND ".join(f"(a{number} = 1 OR b{number} = 1)" for number in range(6))
    many = " AND ".join(f"c{number} = 1" for number in range(200))

    assert len(parse(ors).conjunctions) == 64
    assert sum(map(len, parse(f"{ors} AND {many}").conjunctions)) <= CONDITIONS_MAX


words = [
    "a",
    "payload.x",
    "'t'",
    "1",
    "2.5",
    "TRUE",
    "NULL",
    "(",
    ")",
    "{",
    "}",
    ",",
    "=",
    "<>",
    "<",
    "+",
    "-",
]
words += [
    "*",
    "/",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "IN",
    "LIKE",
    "ESCAPE",
    "IS",
    "STARTS",
    "ENDS",
    "WITH",
    "'",
]
words += [
    "CONTAINS",
    "PROPER",
    "SUBSET",
    "OF",
    "DATE",
    "TIMESTAMP",
    "'2026-01-31'",
    '"',
    ".",
    "$topic",
    "é",
    "\x00",
]


@given(
    st.one_of(
        st.text(),
        st.lists(st.sampled_from(words)).map(" ".join),
        st.lists(st.sampled_from(words)).map("".join),
    )
)
def test_any_text_parses_or_raises_an_error_inside_it(text: str) -> None:
    failed: FilterError | None = None
    try:
        predicate = parse(text)
    except FilterError as error:
        failed = error

    if failed is None:
        predicate.matches(MESSAGE)
        assert predicate.text == text
    else:
        assert 0 <= failed.position <= len(text)
        assert f"at character {failed.position + 1}: " in str(failed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DATE '2026-01-31' IN ('2026-01-31')", True),
        ("DATE '2026-01-31' IN ('2026-02-01', '2026-01-31')", True),
        ("DATE '2026-01-31' NOT IN ('2026-02-01')", True),
        ("DATE '2026-01-31' NOT IN ('no date')", False),  # unknown
    ],
)
def test_texts_listed_beside_a_date_are_read_as_dates(text: str, expected: bool) -> None:
    assert parse(text).matches(Attributes((), b"")) is expected
