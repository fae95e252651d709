"""Searches in texts: exact whatever the piece is made of, and linear in the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.like import read_pattern
from timebound.core.predicate.predicate import Attributes, parse
from timebound.core.predicate.search import EXPRESSION_LENGTH_MIN, SEARCHED_LENGTH_MAX, Piece

LONG = EXPRESSION_LENGTH_MIN


@given(
    st.text("ab", min_size=1, max_size=9),
    st.sets(st.integers(0, 8), max_size=3),
    st.text("ab\n", max_size=12),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_pieces_are_found_where_a_regular_expression_finds_them(
    characters: str, places: set[int], end: str, start: int, cut: int
) -> None:
    wild = tuple(sorted(place for place in places if place < len(characters)))
    expression = "".join("." if place in wild else one for place, one in enumerate(characters))
    piece = Piece(characters, wild)

    for text in (end, "ab" * LONG + end, "a" * LONG + end + "b" * LONG):
        expected = re.compile(expression, re.DOTALL).search(text, start, len(text) - cut)
        assert piece.find(text, start, len(text) - cut) == (-1 if expected is None else expected.start())


def seconds(pattern: str, text: str) -> float:
    """The shortest of several times that looking for a pattern took."""
    found = read_pattern(pattern, "")
    assert found is not None
    times = []
    for _ in range(7):
        began = time.perf_counter()
        assert not found.matches(text)
        times.append(time.perf_counter() - began)
    return min(times)


def test_a_piece_that_repeats_itself_is_searched_in_linear_time() -> None:
    text = "a" * 16_384

    # `str.find` alone takes 40 times as long for the one as for the other.
    assert seconds("%" + "a" * 50 + "b" + "a" * 48 + "%", text) < 15 * seconds("%xyz%", text)


def test_a_piece_with_wildcards_is_searched_as_fast_in_every_text() -> None:
    # Trying each place in turn, one after the other, took 300 times as long.
    assert seconds("%a_b%", "a" * 16_384) < 60 * seconds("%xyz%", "a" * 16_384)


@pytest.mark.parametrize("test", ["LIKE '%needle%'", "CONTAINS 'needle'"])
def test_a_text_beyond_the_limit_is_not_searched(test: str) -> None:
    def matches(where: str, length: int) -> bool:
        payload = b'{"text": "%s"}' % b"needle".rjust(length)
        return parse(where).matches(Attributes((), payload))

    assert matches(f"text {test}", SEARCHED_LENGTH_MAX)
    assert not matches(f"text {test}", SEARCHED_LENGTH_MAX + 1)
    assert not matches(f"NOT text {test}", SEARCHED_LENGTH_MAX + 1)  # unknown
    assert matches("text LIKE '%needle'", SEARCHED_LENGTH_MAX + 1)  # needs no search


@pytest.mark.parametrize("test", ["LIKE '%a_a%'", "NOT LIKE '%aba%'", "CONTAINS 'aba'"])
def test_equal_searches_of_one_message_are_made_once(test: str) -> None:
    attributes = Attributes((), b'{"text": "%s"}' % (b"x" * 1_000))
    first = parse(f"text {test}").matches(attributes)
    [key] = attributes.searches

    attributes.searches[key] = not attributes.searches[key]

    assert parse(f"other = 1 OR text {test}").matches(attributes) is not first
    assert list(attributes.searches) == [key]
