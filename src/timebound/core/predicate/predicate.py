"""Content filters: which messages of a topic a subscription wants.

    parse("value > 90 AND site IN ('north', 'west')").matches(Attributes(properties, payload))

A filter is read once, into a tree that answers per message; equal texts give the same filter. It also shows
itself as an OR of conjunctions, which is what the content index files. `docs/filters.md` has the language.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from timebound.core.predicate.attributes import Attributes, Name
from timebound.core.predicate.cost import Cost
from timebound.core.predicate.lexer import failure
from timebound.core.predicate.parser import LENGTH_MAX, Parser
from timebound.core.predicate.terms import And, Condition, Or
from timebound.core.predicate.values import TRUE
from timebound.errors import FilterError

__all__ = ["CONJUNCTIONS_MAX", "LENGTH_MAX", "Attributes", "Name", "Predicate", "parse"]

# Multiplying out ANDs of ORs doubles with each of them. What would go beyond this stays
# together as one part that the index does not look into, and is evaluated as it is.
CONJUNCTIONS_MAX: Final = 64
# The same for their conditions, all together: they are evaluated one by one.
CONDITIONS_MAX: Final = 1_024
# Filters that are kept to be given out again, the longest of which take 0.5 MB. Reading 4 KB takes 5 ms.
PARSED_MAX: Final = 64

Conjunction = tuple[Condition, ...]


class Predicate:
    """A content filter, ready to be asked.

    `conjunctions` is the filter as an OR of ANDs: it matches if all parts of one of them are TRUE.
    """

    __slots__ = ("conjunctions", "cost", "root", "text")

    def __init__(self, text: str, root: Condition) -> None:
        self.text = text
        self.root = root
        self.conjunctions = _split(root)
        self.cost = Cost(self.conjunctions)

    def matches(self, attributes: Attributes) -> bool:
        """Whether the filter is TRUE for a message; UNKNOWN does not match."""
        return self.root.evaluate(attributes) == TRUE

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"


def parse(text: str, *, length_max: int = LENGTH_MAX) -> Predicate:
    """Read a content filter.

    Raises:
        FilterError: the filter is wrong; the message names the character, `position` counts
            it from 0.
    """
    if len(text) > length_max:
        fact = f"filter is too long with {len(text)} characters (length_max={length_max}), one too many"
        raise failure(fact, text, length_max)
    found = _parsed(text)
    if isinstance(found, FilterError):
        raise FilterError(str(found), position=found.position)
    return found


@lru_cache(PARSED_MAX)
def _parsed(text: str) -> Predicate | FilterError:
    """Read a filter; what is wrong with it is remembered, too."""
    try:
        return Predicate(text, Parser(text).parse_condition())
    except FilterError as error:
        return error.with_traceback(None)


def _split(condition: Condition) -> list[Conjunction]:
    if isinstance(condition, Or):
        rows: list[Conjunction] = []
        for part in condition.parts:
            rows.extend(_split(part))
            if len(rows) > CONJUNCTIONS_MAX or _condition_count(rows) > CONDITIONS_MAX:
                return [(condition,)]
        return rows
    if isinstance(condition, And):
        rows = [()]
        for part in condition.parts:
            alternatives = _split(part)
            if len(rows) * len(alternatives) > CONJUNCTIONS_MAX:
                alternatives = [(part,)]
            rows = [row + alternative for row in rows for alternative in alternatives]
            if _condition_count(rows) > CONDITIONS_MAX:
                return [(condition,)]
        return rows
    return [(condition,)]


def _condition_count(rows: list[Conjunction]) -> int:
    return sum([len(row) for row in rows])
