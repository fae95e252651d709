"""The written form of correlations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.correlation.expression import AllOf, AnyOf, Dependency, Leaf
from timebound.core.correlation.text import TEXT_LENGTH_MAX, parse_correlation
from timebound.errors import FilterError


def shape(dependency: Dependency) -> object:
    if isinstance(dependency, AnyOf):
        return ("any", *[shape(part) for part in dependency.parts])
    if isinstance(dependency, AllOf):
        return ("all", dependency.within_ns, *[shape(part) for part in dependency.parts])
    assert isinstance(dependency, Leaf)
    return dependency.key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all(a/+, b/c)", ("all", 7, "a/+", "b/c")),
        ("any(a,b)", ("any", "a", "b")),
        ("plain/topic", "plain/topic"),
        (" any( a , all( b/#,c ) ) ", ("any", "a", ("all", 7, "b/#", "c"))),
        ("all", "all"),
        ("any/thing", "any/thing"),
        ("all(two words, b)", ("all", 7, "two words", "b")),
        ('any("a,(b)", "say \\"x\\"")', ("any", "a,(b)", 'say "x"')),
    ],
)
def test_text_is_read_as_written(text: str, expected: object) -> None:
    assert shape(parse_correlation(text, within_ns=7)) == expected


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "expected a topic filter", 0),
        ("all()", "expected a topic filter", 4),
        ("all(a", "lacks a closing parenthesis", 5),
        ("all(a,)", "expected a topic filter", 6),
        ("any(a) b", "unexpected text after its end: 'b'", 7),
        ("all(a(b)", "expected , or \\)", 5),
        ('any("a, b)', "lacks its closing quote", 10),
        ('any("")', "is empty", 6),
        ("any(" * 10 + "a" + ")" * 10, "nested more than 8 deep", 36),
        ("any(" + ",".join("x" * 63) + ")", "more than 62 topic filters", 128),
        ("x" * (TEXT_LENGTH_MAX + 1), "at most 65535 are read", 0),
    ],
)
def test_malformed_text_is_refused_with_its_position(text: str, message: str, position: int) -> None:
    with pytest.raises(FilterError, match=message) as caught:
        parse_correlation(text)

    assert caught.value.position == position


def written(dependency: object) -> str:
    if isinstance(dependency, str):
        return '"' + dependency.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert isinstance(dependency, tuple)
    word, *parts = dependency
    return f"{word}({', '.join(written(part) for part in parts)})"


names = st.text(min_size=1, max_size=6)
texts = st.recursive(
    names,
    lambda inner: st.tuples(st.sampled_from(["any"]), inner, inner),
    max_leaves=8,
)


@given(texts)
def test_quoted_filters_survive_whatever_they_contain(tree: object) -> None:
    assert shape(parse_correlation(written(tree))) == tree
