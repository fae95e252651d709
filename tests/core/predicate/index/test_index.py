"""The content index finds what asking every filter finds, in order, and looks at few of them."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.predicate.index import index as content_index
from timebound.core.predicate.index.index import ContentIndex
from timebound.core.predicate.index.tables import Filing
from timebound.core.predicate.predicate import CONJUNCTIONS_MAX, Attributes, Predicate, parse

from .random_filters import MESSAGES, filters


def scan(predicates: dict[object, Predicate], message: Attributes) -> list[object]:
    return [key for key, predicate in predicates.items() if predicate.matches(message)]


def index_of(filter_texts: list[str]) -> ContentIndex:
    index = ContentIndex()
    for key, text in enumerate(filter_texts):
        index.insert(key, parse(text))
    index._check()
    return index


def candidates(index: ContentIndex, message: Attributes) -> int:
    """How many filings the index looks at for a message."""
    found: list[Filing] = []
    for tables in index.asked_for(message):
        value = message.value(tables.name)
        if value is not None:
            tables.collect(value, found)
    return len(found) + index._scanned.filings


@settings(max_examples=100, deadline=None)
@given(st.lists(filters, max_size=12))
def test_match_finds_what_a_scan_finds_in_order_of_insertion(filter_texts: list[str]) -> None:
    predicates: dict[object, Predicate] = {key: parse(text) for key, text in enumerate(filter_texts)}
    index = index_of(filter_texts)

    for message in MESSAGES:
        assert index.match(Attributes(*message)) == scan(predicates, Attributes(*message)), filter_texts


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.none() | filters), max_size=25))
def test_inserting_replacing_and_removing_keep_the_index_whole(steps: list[tuple[int, str | None]]) -> None:
    predicates: dict[object, Predicate] = {}
    index = ContentIndex()
    for key, text in steps:
        if text is not None:
            predicates.pop(key, None)
            predicates[key] = parse(text)
            index.insert(key, predicates[key])
        elif key in predicates:
            del predicates[key]
            index.remove(key)
        index._check()
        assert len(index) == len(predicates)

    for message in MESSAGES:
        assert index.match(Attributes(*message)) == scan(predicates, Attributes(*message))
    for key in list(predicates):
        index.remove(key)
    index._check()
    assert index._attributes == {}
    assert index._by_field == {}


def test_removing_an_unknown_key_raises_and_changes_nothing() -> None:
    index = index_of(["a = 1"])

    with pytest.raises(KeyError):
        index.remove("nobody")

    assert index.match(Attributes((), b'{"a": 1}')) == [0]


def test_a_key_whose_conjunctions_all_match_is_found_once() -> None:
    index = index_of(["a = 1 OR b = 2 OR a > 0 OR a IN (1, '1')"])

    assert index.match(Attributes((("a", "1"), ("b", "2")), b"")) == [0]


def test_an_index_without_filters_finds_nothing() -> None:
    assert ContentIndex().match(Attributes((("a", "1"),), b"{}")) == []


def test_thousands_of_equalities_cost_one_candidate() -> None:
    index = index_of([f"id = {number}" for number in range(3000)])
    message = Attributes((("id", "1234"),), b"")

    assert index.match(message) == [1234]
    assert candidates(index, message) == 1


def test_thousands_of_narrow_intervals_cost_few_candidates() -> None:
    index = index_of([f"value > {low} AND value < {low + 3}" for low in range(3000)])
    message = Attributes((), b'{"value": 1500.5}')

    assert index.match(message) == [1498, 1499, 1500]
    assert candidates(index, message) <= 12


def test_one_sided_thresholds_cost_what_they_find() -> None:
    index = index_of([f"value > {low}" for low in range(5000)])
    message = Attributes((), b'{"value": 7}')

    assert index.match(message) == [0, 1, 2, 3, 4, 5, 6]
    assert candidates(index, message) == 7


def test_prefixes_suffixes_and_parts_cost_what_they_find() -> None:
    texts = [f"name STARTS WITH 'p{number:04}'" for number in range(1000)]
    texts += [f"name LIKE '%{number:04}s'" for number in range(1000)]
    texts += [f"name CONTAINS '-{number:04}-'" for number in range(1000)]
    index = index_of(texts)
    message = Attributes((("name", "p0007-0500-0123s"),), b"")

    assert index.match(message) == [7, 1123, 2500]
    # Parts are found by three of their characters, and then looked at.
    assert candidates(index, message) <= 2 + 50


def test_members_of_sets_cost_what_they_find() -> None:
    index = index_of([f"tags CONTAINS 't{number}'" for number in range(3000)])
    message = Attributes((), b'{"tags": ["t5", "t2999", "other"]}')

    assert index.match(message) == [5, 2999]
    assert candidates(index, message) == 2


def test_a_shared_equality_does_not_gather_all_filters_in_one_bucket() -> None:
    index = index_of([f"kind = 'temp' AND value BETWEEN {low} AND {low + 1}" for low in range(3000)])
    message = Attributes((("kind", "temp"),), b'{"value": 2000.5}')

    assert index.match(message) == [2000]
    assert candidates(index, message) < 40


def test_a_message_does_not_pay_for_names_it_does_not_carry() -> None:
    index = index_of([f"field{number} = 1 OR payload.way.in{number} > 2" for number in range(2000)])
    message = Attributes((("field7", "1"),), b'{"field9": 1, "other": 2}')

    assert len(index._attributes) > content_index.PROBE_ALL_MAX
    assert index.match(message) == [7, 9]
    assert len(index.asked_for(message)) == 2


def test_many_names_are_found_wherever_a_message_has_them() -> None:
    texts = [f"field{number} = 1" for number in range(20)]
    texts += ["$topic = 'a/b'", "payload.0 = 7", "payload > 3", "payload CONTAINS 7", "deep.x = 1"]
    index = index_of(texts)

    assert index.match(Attributes((), b"[7]", "a/b")) == [20, 21, 23]
    assert index.match(Attributes((), b"4", "x")) == [22]
    assert index.match(Attributes((), b'{"deep": {"x": 1}}')) == [24]
    assert index.match(Attributes((("deep.x", "1"),), b"not json")) == [24]


def test_a_filter_with_too_many_conjunctions_still_matches() -> None:
    text = " AND ".join(f"(a = {number} OR b = {number})" for number in range(12))
    predicate = parse(text)
    index = index_of([text, "a = 1"])

    assert len(predicate.conjunctions) <= CONJUNCTIONS_MAX
    assert index.match(Attributes((("a", "1"),), b"")) == [1]


def test_sorted_thresholds_survive_splitting_and_emptying_chunks() -> None:
    index = ContentIndex()
    order = [(number * 7919) % 5003 for number in range(5003)]
    for number in order:
        index.insert(number, parse(f"v >= {number}"))
    for number in order[:4000]:
        index.remove(number)
    index._check()

    found = index.match(Attributes((("v", "2500"),), b""))

    assert found == [number for number in order[4000:] if number <= 2500]


def test_what_is_removed_needs_no_cycle_collector() -> None:
    index = ContentIndex()
    gc.collect()
    gc.disable()
    try:
        for number in range(100):
            index.insert(number, parse(f"a = {number} AND (b > 1 OR t LIKE '%x%') AND s CONTAINS 'abc'"))
        for number in range(100):
            index.remove(number)

        assert gc.collect() < 10
    finally:
        gc.enable()
