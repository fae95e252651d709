"""Content filters from text to trees: precedence, what the words make, limits, and what errors say."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.attributes import Attributes
from timebound.core.predicate.like import Like
from timebound.core.predicate.parser import DEPTH_MAX, OPERATORS_MAX, Parser
from timebound.core.predicate.terms import (
    Affix,
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Contains,
    FilterNode,
    InList,
    IsNull,
    Literal,
    Or,
    Subset,
    Truth,
)
from timebound.core.predicate.values import FALSE, TRUE, UNKNOWN
from timebound.errors import FilterError


def read(text: str) -> Condition:
    return Parser(text).parse_condition()


def shown(node: FilterNode) -> str:
    """The tree in writing, with every bracket."""
    if isinstance(node, Literal):
        members = node.constant
        return repr(sorted(members, key=repr) if isinstance(members, frozenset) else members)
    if isinstance(node, Attribute):
        return node.name.key
    if isinstance(node, (Arithmetic, Comparison)):
        return f"({shown(node.left)} {node.operator} {shown(node.right)})"
    if isinstance(node, (And, Or)):
        return f"{type(node).__name__}({', '.join(shown(part) for part in node.parts)})"
    if isinstance(node, Constant):
        return {TRUE: "TRUE", FALSE: "FALSE"}[node.truth]
    assert isinstance(node, (Truth, IsNull, InList, Affix, Contains, Subset, Like))
    parts = [shown(node.left), shown(node.right)] if isinstance(node, Subset) else [shown(node.operand)]
    if isinstance(node, InList):
        parts += [repr(value) for value in node.values]
    elif isinstance(node, Affix):
        parts += [repr(node.affix), "end" if node.at_end else "start"]
    elif isinstance(node, Contains):
        parts.append(repr(node.needle))
    elif isinstance(node, Like):
        parts.append(node.pattern.key())
    elif isinstance(node, Subset) and node.is_proper:
        parts.append("proper")
    return f"{'Not' if node.is_negated else ''}{type(node).__name__}({', '.join(parts)})"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1 OR b = 2 AND c = 3", 'Or((."a" = 1), And((."b" = 2), (."c" = 3)))'),
        ("(a = 1 OR b = 2) AND c = 3", 'And(Or((."a" = 1), (."b" = 2)), (."c" = 3))'),
        ("a - b - c * d > 0", '(((."a" - ."b") - (."c" * ."d")) > 0)'),
        ("-(a + 1) / 2 < 3", '(((0 - (."a" + 1)) / 2) < 3)'),
        ("- - 3 = +a", '(3 = (0 + ."a"))'),
        ("NOT a = 1", '(."a" <> 1)'),
        ("NOT NOT a", 'Truth(."a")'),
        ("NOT (a OR b > 1)", 'And(NotTruth(."a"), (."b" <= 1))'),
        ("a BETWEEN 1 AND 2 AND b", 'And(And((."a" >= 1), (."a" <= 2)), Truth(."b"))'),
        ("a NOT BETWEEN 1 AND 2", 'Or((."a" < 1), (."a" > 2))'),
        ("a IN (1, 'x', TRUE, -2.5)", "InList(.\"a\", 1, 'x', True, -2.5)"),
        ("a NOT IN {1}", 'NotInList(."a", 1)'),
        ("a IS NULL OR a IS NOT NULL", 'Or(IsNull(."a"), NotIsNull(."a"))'),
        ("a STARTS WITH 'x'", "Affix(.\"a\", 'x', start)"),
        ("a NOT ENDS WITH 'x'", "NotAffix(.\"a\", 'x', end)"),
        ("a CONTAINS 'x' AND a NOT CONTAINS 1", 'And(Contains(."a", \'x\'), NotContains(."a", 1))'),
        ("a SUBSET OF {2, 1, 2}", 'Subset(."a", [1, 2])'),
        ("{} NOT PROPER SUBSET OF a", 'NotSubset([], ."a", proper)'),
        ("payload.x = payload OR $topic = 'a'", "Or((payload.\"x\" = payload), ($topic = 'a'))"),
        ('"payload".x = "$y"', '(."payload"."x" = ."$y")'),
        ("TRUE AND (FALSE)", "And(TRUE, FALSE)"),
        ("a > DATE '1970-01-02'", '(."a" > Moment(86400000000000))'),
        ("a > TIMESTAMP '1970-01-01T00:00:01Z'", '(."a" > Moment(1000000000))'),
    ],
)
def test_a_text_makes_its_tree(text: str, tree: str) -> None:
    assert shown(read(text)) == tree


numbers = st.integers(0, 20).map(str)
calculations = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", " - ", " * "]), inner).map("".join),
        inner.map("({})".format),
        inner.map("- {}".format),
    ),
    max_leaves=6,
)


@given(calculations)
def test_numbers_are_calculated_as_python_calculates_them(text: str) -> None:
    condition = read(f"{text} = a")

    assert isinstance(condition, Comparison)
    assert isinstance(condition.left, Literal)
    assert condition.left.constant == eval(text)  # written above


propositions = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map("".join),
        inner.map("({})".format),
        inner.map("NOT {}".format),
    ),
    max_leaves=6,
)


@given(propositions)
def test_conditions_are_joined_as_python_joins_them(text: str) -> None:
    condition = read(text)

    for values in itertools.product([True, False], repeat=3):
        truths = dict(zip("abc", values, strict=True))
        message = Attributes((), json.dumps(truths).encode())
        expected = eval(text.lower(), {}, truths)  # written above
        assert condition.evaluate(message) == (TRUE if expected else FALSE)
        assert condition.evaluate(Attributes((), b"")) == UNKNOWN


def test_a_written_number_keeps_all_its_digits() -> None:
    condition = read("a = -123456789012345678901234567890")

    assert isinstance(condition, Comparison)
    assert isinstance(condition.right, Literal)
    assert condition.right.constant == -123456789012345678901234567890


def test_added_words_stay_free_as_names() -> None:
    message = Attributes((), b'{"date": 1, "timestamp": 2, "starts": "x", "of": true, "subset": [1]}')

    assert read("date = 1 AND timestamp = 2 AND of").evaluate(message) == TRUE
    assert read("starts STARTS WITH 'x' AND subset SUBSET OF {1}").evaluate(message) == TRUE


def test_reserved_words_are_names_in_double_quotes_and_after_a_dot() -> None:
    message = Attributes((), b'{"in": 1, "a": {"and": 2}}')

    assert read('"in" = 1 AND a.and = 2 AND payload.in = 1').evaluate(message) == TRUE


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
        Parser(text).parse_condition()

    assert message in str(caught.value)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1), "depth_max=32"),
        ("NOT " * (DEPTH_MAX + 1) + "a", "depth_max=32"),
        ("-" * (DEPTH_MAX + 1) + "a = 1", "depth_max=32"),
        ("a" + " + 1" * (OPERATORS_MAX + 1) + " = 1", "operators_max=64"),
    ],
)
def test_filters_beyond_a_limit_are_refused(text: str, limit: str) -> None:
    with pytest.raises(FilterError, match=limit):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX,
        "NOT " * DEPTH_MAX + "a = 1",
        "-" * DEPTH_MAX + "a = 1",
        "a" + " + 1" * OPERATORS_MAX + " = 65",
        "1" + " + 1" * 1_000 + " = 1001 * a",  # two numbers are calculated at once
    ],
)
def test_filters_at_their_limits_are_accepted(text: str) -> None:
    assert read(text).evaluate(Attributes((("a", "1"),), b"")) == TRUE
