"""Tables of filings: what a value finds, against going through everything that is filed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.cost import Cost
from timebound.core.predicate.index.tables import (
    BOUND_MAX,
    CHUNK_MAX,
    LEVEL_MIN,
    PART_LENGTH,
    THRESHOLD_WEIGHT,
    AffixTable,
    Filing,
    FilingTable,
    IndexedKey,
    IntervalFiling,
    IntervalTable,
    MemberTable,
    PartTable,
    ThresholdTable,
    interval_cell,
)
from timebound.core.predicate.search import SEARCHED_LENGTH_MAX


def filed(table: FilingTable, key: object, number: int = 0) -> Filing:
    filing = Filing(IndexedKey(number, number, Cost([])), None, table, key)
    table.insert(filing)
    return filing


def numbers_of(found: list[Filing]) -> list[int]:
    """What was found, each as often as it was."""
    return sorted(filing.entry.sequence for filing in found)


def check_against_scan(
    table: FilingTable,
    steps: list[tuple[Any, bool]],
    asked: list[Any],
    collect: Callable[[Any, list[Filing]], None],
    finds: Callable[[Any, Any], bool],
) -> None:
    """File and remove by turns; then each value must find exactly the keys that it finds one by one."""
    held: list[Filing] = []
    for number, (key, removes) in enumerate(steps):
        if removes and held:
            table.remove(held.pop(number % len(held)))
        else:
            held.append(filed(table, key, number))
        table._check()
    assert table.filings == len(held)
    for value in asked:
        found: list[Filing] = []
        collect(value, found)
        assert numbers_of(found) == numbers_of([one for one in held if finds(value, one.bucket_key)])


def steps_of(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, bool]]]:
    return st.lists(st.tuples(keys, st.booleans()), max_size=25)


keys = st.integers(-4, 4)
texts = st.text("ab", max_size=5)


@given(steps_of(keys), st.lists(keys, max_size=4))
def test_equality_finds_one_bucket(steps: list[tuple[int, bool]], asked: list[int]) -> None:
    table = FilingTable("a")

    check_against_scan(table, steps, asked, table.collect_key, lambda value, key: value == key)
    assert [table.candidates(value) for value in asked] == [
        len(table.buckets.get(value, [])) for value in asked
    ]


COMPARED: dict[str, Callable[[float, float], bool]] = {
    "<": lambda value, key: value < key,
    "<=": lambda value, key: value <= key,
    ">": lambda value, key: value > key,
    ">=": lambda value, key: value >= key,
}


@pytest.mark.parametrize("operator", sorted(COMPARED))
@given(steps=steps_of(keys), asked=st.lists(st.one_of(keys, st.floats(-5, 5)), max_size=4))
def test_thresholds_find_what_the_value_passes(
    operator: str, steps: list[tuple[int, bool]], asked: list[float]
) -> None:
    table = ThresholdTable("a", operator)

    check_against_scan(table, steps, asked, table.collect, COMPARED[operator])
    assert table.candidates(0) == THRESHOLD_WEIGHT * table.filings


@pytest.mark.parametrize("operator", sorted(COMPARED))
def test_thresholds_are_found_in_many_chunks(operator: str) -> None:
    source = random.Random(3)
    table = ThresholdTable("a", operator)
    filings = [filed(table, key, key) for key in source.sample(range(4 * CHUNK_MAX), 4 * CHUNK_MAX)]
    for filing in source.sample(filings, 3 * CHUNK_MAX):
        table.remove(filing)
        filings.remove(filing)
    table._check()

    for value in (-1, 0, CHUNK_MAX, 2.5 * CHUNK_MAX, 4 * CHUNK_MAX - 1, 4 * CHUNK_MAX):
        found: list[Filing] = []
        table.collect(value, found)
        expected = [filing for filing in filings if COMPARED[operator](value, filing.entry.sequence)]
        assert numbers_of(found) == numbers_of(expected)


def test_a_table_of_thresholds_that_was_emptied_takes_new_ones() -> None:
    table = ThresholdTable("a", ">")
    first, second = filed(table, 3), filed(table, 5)
    table.remove(first)
    table.remove(second)
    table._check()

    last = filed(table, 4)

    found: list[Filing] = []
    table.collect(9, found)
    assert found == [last]


bounds = st.one_of(
    st.integers(-20, 20),
    st.floats(-20, 20),
    st.sampled_from([1e-30, 2.0**-61, 1e300, -1e300, 2**53 + 1, 10**18, 10**18 + 100]),
)


@given(st.lists(st.tuples(bounds, bounds).map(sorted), max_size=15), st.lists(bounds, max_size=5))
def test_intervals_find_what_the_value_lies_in(intervals: list[list[float]], asked: list[float]) -> None:
    table = IntervalTable("a")
    for number, (low, high) in enumerate(intervals):
        cell = interval_cell(low, high)
        if cell is None:
            assert high > BOUND_MAX or low < -BOUND_MAX
            continue
        entry = IndexedKey(number, number, Cost([]))
        table.insert(IntervalFiling(entry, None, table, cell, low=float(low), high=float(high)))
    table._check()
    inside = [pair for pair in intervals if pair[0] >= -BOUND_MAX and pair[1] <= BOUND_MAX]

    # Both ends of all intervals, as that is where a cell could be missed.
    for value in [*asked, *[bound for pair in inside for bound in pair]]:
        found: list[Filing] = []
        table.collect(value, found)
        expected = [
            number
            for number, (low, high) in enumerate(intervals)
            if abs(value) <= BOUND_MAX
            and interval_cell(low, high) is not None
            and float(low) <= float(value) <= float(high)
        ]
        assert numbers_of(found) == expected


def test_levels_of_intervals_go_with_their_last_filing() -> None:
    table = IntervalTable("a")
    filings = []
    for low, high in ((0, 1), (0, 1), (0, 100)):
        cell = interval_cell(low, high)
        filing = IntervalFiling(
            IndexedKey(0, 0, Cost([])), None, table, cell, low=float(low), high=float(high)
        )
        table.insert(filing)
        filings.append(filing)

    for filing in filings:
        table.remove(filing)
        table._check()

    found: list[Filing] = []
    table.collect(0.5, found)
    assert (found, table.filings, table.buckets) == ([], 0, {})


@pytest.mark.parametrize(
    ("low", "high", "cell"),
    [
        (0, 1, (1, 0)),  # narrower than 2, from 0 on
        (5.0, 5.75, (0, 5)),  # narrower than 1
        (-3, 4, (3, -1)),  # narrower than 8, from -8 on
        (7, 7, (0, 7)),  # of no width
        (0.0, 2.0**-80, (LEVEL_MIN, 0)),
        (4, 3, None),  # the wrong way round
        (0, 10**400, None),
        (-BOUND_MAX * 2, 0, None),
    ],
)
def test_the_cell_of_an_interval(low: float, high: float, cell: tuple[int, int] | None) -> None:
    assert interval_cell(low, high) == cell


@given(steps_of(texts), st.lists(texts, max_size=4), st.booleans())
def test_affixes_find_what_a_text_begins_or_ends_with(
    steps: list[tuple[str, bool]], asked: list[str], at_end: bool
) -> None:
    table = AffixTable("a", at_end=at_end)

    check_against_scan(
        table,
        steps,
        asked,
        table.collect,
        lambda text, affix: text.endswith(affix) if at_end else text.startswith(affix),
    )


parts = st.text("ab", max_size=PART_LENGTH)


@given(steps_of(parts), st.lists(texts, max_size=4))
def test_parts_find_what_is_inside_a_text(steps: list[tuple[str, bool]], asked: list[str]) -> None:
    table = PartTable("a")

    check_against_scan(table, steps, asked, table.collect, lambda text, part: part in text)


def test_parts_among_thousands_are_found_by_cutting_the_text() -> None:
    table = PartTable("a")
    for number in range(1_000):
        filed(table, f"{number:03}", number)

    found: list[Filing] = []
    table.collect("x0120x", found)

    assert numbers_of(found) == [12, 120]


def test_a_part_is_found_once_however_often_it_stands_in_the_text() -> None:
    few, many = PartTable("a"), PartTable("a")
    filed(few, "aa", 1)
    for number in range(1_000):
        filed(many, "aa" if number == 1 else f"{number:03}", number)

    for table in (few, many):
        found: list[Filing] = []
        table.collect("aaaaaa", found)
        assert numbers_of(found) == [1]


def test_nothing_is_looked_for_in_a_text_that_is_too_long() -> None:
    table = PartTable("a")
    filed(table, "aa")
    found: list[Filing] = []

    table.collect("a" * (SEARCHED_LENGTH_MAX + 1), found)
    assert found == []
    table.collect("a" * SEARCHED_LENGTH_MAX, found)
    assert len(found) == 1


def test_the_best_part_is_the_one_with_the_fewest_filings() -> None:
    table = PartTable("a")
    for part in ("abc", "abc", "bcd", "cde", "cde"):
        filed(table, part)

    assert table.best_part("abcde") == "bcd"
    assert table.best_part("xabc") == "xab"
    assert table.best_part("abc") == "abc"
    assert table.best_part("ab") == "ab"


@given(steps_of(keys), st.lists(st.frozensets(keys), max_size=4))
def test_members_find_the_sets_that_have_them(
    steps: list[tuple[int, bool]], asked: list[frozenset[int]]
) -> None:
    table = MemberTable("a")

    check_against_scan(table, steps, asked, table.collect, lambda members, key: key in members)


def test_removing_moves_the_last_filing_into_the_place() -> None:
    table = FilingTable("a")
    first, second, third = (filed(table, "k", number) for number in range(3))

    table.remove(first)

    assert table.buckets["k"] == [third, second]
    assert (third.place, second.place) == (0, 1)
