"""Content filters as a user writes them: what parses, what matches, and what errors say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.parser import DEPTH_MAX, OPERATORS_MAX
from timebound.core.predicate.predicate import LENGTH_MAX, Attributes, parse
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


def test_added_words_stay_free_as_names() -> None:
    message = Attributes((), b'{"date": 1, "timestamp": 2, "starts": "x", "of": true, "subset": [1]}')

    assert parse("date = 1 AND timestamp = 2 AND of").matches(message)
    assert parse("starts STARTS WITH 'x' AND subset SUBSET OF {1}").matches(message)


def test_reserved_words_are_names_in_double_quotes_and_after_a_dot() -> None:
    message = Attributes((), b'{"in": 1, "a": {"and": 2}}')

    assert parse('"in" = 1 AND a.and = 2 AND payload.in = 1').matches(message)


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("value > > 3", "expected a value at character 9: 'value > > 3'", 8),
        ("value >", "expected a value at character 8: 'value >'", 7),
        ("", "expected a value at character 1: ''", 0),
        ("(a = 1", "expected ) at character 7: '(a = 1'", 6),
        ("a = 1)", "expected AND, OR or the end of the filter at character 6: 'a = 1)'", 5),
        ("a b", "expected a comparison, AND, OR or the end of the filter at character 3: 'a b'", 2),
        ("a = NULL", "expected a value; write IS NULL to test for NULL at character 5: 'a = NULL'", 4),
        ("a IS 3", "expected NULL at character 6: 'a IS 3'", 5),
        ("a != 3", "expected <> instead of != at character 3: 'a != 3'", 2),
        ("a LIKE 3", "expected a string in single quotes at character 8: 'a LIKE 3'", 7),
        ("a = 'b", "string has no closing '; it starts at character 5: \"a = 'b\"", 4),
        ('"a = 1', "name has no closing \"; it starts at character 1: '\"a = 1'", 0),
        ("a IN ()", "expected a value at character 7: 'a IN ()'", 6),
        ("a IN (b)", "expected a string, number, boolean or date-time at character 7: 'a IN (b)'", 6),
        ("a. = 1", "expected a name after the dot at character 3: 'a. = 1'", 2),
        ("a = 1x", "expected a number like 3, 2.5 or 1e3 at character 5: 'a = 1x'", 4),
        ("a = 1e999", "expected a number like 3, 2.5 or 1e3 at character 5: 'a = 1e999'", 4),
        ("a = #", "unexpected '#' at character 5: 'a = #'", 4),
        ("a + 1", "expected a condition, found only a value at character 1: 'a + 1'", 0),
        ("(a = 1) + 1 = 2", "expected a value, found a condition at character 1: '(a = 1) + 1 = 2'", 0),
        ("a = 1 / 0", "calculation has no result at character 7: 'a = 1 / 0'", 6),
        ("a + 'b' = 1", "expected numbers on both sides of + at character 3: \"a + 'b' = 1\"", 2),
        ("a = DATE 'x'", "expected a date like '2026-01-31' at character 10: \"a = DATE 'x'\"", 9),
        ("$x = 1", "only $topic begins with $, unless in double quotes at character 1: '$x = 1'", 0),
        ("a < TRUE", "booleans and sets have no order, only = and <>; found < at character 3", 2),
        ("a LIKE 'b' ESCAPE 'cd'", "expected one character to escape with at character 19", 18),
        ("a LIKE 'b!c' ESCAPE '!'", "pattern has '!' before something else than %, _ or '!'", 7),
        ("a CONTAINS DATE '2026-01-31'", "a set holds strings, numbers or booleans", 11),
        ("a NOT = 1", "expected BETWEEN, IN, LIKE, STARTS, ENDS, CONTAINS or SUBSET after NOT", 6),
    ],
)
def test_errors_point_at_the_character(text: str, message: str, position: int) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)

    assert message in str(caught.value)
    assert caught.value.position == position


def test_an_error_in_a_long_filter_shows_only_its_surroundings() -> None:
    with pytest.raises(FilterError) as caught:
        parse("a = 1 OR " * 100 + "? OR " + "a = 1 OR " * 100 + "a = 1")

    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR " * LENGTH_MAX,
        "(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1),
        "NOT " * (DEPTH_MAX + 1) + "a",
        "-" * (DEPTH_MAX + 1) + "a = 1",
        "a" + " + 1" * (OPERATORS_MAX + 1) + " = 1",
    ],
)
def test_filters_beyond_a_limit_are_refused(text: str) -> None:
    with pytest.raises(FilterError, match="_max="):
        parse(text)


def test_filters_at_their_limits_are_accepted() -> None:
    nested = "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX
    long = "a = 1" + " OR b = 2" * ((LENGTH_MAX - 5) // 9)

    assert parse(nested).matches(Attributes((("a", "1"),), b""))
    assert parse(long).matches(Attributes((("b", "2"),), b""))
    assert parse("a" + " + 1" * OPERATORS_MAX + " = 65").matches(Attributes((("a", "1"),), b""))


def test_a_shorter_limit_can_be_asked_for() -> None:
    with pytest.raises(FilterError, match=r"length_max=4"):
        parse("a = 1", length_max=4)


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
