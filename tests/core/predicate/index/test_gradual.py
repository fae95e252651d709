"""A match in steps finds what a match at once finds, and no step takes long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.index.gradual import GradualMatch
from timebound.core.predicate.index.index import ContentIndex
from timebound.core.predicate.predicate import Attributes, parse

from .random_filters import MESSAGES, filters


def finish(match: GradualMatch, tests: int) -> int:
    """Take steps until all filters have been asked; return their number."""
    steps = 0
    while not match.is_done():
        left = match.step(tests)
        assert left <= 0 or match.is_done()
        steps += 1
    return steps


@given(st.lists(filters, min_size=2, max_size=20), st.sampled_from(MESSAGES), st.integers(1, 50))
def test_steps_of_any_size_find_what_a_match_at_once_finds(
    texts: list[str], parts: tuple[tuple[tuple[str, str], ...], bytes, str], tests: int
) -> None:
    message = Attributes(*parts)
    index = ContentIndex()
    for number, text in enumerate(texts):
        index.insert(number, parse(text))
    index.remove(1)
    gradual = GradualMatch(index, message)

    finish(gradual, tests)

    assert gradual.keys() == index.match(message)
    index._check()


def test_other_matches_between_the_steps_change_nothing() -> None:
    index = ContentIndex()
    for number in range(20):
        index.insert(number, parse(f"a > {number} OR b > {number}"))
    message = Attributes((), b'{"a": 9.5, "b": 9.5}')
    gradual = GradualMatch(index, message)

    while not gradual.is_done():
        gradual.step(1)
        assert index.match(Attributes((), b'{"a": 99}')) == list(range(20))

    assert gradual.keys() == list(range(10))


def test_filters_removed_between_the_steps_do_not_match_and_new_ones_are_not_asked() -> None:
    index = ContentIndex()
    for number in range(20):
        index.insert(number, parse(f"a IS NOT NULL AND x{number} IS NULL"))
    gradual = GradualMatch(index, Attributes((), b'{"a": 1}'))
    while not gradual.is_done():
        gradual.step(10)
        if index.has(3):
            index.remove(3)
            index.insert(99, parse("a = 1"))

    assert gradual.keys() == [number for number in range(20) if number != 3]


def test_a_step_asks_no_more_filters_than_its_tests_allow() -> None:
    index = ContentIndex()
    tests = " AND ".join(f"(a{one} <> 7 OR b{one} IS NULL)" for one in range(49))
    for number in range(100):
        index.insert(number, parse(f"{tests} AND x <> {number}"))
    assert index.cost == 100 * 99

    steps = finish(GradualMatch(index, Attributes((), b'{"x": 7}')), 1_000)

    assert 9 <= steps <= 14


def test_a_text_searched_for_many_parts_ends_the_step() -> None:
    index = ContentIndex()
    for number in range(400):
        index.insert(number, parse(f"p CONTAINS 'x{number:03}y' OR q CONTAINS 'x{number:03}y'"))
    text = "a" * 8_000
    gradual = GradualMatch(index, Attributes((), f'{{"p": "{text}", "q": "{text}"}}'.encode()))

    assert gradual.step(100) < 0
    assert not gradual.is_done()
