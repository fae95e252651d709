"""Searching a text for a piece of text, in time linear in the text whatever both are.

What a piece costs for each character of the text is its `weight`: a step or a few of them, or, for
pieces in which any character fits at some places, their length. Texts beyond a length are not searched
at all: so what a content filter costs at worst is known when it is read (`cost.py`).
"""

from __future__ import annotations

import re
from typing import Final

# A longer text is not searched, and the test has no answer (UNKNOWN): 10 us a search at most.
SEARCHED_LENGTH_MAX: Final = 8_192
# The result of a search in a text this long is kept for equal searches of the same message; in a
# shorter one, searching again costs no more than looking the result up.
SHARED_LENGTH_MIN: Final = 128
# `str.find` begins anew behind each place where it fails. That is linear unless the piece repeats itself:
# 'aaaabaaa' in a text of 'a' takes its length for every character. Beyond a repetition this long,
# the search of `re` is used, which never goes back: a third of the speed, whatever the text.
REPETITION_MAX: Final = 2
# Making the expression takes as long as searching some thousand characters once.
EXPRESSION_LENGTH_MIN: Final = 64
# Steps for each character of the text, in those that `str.find` takes.
REPEATING_WEIGHT: Final = 4
WILD_WEIGHT: Final = 8


class Piece:
    """Characters without `%` between; `wild` are the places where any character fits."""

    __slots__ = ("_expression", "_is_repeating", "characters", "wild")

    def __init__(self, characters: str, wild: tuple[int, ...]) -> None:
        self.characters = characters
        self.wild = wild
        self._is_repeating = not wild and _repetition(characters) > REPETITION_MAX
        self._expression: re.Pattern[str] | None = None  # made when first needed

    def weight(self) -> int:
        """Return the worst cost of finding the piece per character of a text; at least 1."""
        if self.wild:
            return WILD_WEIGHT + 2 * len(self.characters)
        return REPEATING_WEIGHT if self._is_repeating else 1

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
        """Return the first position from `start` at which the piece lies before `end`, or -1."""
        if end - start < len(self.characters):
            return -1
        if not self.wild and (not self._is_repeating or end - start < EXPRESSION_LENGTH_MIN):
            return text.find(self.characters, start, end)
        if end - start < EXPRESSION_LENGTH_MIN:
            for place in range(start, end - len(self.characters) + 1):
                if self.fits(text, place):
                    return place
            return -1
        if self._expression is None:
            self._expression = self._compile()
        found = self._expression.search(text, start, end)
        return -1 if found is None else found.start()

    def _compile(self) -> re.Pattern[str]:
        characters = [
            "." if place in self.wild else re.escape(character)
            for place, character in enumerate(self.characters)
        ]
        return re.compile("".join(characters), re.DOTALL)


def _repetition(characters: str) -> int:
    """Return the length of the longest beginning of a text that occurs again within it."""
    longest = 0
    ends: list[int] = [0] * len(characters)  # how long a beginning ends at each place
    length = 0
    for place in range(1, len(characters)):
        while length > 0 and characters[place] != characters[length]:
            length = ends[length - 1]
        if characters[place] == characters[length]:
            length += 1
        ends[place] = length
        longest = max(longest, length)
    return longest
