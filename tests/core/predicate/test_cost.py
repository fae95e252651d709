"""What a content filter counts, and that no filter costs far more than that."""

from __future__ import annotations

import time

import pytest

from timebound.core.predicate.predicate import CONDITIONS_MAX, Attributes, parse
from timebound.errors import FilterError


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


def test_no_filter_takes_much_longer_than_it_counts() -> None:
    # In units of a plain test, measured beside it: a factor of ten for the noise of the machine.
    def best(where: str, payload: bytes) -> float:
        predicate = parse(where)
        times = []
        for _ in range(5):
            attributes = Attributes((), payload)
            attributes.json()
            began = time.perf_counter()
            predicate.matches(attributes)
            times.append(time.perf_counter() - began)
        return min(times) / (predicate.cost.each + predicate.cost.shared)

    unit = best(" OR ".join(f"a = {number}" for number in range(300)), b'{"a": -1}')
    text = b'{"a": "%s", "b": "x"}' % (b"a" * 8_192)

    for where in (
        " OR ".join(f"a LIKE '%x{number}%'" for number in range(50)),
        " OR ".join(f"a LIKE '%{'a' * (20 + number)}b%'" for number in range(30)),
        " OR ".join(f"a LIKE '%{'a_' * number}b%'" for number in range(1, 30)),
        " OR ".join(f"a CONTAINS '{'a' * (20 + number)}b{'a' * 30}'" for number in range(30)),
    ):
        assert best(where, text) < 10 * unit, where
