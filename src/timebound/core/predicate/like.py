"""LIKE patterns: `%` stands for any text, `_` for any one character.

The pattern is cut at its `%` into pieces; the first must stand at the start, the last at the
end, and each between is taken at the first place it fits. That is enough to be exact, and goes
through the text once.
"""

from __future__ import annotations

from timebound.core.predicate.attributes import Attributes
from timebound.core.predicate.search import SEARCHED_LENGTH_MAX, SHARED_LENGTH_MIN, Piece
from timebound.core.predicate.terms import Condition, Operand, search_key
from timebound.core.predicate.values import FALSE, TRUE, UNKNOWN, text_of


class Pattern:
    """A LIKE pattern, cut at its `%`."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    def is_search(self) -> bool:
        """Whether something has to be looked for between the text's beginning and its end."""
        return len(self.pieces) > 2

    def weight(self) -> int:
        """Return the worst cost of a search per character of a text; 0 if there is nothing to look for."""
        return max([piece.weight() for piece in self.pieces[1:-1]], default=0)

    def key(self) -> str:
        """Return a key that equal patterns share, and only they."""
        return repr([(piece.characters, piece.wild) for piece in self.pieces])

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
        """Return the text that everything matched starts with."""
        first = self.pieces[0]
        return first.characters[: first.wild[0]] if first.wild else first.characters

    def suffix(self) -> str:
        """Return the text that everything matched ends with."""
        last = self.pieces[-1]
        return last.characters[last.wild[-1] + 1 :] if last.wild else last.characters

    def is_prefix_test(self) -> bool:
        """Whether the pattern is plain text and one `%` after it."""
        return len(self.pieces) == 2 and not self.pieces[0].wild and not self.pieces[1].characters

    def is_whole_text(self) -> bool:
        """Whether the pattern has no wildcard and so means equality."""
        return len(self.pieces) == 1 and not self.pieces[0].wild


class Like(Condition):
    __slots__ = ("is_negated", "operand", "pattern", "search_key")

    def __init__(self, operand: Operand, pattern: Pattern, is_negated: bool) -> None:
        self.operand = operand
        self.pattern = pattern
        self.is_negated = is_negated
        # Under which equal searches of one message find each other's result; empty: no search.
        self.search_key = search_key(operand, "LIKE", pattern.key()) if pattern.is_search() else ""

    def evaluate(self, attributes: Attributes) -> int:
        text = text_of(self.operand.value(attributes))
        if text is None:
            return UNKNOWN
        if not self.search_key or len(text) < SHARED_LENGTH_MIN:
            found = self.pattern.matches(text)
        elif len(text) > SEARCHED_LENGTH_MAX:
            return UNKNOWN
        elif self.search_key in attributes.searches:
            found = attributes.searches[self.search_key]
        else:
            found = self.pattern.matches(text)
            attributes.searches[self.search_key] = found
        return TRUE if found != self.is_negated else FALSE

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
