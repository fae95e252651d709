"""Conditions and operands one by one: three truth values, opposites, and each test against its definition."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.attributes import BARE, NO_ATTRIBUTES, Attributes, Name
from timebound.core.predicate.search import SEARCHED_LENGTH_MAX, SHARED_LENGTH_MIN
from timebound.core.predicate.terms import (
    OPPOSITE,
    TRUTHS,
    Affix,
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Contains,
    InList,
    IsNull,
    Literal,
    Or,
    Subset,
    Truth,
    members_of,
    search_key,
)
from timebound.core.predicate.values import FALSE, OBJECT, TRUE, UNKNOWN, Moment, Property, read_set

numbers = st.sampled_from([-3, 0, 1, 1.0, 2.5, 2**53 + 1, float(2**53)])
texts = st.sampled_from(["", "a", "ab", "ba", "1", "2.5", "TRUE", "1970-01-01", '["a",1]'])
moments = st.sampled_from([Moment(0), Moment(86_400_000_000_000)])
sets = st.sampled_from([read_set([]), read_set(["a"]), read_set(["a", 1]), read_set([1, True])])
scalars = st.one_of(numbers, texts, moments, st.booleans())
values = st.one_of(scalars, sets, texts.map(Property), st.none(), st.just(OBJECT))
operands = values.map(Literal)
truths = st.sampled_from([TRUE, FALSE, UNKNOWN])
conditions = st.recursive(
    st.one_of(
        truths.map(Constant),
        st.builds(Comparison, st.sampled_from(sorted(TRUTHS)), operands, operands),
        st.builds(Truth, operands, st.booleans()),
        st.builds(IsNull, operands, st.booleans()),
        st.builds(InList, operands, st.lists(scalars, min_size=1, max_size=3).map(tuple), st.booleans()),
        st.builds(Affix, operands, texts, at_end=st.booleans(), is_negated=st.booleans()),
        st.builds(Contains, operands, st.one_of(numbers, texts, st.booleans()), st.booleans()),
        st.builds(Subset, operands, operands, is_proper=st.booleans(), is_negated=st.booleans()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=5,
)


def truth_of(condition: Condition) -> int:
    return condition.evaluate(NO_ATTRIBUTES)


def truth(found: bool) -> int:
    return TRUE if found else FALSE


@given(conditions)
def test_the_opposite_turns_true_and_false_round_and_leaves_unknown(condition: Condition) -> None:
    assert truth_of(condition.opposite()) == -truth_of(condition)
    assert truth_of(condition.opposite().opposite()) == truth_of(condition)


@given(st.lists(truths, min_size=1, max_size=4))
def test_and_is_the_least_of_its_parts_and_or_the_greatest(parts: list[int]) -> None:
    # FALSE < UNKNOWN < TRUE.
    constants = tuple(Constant(part) for part in parts)

    assert truth_of(And(constants)) == min(parts)
    assert truth_of(Or(constants)) == max(parts)


OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@given(st.sampled_from(sorted(OPERATORS)), st.one_of(st.tuples(numbers, numbers), st.tuples(texts, texts)))
def test_numbers_and_texts_compare_as_in_python(sign: str, sides: tuple[object, object]) -> None:
    left, right = sides

    found = truth_of(Comparison(sign, Literal(left), Literal(right)))

    assert found == truth(OPERATORS[sign](left, right))


@pytest.mark.parametrize(
    ("left", "sign", "right", "expected"),
    [
        (True, "=", True, TRUE),
        (True, "<>", True, FALSE),
        (True, "<", False, UNKNOWN),
        (1, "=", True, UNKNOWN),
        (1, "<>", "1", UNKNOWN),
        (Property("1"), "=", 1, TRUE),
        (Property("1"), "<", "2", TRUE),
        (Property("x"), "<>", 1, UNKNOWN),
        (read_set([1, 2]), "=", read_set([2, 1]), TRUE),
        (read_set([1, 2]), ">=", read_set([1]), UNKNOWN),
        ("1970-01-02", ">", Moment(0), TRUE),
        ("soon", ">", Moment(0), UNKNOWN),
        (None, "=", None, UNKNOWN),
        (OBJECT, "=", OBJECT, UNKNOWN),
    ],
)
def test_values_that_are_unlike_or_unordered(left: object, sign: str, right: object, expected: int) -> None:
    assert truth_of(Comparison(sign, Literal(left), Literal(right))) == expected


def test_opposite_signs_have_opposite_truths() -> None:
    for sign, row in TRUTHS.items():
        assert [-found for found in TRUTHS[OPPOSITE[sign]]] == list(row)


@given(values, st.lists(scalars, min_size=1, max_size=4), st.booleans())
def test_in_a_list_is_an_or_of_equalities(value: object, listed: list[object], is_negated: bool) -> None:
    equalities = Or(tuple(Comparison("=", Literal(value), Literal(one)) for one in listed))
    expected = truth_of(equalities)

    found = truth_of(InList(Literal(value), tuple(listed), is_negated))

    assert found == (-expected if is_negated else expected)


@given(texts, texts, st.booleans(), st.booleans())
def test_affixes_are_found_as_in_python(text: str, affix: str, at_end: bool, is_property: bool) -> None:
    operand = Literal(Property(text) if is_property else text)

    found = truth_of(Affix(operand, affix, at_end=at_end, is_negated=False))

    assert found == truth(text.endswith(affix) if at_end else text.startswith(affix))


@given(st.sets(st.one_of(numbers, texts)), st.sets(st.one_of(numbers, texts)), st.booleans())
def test_subsets_are_those_of_python(left: set[object], right: set[object], is_proper: bool) -> None:
    condition = Subset(
        Literal(frozenset(left)), Literal(frozenset(right)), is_proper=is_proper, is_negated=False
    )

    assert truth_of(condition) == truth(left < right if is_proper else left <= right)


@pytest.mark.parametrize(
    ("value", "needle", "expected"),
    [
        ("abc", "bc", TRUE),
        ("abc", "cb", FALSE),
        ("abc", 1, UNKNOWN),
        (read_set(["abc", 1]), "abc", TRUE),
        (read_set(["abc", 1]), "bc", FALSE),
        (read_set(["abc", 1]), 1.0, TRUE),
        (read_set([1]), True, FALSE),
        (Property('["abc"]'), "abc", TRUE),
        (Property('["abc"]'), "b", FALSE),  # a set, no longer a text
        (Property("[abc"), "b", TRUE),
        (7, "7", UNKNOWN),
        (None, "", UNKNOWN),
    ],
)
def test_contains_looks_for_a_member_or_a_part(value: object, needle: object, expected: int) -> None:
    assert truth_of(Contains(Literal(value), needle, False)) == expected
    assert truth_of(Contains(Literal(value), needle, True)) == -expected


def test_a_search_of_a_long_text_is_noted_for_the_filters_after_it() -> None:
    name = Attribute(Name(BARE, ("a",), "a"))
    long = Attributes((("a", "x" * SHARED_LENGTH_MIN),), b"")
    short = Attributes((("a", "x" * (SHARED_LENGTH_MIN - 1)),), b"")
    condition = Contains(name, "xx", False)

    assert [condition.evaluate(message) for message in (long, short)] == [TRUE, TRUE]
    assert long.searches == {search_key(name, "CONTAINS", "xx"): True}
    assert short.searches == {}
    long.searches[condition.search_key] = False
    assert condition.evaluate(long) == FALSE


def test_a_text_that_is_too_long_is_not_searched() -> None:
    text = "x" * SEARCHED_LENGTH_MAX

    assert truth_of(Contains(Literal(text), "xx", False)) == TRUE
    assert truth_of(Contains(Literal(text + "x"), "xx", False)) == UNKNOWN


def test_equal_searches_have_equal_keys_and_others_do_not() -> None:
    a, b = Attribute(Name(BARE, ("a",), "a")), Attribute(Name(BARE, ("b",), "b"))
    keys = [search_key(*found) for found in ((a, "LIKE", "x"), (a, "CONTAINS", "x"), (b, "LIKE", "x"))]

    assert len({*keys, search_key(Literal("a"), "LIKE", "x")}) == 4
    assert search_key(Attribute(Name(BARE, ("a",), "a")), "LIKE", "x") == keys[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, TRUE), (False, FALSE), (Property("True"), TRUE), (Property("1"), UNKNOWN), (1, UNKNOWN)],
)
def test_a_value_is_true_only_if_it_is_a_boolean(value: object, expected: int) -> None:
    assert truth_of(Truth(Literal(value))) == expected


@pytest.mark.parametrize(("value", "expected"), [(None, TRUE), (0, FALSE), ("", FALSE), (OBJECT, FALSE)])
def test_null_is_what_is_not_there(value: object, expected: int) -> None:
    assert truth_of(IsNull(Literal(value), False)) == expected


@pytest.mark.parametrize(
    ("left", "sign", "right", "result"),
    [
        (7, "-", 2, 5),
        (Property("7"), "*", 2, 14),
        (7, "/", 2, 3),
        (7.0, "/", 2, 3.5),
        (7, "/", 0, None),
        (True, "+", 1, None),
        ("7", "+", 1, None),
        (None, "+", 1, None),
    ],
)
def test_arithmetic_is_for_numbers_alone(left: object, sign: str, right: object, result: object) -> None:
    assert Arithmetic(sign, Literal(left), Literal(right)).value(NO_ATTRIBUTES) == result


def test_an_attribute_is_looked_up_in_the_message() -> None:
    attribute = Attribute(Name(BARE, ("a", "b"), "a.b"))

    assert attribute.value(Attributes((), b'{"a": {"b": 5}}')) == 5
    assert attribute.value(NO_ATTRIBUTES) is None


def test_members_are_those_of_sets_and_of_properties_that_write_one() -> None:
    assert members_of(read_set(["a"])) == {"a"}
    assert members_of(Property('["a"]')) == {"a"}
    assert members_of(Property("a")) is None
    assert members_of("a") is None
