"""Tokens of content filters, against a lexer made of regular expressions."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.lexer import END, NAME, NUMBER, STRING, SYMBOL, Token, failure, tokens_of
from timebound.errors import FilterError

# Every character that means something, and some that do not.
TEXTS = st.text("aZé_$\"'.019eE+-*/=<>!&|(){},# \t", max_size=14)

LETTERS = r"[A-Za-zé_$]"
PART = r'(?:"(?:[^"]|"")*"(?!")|[A-Za-zé0-9_$]+)'
STARTS_NAME = re.compile(rf'{LETTERS}|"')
WHOLE_NAME = re.compile(rf"{PART}(?:\.{PART})*")
WHOLE_STRING = re.compile(r"'(?:[^']|'')*'(?!')")
STARTS_NUMBER = re.compile(r"[0-9]|\.[0-9]")
NUMBER_RUN = re.compile(r"(?:[eE][+-]|[A-Za-zé0-9_$.])+")
WHOLE_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
A_SYMBOL = re.compile(r"<=|>=|<>|[()+\-*/=<>{},]")

Plain = tuple[int, str, int, tuple[str, ...]]  # kind, text, position, segments


def naive(text: str) -> list[Plain] | int:
    """The tokens, or the position of the mistake."""
    found: list[Plain] = []
    position = 0
    while position < len(text):
        token = naive_token(text, position)
        if isinstance(token, int):
            return token
        end, plain = token
        if plain is not None:
            found.append(plain)
        position = end
    return [*found, (END, "", len(text), ())]


def naive_token(text: str, position: int) -> tuple[int, Plain | None] | int:
    if text[position].isspace():
        return position + 1, None
    if STARTS_NAME.match(text, position):
        match = WHOLE_NAME.match(text, position)
        if match is None:
            return position
        if text[match.end() : match.end() + 1] == ".":
            return match.end() + 1
        parts = re.findall(PART, match[0])
        segments = tuple(part[1:-1].replace('""', '"') if part[0] == '"' else part for part in parts)
        return match.end(), (NAME, match[0], position, segments)
    if text[position] == "'":
        match = WHOLE_STRING.match(text, position)
        if match is None:
            return position
        return match.end(), (STRING, match[0][1:-1].replace("''", "'"), position, ())
    if STARTS_NUMBER.match(text, position):
        match = NUMBER_RUN.match(text, position)
        assert match is not None
        if not WHOLE_NUMBER.fullmatch(match[0]) or math.isinf(float(match[0])):
            return position
        return match.end(), (NUMBER, match[0], position, ())
    match = A_SYMBOL.match(text, position)
    if match is None or text[position : position + 2] in ("==", "!="):
        return position
    return match.end(), (SYMBOL, match[0], position, ())


def plain_of(token: Token) -> Plain:
    return token.kind, token.text, token.position, token.segments


@given(TEXTS)
def test_tokens_and_mistakes_are_those_of_the_naive_lexer(text: str) -> None:
    found: list[Plain] | int
    try:
        found = [plain_of(token) for token in tokens_of(text)]
    except FilterError as error:
        found = error.position

    assert found == naive(text)


@given(
    st.lists(st.sampled_from(["a", "a.b", '"x y"', "'it''s'", "1", "2.5", "<>", "<", "(", "é"]), max_size=8)
)
def test_whitespace_between_tokens_changes_only_their_positions(pieces: list[str]) -> None:
    tight = [(token.kind, token.text) for token in tokens_of(" ".join(pieces))]
    wide = [(token.kind, token.text) for token in tokens_of(" \n\t " + " \u2003 ".join(pieces) + "  ")]

    assert tight == wide


def test_names_have_segments_and_words() -> None:
    tokens = tokens_of('and "and" a.And $topic "a ""b"" c".d')

    names = [(token.word, token.is_quoted, token.segments) for token in tokens[:-1]]

    assert names == [
        ("AND", False, ("and",)),
        ("", True, ("and",)),
        ("", False, ("a", "And")),
        ("$TOPIC", False, ("$topic",)),
        ("", True, ('a "b" c', "d")),
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("2.50", 2.5),
        (".5", 0.5),
        ("3.", 3.0),
        ("1e-3", 0.001),
        ("1E+2", 100.0),
        ("0" * 63 + "4", 4),
    ],
)
def test_numbers_have_their_value_and_type(text: str, number: float) -> None:
    token = tokens_of(text)[0]

    assert (token.kind, token.number, type(token.number)) == (NUMBER, number, type(number))


def test_a_sign_is_a_symbol_outside_an_exponent() -> None:
    assert [token.text for token in tokens_of("-1-2e-3")] == ["-", "1", "-", "2e-3", ""]


@pytest.mark.parametrize(
    ("text", "fact", "position"),
    [
        ("a == 1", "expected = instead of == at character 3", 2),
        ("a && b", "expected AND instead of && at character 3", 2),
        ("a || b", "expected OR instead of || at character 3", 2),
        ("a.'b'", "expected a name after the dot at character 3", 2),
        ('a."b', 'name has no closing "; it starts at character 3', 2),
        ("'a''", "string has no closing '; it starts at character 1", 0),
        ("1" * 65, "expected a number like 3, 2.5 or 1e3 at character 1", 0),
        ("1.2.3", "expected a number like 3, 2.5 or 1e3 at character 1", 0),
        ("a ; b", "unexpected ';' at character 3", 2),
    ],
)
def test_a_mistake_is_named_where_it_is(text: str, fact: str, position: int) -> None:
    with pytest.raises(FilterError) as caught:
        tokens_of(text)

    assert str(caught.value).startswith(fact)
    assert caught.value.position == position


def test_an_error_shows_forty_characters_on_each_side() -> None:
    text = "a" * 50 + "!" + "b" * 50

    assert str(failure("bad", text, 50)) == f"bad at character 51: '...{'a' * 40}!{'b' * 39}...'"
    assert str(failure("bad", "a!b", 1)) == "bad at character 2: 'a!b'"
