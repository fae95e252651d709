"""LIKE patterns: `%` stands for any text, `_` for any one character.

The pattern is cut at its `%` into pieces; the first must stand at the start, the last at the
end, and each between is taken at the first place it fits. That is enough to be exact, and
unlike a regular expression its work is bounded by text length times pattern length.
"""

from __future__ import annotations

from timebound.core.predicate_attributes import Attributes
from timebound.core.predicate_terms import Condition, Operand
from timebound.core.predicate_values import FALSE, TRUE, UNKNOWN, text_of


class Piece:
    """Characters without `%` between; `wild` are the places where any character fits."""

    __slots__ = ("characters", "wild")

    def __init__(self, characters: str, wild: tuple[int, ...]) -> None:
        self.characters = characters
        self.wild = wild

    def fits(self, text: str, start: int) -> bool:
        """Whether the piece stands in `text` at `start`."""
        if not self.wild:
            return text.startswith(self.characters, start)
        if start + len(self.characters) > len(text):
            return False
        begin = 0
        for place in self.wild:
            if text[start + begin : start + place] != self.characters[begin:place]:
                return False
            begin = place + 1
        return text.startswith(self.characters[begin:], start + begin)

    def find(self, text: str, start: int, end: int) -> int:
        """The first place from `start` where the piece stands before `end`, or -1."""
        if not self.wild:
            return text.find(self.characters, start, end)
        for place in range(start, end - len(self.characters) + 1):
            if self.fits(text, place):
                return place
        return -1


class Pattern:
    """A LIKE pattern, cut at its `%`."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    def matches(self, text: str) -> bool:
        first, last = self.pieces[0], self.pieces[-1]
        if len(self.pieces) == 1:
            return len(text) == len(first.characters) and first.fits(text, 0)
        start = len(first.characters)
        end = len(text) - len(last.characters)
        if end < start or not first.fits(text, 0) or not last.fits(text, end):
            return False
        for index in range(1, len(self.pieces) - 1):
            piece = self.pieces[index]
            found = piece.find(text, start, end)
            if found < 0:
                return False
            start = found + len(piece.characters)
        return True

    def prefix(self) -> str:
        """The text that everything matched starts with."""
        first = self.pieces[0]
        return first.characters[: first.wild[0]] if first.wild else first.characters

    def suffix(self) -> str:
        """The text that everything matched ends with."""
        last = self.pieces[-1]
        return last.characters[last.wild[-1] + 1 :] if last.wild else last.characters

    def is_prefix_test(self) -> bool:
        """Whether the pattern is plain text and one `%` after it."""
        return len(self.pieces) == 2 and not self.pieces[0].wild and not self.pieces[1].characters

    def is_whole_text(self) -> bool:
        """Whether the pattern has no wildcard and so means equality."""
        return len(self.pieces) == 1 and not self.pieces[0].wild


class Like(Condition):
    __slots__ = ("is_negated", "operand", "pattern")

    def __init__(self, operand: Operand, pattern: Pattern, is_negated: bool) -> None:
        self.operand = operand
        self.pattern = pattern
        self.is_negated = is_negated

    def evaluate(self, attributes: Attributes) -> int:
        text = text_of(self.operand.value(attributes))
        if text is None:
            return UNKNOWN
        return TRUE if self.pattern.matches(text) != self.is_negated else FALSE

    def opposite(self) -> Condition:
        return Like(self.operand, self.pattern, not self.is_negated)


def read_pattern(text: str, escape: str) -> Pattern | None:
    """Cut a LIKE pattern into pieces; None if `escape` stands before an ordinary character."""
    pieces: list[Piece] = []
    characters: list[str] = []
    wild: list[int] = []
    index = 0
    while index < len(text):
        character = text[index]
        if escape and character == escape:
            index += 1
            if index == len(text) or text[index] not in ("%", "_", escape):
                return None
            characters.append(text[index])
        elif character == "%":
            pieces.append(Piece("".join(characters), tuple(wild)))
            characters = []
            wild = []
        else:
            if character == "_":
                wild.append(len(characters))
            characters.append(character)
        index += 1
    pieces.append(Piece("".join(characters), tuple(wild)))
    return Pattern(pieces)
