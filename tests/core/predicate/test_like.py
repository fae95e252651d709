"""LIKE patterns against regular expressions, and their work on hostile patterns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.like import Pattern, read_pattern


def pattern_of(text: str, escape: str = "") -> Pattern:
    pattern = read_pattern(text, escape)
    assert pattern is not None
    return pattern


@given(st.text("ab%_", max_size=8), st.text("ab\n", max_size=12))
def test_patterns_match_as_the_regular_expression_does(pattern: str, text: str) -> None:
    expression = "".join({"%": ".*", "_": "."}.get(character, character) for character in pattern)

    assert pattern_of(pattern).matches(text) is (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(st.text("ab%_!", max_size=8), st.text("ab%_!", max_size=12))
def test_escaped_characters_stand_for_themselves(pattern: str, text: str) -> None:
    pieces = re.findall(r"![%_!]|[^!]|!", pattern)
    found = read_pattern(pattern, "!")

    if "!" in pieces:
        assert found is None
        return
    wildcards = {"%": ".*", "_": "."}
    expression = "".join(wildcards[p] if p in wildcards else re.escape(p[-1]) for p in pieces)
    assert found is not None
    assert found.matches(text) is (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=8))
def test_what_matches_has_the_prefix_and_suffix_of_its_pattern(pattern: str, text: str) -> None:
    found = pattern_of(pattern)

    if found.matches(text):
        assert text.startswith(found.prefix())
        assert text.endswith(found.suffix())
    if found.is_whole_text():
        assert found.matches(text) is (text == pattern)
    if found.is_prefix_test():
        assert found.matches(text) is text.startswith(found.prefix())


@pytest.mark.parametrize("pattern", ["%a" * 500 + "b", "%_a" * 300 + "b"])
def test_hostile_patterns_are_answered_at_once(pattern: str) -> None:
    # A backtracking matcher would not come back from this; the test's time limit would tell.
    assert not pattern_of(pattern).matches("a" * 5_000)
