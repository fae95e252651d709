"""The tables of one attribute find every condition that is TRUE, and those of exact accesses alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.predicate.attributes import BARE, Attributes, Name
from timebound.core.predicate.cost import Cost
from timebound.core.predicate.index.attribute import AttributeTables
from timebound.core.predicate.index.lookup import Access, access_of, bound_of, interval_of
from timebound.core.predicate.index.tables import Filing, IndexedKey, IntervalFiling
from timebound.core.predicate.parser import Parser
from timebound.core.predicate.terms import And, Condition
from timebound.core.predicate.values import TRUE, Property

from .random_filters import (
    MESSAGES,
    joined,
    members,
    moments,
    numbers,
    ordered,
    patterns,
    scalars,
    sets,
    texts,
)

comparisons = st.sampled_from(["<", "<=", ">", ">="])
tests = st.one_of(
    joined("a", st.sampled_from(["=", "<>"]), scalars),
    joined("a", comparisons, ordered),
    joined("a IN (", scalars, ",", scalars, ")"),
    joined("a LIKE", patterns),
    joined("a STARTS WITH", texts),
    joined("a ENDS WITH", texts),
    joined("a CONTAINS", members),
    joined(sets, "SUBSET OF a"),
    joined("a IS NOT NULL"),
    st.sampled_from(["a", "NOT a"]),
)
A = Name(BARE, ("a",), "a")


def file(tables: AttributeTables, access: Access, number: int) -> int:
    """File an access wherever it belongs; in how many places."""
    places = tables.places(access)
    entry = IndexedKey(number, number, Cost([]))
    for table, key in places:
        low, high = bound_of(access.values[0]) if access.values else None, None
        if len(access.values) == 2 and access.condition is None:
            high = bound_of(access.values[1])
        if low is not None and high is not None:
            table.insert(IntervalFiling(entry, None, table, key, low=float(low), high=float(high)))
        else:
            table.insert(Filing(entry, None, table, key))
    tables.filings += len(places)
    return len(places)


def found_for(tables: AttributeTables, value: object) -> set[int]:
    found: list[Filing] = []
    tables.collect(value, found)
    return {filing.entry.sequence for filing in found}


@settings(max_examples=60)
@given(st.lists(tests, max_size=8))
def test_a_value_finds_all_that_is_true_and_of_exact_accesses_nothing_else(filter_texts: list[str]) -> None:
    tables = AttributeTables(A)
    filed: dict[int, tuple[Condition, Access]] = {}
    for number, text in enumerate(filter_texts):
        condition = Parser(text).parse_condition()
        access = access_of(condition)
        if access is not None:
            assert file(tables, access, number) >= 1
            filed[number] = (condition, access)
    tables._check()

    for message in MESSAGES:
        attributes = Attributes(*message)
        value = attributes.value(A)
        if value is None:
            continue
        found = found_for(tables, value)
        true = {number for number, (condition, _) in filed.items() if condition.evaluate(attributes) == TRUE}
        assert true <= found, filter_texts
        assert all(number in true for number in found if filed[number][1].is_exact), filter_texts


@settings(max_examples=60)
@given(st.lists(st.one_of(st.tuples(numbers, numbers), st.tuples(moments, moments)), max_size=6))
def test_a_value_finds_the_intervals_it_lies_in(bounds: list[tuple[str, str]]) -> None:
    tables = AttributeTables(A)
    filed: dict[int, Condition] = {}
    for number, (low, high) in enumerate(bounds):
        condition = Parser(f"a > {low} AND a < {high}").parse_condition()
        assert isinstance(condition, And)
        accesses = [access for part in condition.parts if (access := access_of(part)) is not None]
        [interval] = interval_of(accesses)
        if file(tables, interval, number):
            filed[number] = condition
    tables._check()

    for message in MESSAGES:
        attributes = Attributes(*message)
        value = attributes.value(A)
        if value is not None:
            true = {number for number, one in filed.items() if one.evaluate(attributes) == TRUE}
            assert true <= found_for(tables, value)


def tables_with(*filter_texts: str) -> AttributeTables:
    tables = AttributeTables(A)
    for number, text in enumerate(filter_texts):
        access = access_of(Parser(text).parse_condition())
        assert access is not None
        file(tables, access, number)
    tables._check()
    return tables


def test_each_type_has_its_own_values() -> None:
    tables = tables_with(
        "a = 1", "a = '1'", "a = TRUE", "a = DATE '1970-01-01'", "a CONTAINS 1", "a IS NOT NULL"
    )

    assert found_for(tables, 1) == {0, 5}
    assert found_for(tables, 1.0) == {0, 5}
    assert found_for(tables, "1") == {1, 5}
    assert found_for(tables, True) == {2, 5}
    assert found_for(tables, "1970-01-01") == {3, 5}
    assert found_for(tables, frozenset({1})) == {4, 5}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", {0, 1}), ("true", {2}), ("1970-01-01T00:00:00Z", {3}), ("[1]", {4}), ("x", set())],
)
def test_a_property_is_looked_up_as_every_type_it_writes(text: str, expected: set[int]) -> None:
    tables = tables_with("a = 1", "a = '1'", "a = TRUE", "a = DATE '1970-01-01'", "a CONTAINS 1")

    assert found_for(tables, Property(text)) == expected


def test_a_property_that_writes_a_set_has_members_instead_of_parts() -> None:
    tables = tables_with("a CONTAINS 'abc'")

    assert found_for(tables, "xabcx") == {0}
    assert found_for(tables, Property("xabcx")) == {0}
    assert found_for(tables, Property('["abc"]')) == {0}
    assert found_for(tables, Property('["xabcx"]')) == set()


def test_equal_thresholds_share_a_table_and_others_do_not() -> None:
    tables = AttributeTables(A)

    def table_of(text: str) -> object:
        access = access_of(Parser(text).parse_condition())
        assert access is not None
        [(table, _)] = tables.places(access)
        return table

    assert table_of("a > 1") is table_of("a > 2")
    assert table_of("a > 1") is not table_of("a >= 1")
    assert table_of("a > 1") is not table_of("a > '1'")


def test_an_interval_too_large_for_cells_has_no_place() -> None:
    accesses = [access_of(Parser(text).parse_condition()) for text in ("a > 1", "a < 1e300")]

    [interval] = interval_of([access for access in accesses if access is not None])

    assert AttributeTables(A).places(interval) == []
