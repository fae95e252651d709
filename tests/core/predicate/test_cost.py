"""What a content filter costs, and that no filter takes far longer than that."""

from __future__ import annotations

import statistics
import time

import pytest

from timebound.core.predicate.attributes import BARE, Name
from timebound.core.predicate.cost import MOMENT_COST, SEARCH_COST, SETS_COST, TEXTS_COST, Cost
from timebound.core.predicate.predicate import Attributes, parse
from timebound.core.predicate.terms import Attribute, Comparison, Contains, InList, Literal, Or
from timebound.core.predicate.values import Moment


@pytest.mark.parametrize(
    ("where", "each", "shared"),
    [
        ("a = 1", 1, 0),
        ("a = 1 AND b > 2 OR c IN ('x', 'y', 'z')", 3, 0),
        ("(a = 1 OR b = 1) AND (c = 1 OR d = 1) AND e = 1", 12, 0),  # four conjunctions of three
        ("a LIKE 'x%y'", 1, 0),  # a beginning and an end, nothing to search
        ("a LIKE '%x%'", 1, 32),
        ("a LIKE '%x%' OR NOT a LIKE '%x%'", 2, 32),  # one search
        ("a LIKE '%x%' OR b LIKE '%x%'", 2, 64),
        ("a LIKE '%x%y%z%'", 1, 32),  # each looks where the one before has found
        ("a LIKE '%aaaa%'", 1, 128),
        ("a CONTAINS 'aaaa'", 1, 128),
        ("a LIKE '%a_a%'", 1, 32 * 14),
        ("tags CONTAINS 1", 1, 0),
        ("a = b", 513, 0),
        ("a < b", 65, 0),
        ("a SUBSET OF b", 513, 0),
        ("a SUBSET OF {1, 2}", 3, 0),
        ("a > DATE '2024-01-01'", 9, 0),
        ("a * 2 + b > 3", 3, 0),
    ],
)
def test_cost_of_a_filter(where: str, each: int, shared: int) -> None:
    cost = parse(where).cost

    assert (cost.each, cost.shared) == (each, shared)


A, B = Attribute(Name(BARE, ("a",), "a")), Attribute(Name(BARE, ("b",), "b"))


def test_attributes_are_compared_as_sets_only_where_sets_can_be() -> None:
    assert Cost([(Comparison("<>", A, B),)]).each == 1 + SETS_COST
    assert Cost([(Comparison(">=", A, B),)]).each == 1 + TEXTS_COST


def test_every_condition_of_every_conjunction_counts() -> None:
    plain = Comparison("=", A, Literal(1))
    cost = Cost([(plain, plain), (Or((plain, plain)),), ()])

    assert (cost.each, cost.shared) == (4, 0)


def test_dates_that_have_to_be_read_count() -> None:
    listed = InList(A, (Moment(1), Moment(2), "x"), False)
    reversed_ = InList(Literal(Moment(1)), ("x", "y", "z"), False)

    assert Cost([(listed,)]).each == 1 + 2 * MOMENT_COST
    assert Cost([(reversed_,)]).each == 1 + 3 * MOMENT_COST


def test_one_search_is_shared_by_all_conjunctions_and_by_its_opposite() -> None:
    sought = Contains(A, "xyz", False)

    cost = Cost([(sought, Contains(B, "xyz", False)), (sought.opposite(),)])

    assert (cost.each, cost.shared) == (3, 2 * SEARCH_COST)


def seconds(where: str, payload: bytes) -> float:
    """Processor time of one match for each plain test that the filter counts."""
    predicate = parse(where)
    attributes = Attributes((), payload)
    attributes.json()
    began = time.thread_time()
    predicate.matches(attributes)
    return (time.thread_time() - began) / (predicate.cost.each + predicate.cost.shared)


def test_no_filter_takes_much_longer_than_it_counts() -> None:
    # In units of a plain test. Both are measured in turn, so that whatever slows the machine slows both.
    plain, small = " OR ".join(f"a = {number}" for number in range(300)), b'{"a": -1}'
    text = b'{"a": "%s", "b": "x"}' % (b"a" * 8_192)

    for where in (
        " OR ".join(f"a LIKE '%x{number}%'" for number in range(50)),
        " OR ".join(f"a LIKE '%{'a' * (20 + number)}b%'" for number in range(30)),
        " OR ".join(f"a LIKE '%{'a_' * number}b%'" for number in range(1, 30)),
        " OR ".join(f"a CONTAINS '{'a' * (20 + number)}b{'a' * 30}'" for number in range(30)),
    ):
        ratios = [seconds(where, text) / seconds(plain, small) for _ in range(7)]
        assert statistics.median(ratios) < 10, (where, ratios)
