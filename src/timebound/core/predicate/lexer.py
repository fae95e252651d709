"""Content filters as tokens: names, strings, numbers and symbols, each with its position.

Only the words that JMS reserves are reserved; the words this package adds (`STARTS`, `OF`,
`DATE`, ...) stay free as names and get their meaning from where they stand.
"""

from __future__ import annotations

from typing import Final

from timebound.core.predicate.values import read_number
from timebound.errors import FilterError

END: Final = 0
NAME: Final = 1
STRING: Final = 2
NUMBER: Final = 3
SYMBOL: Final = 4

RESERVED: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE")
)
_PAIRS: Final = ("<=", ">=", "<>")
_SINGLES: Final = "()+-*/=<>{},"
# What other languages write, and what is right here.
_FOREIGN: Final = {"!=": "<>", "==": "=", "&&": "AND", "||": "OR"}
# How much of a long filter an error shows on each side of the mistake.
_EXCERPT: Final = 40


class Token:
    """One token. `word` is the upper-case word of an unquoted, undotted name, else empty."""

    __slots__ = ("is_quoted", "kind", "number", "position", "segments", "text", "word")

    def __init__(self, kind: int, text: str, position: int) -> None:
        self.kind = kind
        self.text = text
        self.position = position
        self.word = ""
        self.segments: tuple[str, ...] = ()
        self.is_quoted = False
        self.number: int | float = 0


def failure(fact: str, text: str, position: int) -> FilterError:
    """Return the error for a mistake at `position`; the message counts characters from 1."""
    begin = max(0, position - _EXCERPT)
    excerpt = text[begin : position + _EXCERPT]
    if begin > 0:
        excerpt = "..." + excerpt
    if position + _EXCERPT < len(text):
        excerpt += "..."
    return FilterError(f"{fact} at character {position + 1}: {excerpt!r}", position=position)


def tokens_of(text: str) -> list[Token]:
    """Cut a filter into tokens, the last one END.

    Raises:
        FilterError: a character that fits nowhere, an open quote, a number out of range.
    """
    found: list[Token] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character.isspace():
            position += 1
            continue
        if _starts_name(character):
            position = _name(text, position, found)
        elif character == "'":
            content, end = _quoted(text, position)
            found.append(Token(STRING, content, position))
            position = end
        elif _is_digit(character) or (character == "." and _is_digit(text[position + 1 : position + 2])):
            position = _number(text, position, found)
        else:
            position = _symbol(text, position, found)
    found.append(Token(END, "", len(text)))
    return found


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _starts_name(character: str) -> bool:
    return character.isalpha() or character == "_" or character == "$" or character == '"'


def _continues_name(character: str) -> bool:
    return character.isalnum() or character == "_" or character == "$"


def _quoted(text: str, position: int) -> tuple[str, int]:
    """Read quoted text; return it, with doubled quotes made single, and its end."""
    quote = text[position]
    parts: list[str] = []
    start = position + 1
    while True:
        end = text.find(quote, start)
        if end < 0:
            kind = "string" if quote == "'" else "name"
            raise failure(f"{kind} has no closing {quote}; it starts", text, position)
        parts.append(text[start:end])
        if text[end + 1 : end + 2] != quote:
            return quote.join(parts), end + 1
        start = end + 2


def _name(text: str, position: int, found: list[Token]) -> int:
    """Read a name: segments joined by dots, each plain or in double quotes."""
    start = position
    segments: list[str] = []
    is_quoted = text[position] == '"'
    while True:
        if text[position : position + 1] == '"':
            segment, position = _quoted(text, position)
        else:
            begin = position
            while position < len(text) and _continues_name(text[position]):
                position += 1
            if begin == position:
                raise failure("expected a name after the dot", text, position)
            segment = text[begin:position]
        segments.append(segment)
        if text[position : position + 1] != ".":
            break
        position += 1
    token = Token(NAME, text[start:position], start)
    token.segments = tuple(segments)
    token.is_quoted = is_quoted
    if len(segments) == 1 and not is_quoted:
        token.word = token.text.upper()
    found.append(token)
    return position


def _number(text: str, position: int, found: list[Token]) -> int:
    start = position
    while position < len(text) and (_continues_name(text[position]) or text[position] == "."):
        # The sign of an exponent belongs to the number: 1e-3.
        if text[position] in "eE" and text[position + 1 : position + 2] in ("+", "-"):
            position += 1
        position += 1
    token = Token(NUMBER, text[start:position], start)
    number = read_number(token.text)
    if number is None:
        raise failure("expected a number like 3, 2.5 or 1e3", text, start)
    token.number = number
    found.append(token)
    return position


def _symbol(text: str, position: int, found: list[Token]) -> int:
    pair = text[position : position + 2]
    if pair in _FOREIGN:
        raise failure(f"expected {_FOREIGN[pair]} instead of {pair}", text, position)
    if pair in _PAIRS:
        found.append(Token(SYMBOL, pair, position))
        return position + 2
    if text[position] not in _SINGLES:
        raise failure(f"unexpected {text[position]!r}", text, position)
    found.append(Token(SYMBOL, text[position], position))
    return position + 1
