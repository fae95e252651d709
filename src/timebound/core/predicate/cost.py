"""What a content filter costs for a message at worst, known from its text alone.

It counts in plain tests, of about 0.3 us. Each subscription costs as many as are evaluated for it; a search
of a text, on the other hand, is made once for a message however many filters ask for it, so equal
filters of a session share what it costs. With a limit on the sum, no client makes messages expensive.
"""

from __future__ import annotations

from typing import Final

from timebound.core.predicate.like import Like
from timebound.core.predicate.terms import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Contains,
    InList,
    Literal,
    Operand,
    Or,
    Subset,
)
from timebound.core.predicate.values import Moment

# A search of the longest text that is searched, times the weight of what is looked for.
SEARCH_COST: Final = 32
# Two attributes compared with each other: as sets of the largest size, or as texts.
SETS_COST: Final = 512
TEXTS_COST: Final = 64
# A text is read as a date-time.
MOMENT_COST: Final = 8


class Cost:
    """What a filter costs: `each` for each subscription, `shared` once for all with the same text."""

    __slots__ = ("each", "shared")

    def __init__(self, conjunctions: list[tuple[Condition, ...]]) -> None:
        self.each = 0
        searches: dict[str, int] = {}
        for conjunction in conjunctions:
            for condition in conjunction:
                self._add(condition, searches)
        self.shared = sum(searches.values())

    def most(self) -> int:
        """Return what the filter costs if no other shares its searches."""
        return self.each + self.shared

    def _add(self, condition: Condition, searches: dict[str, int]) -> None:
        if isinstance(condition, (And, Or)):
            for part in condition.parts:
                self._add(part, searches)
            return
        self.each += 1
        if isinstance(condition, Like):
            if condition.search_key:
                searches[condition.search_key] = SEARCH_COST * condition.pattern.weight()
        elif isinstance(condition, Contains):
            if condition.piece is not None:
                searches[condition.search_key] = SEARCH_COST * condition.piece.weight()
        elif isinstance(condition, Comparison):
            self._add_pair(condition.left, condition.right, condition.operator in ("=", "<>"))
        elif isinstance(condition, Subset):
            self._add_pair(condition.left, condition.right, True)
        elif isinstance(condition, InList):
            self.each += MOMENT_COST * len(condition.moments)
            if isinstance(condition.operand, Literal):
                self.each += MOMENT_COST * len(condition.texts)

    def _add_pair(self, left: Operand, right: Operand, may_be_sets: bool) -> None:
        if isinstance(left, Attribute) and isinstance(right, Attribute):
            self.each += SETS_COST if may_be_sets else TEXTS_COST
        for side in (left, right):
            self.each += _operand_cost(side)


def _operand_cost(operand: Operand) -> int:
    if isinstance(operand, Arithmetic):
        return 1 + _operand_cost(operand.left) + _operand_cost(operand.right)
    if isinstance(operand, Literal):
        constant = operand.constant
        if isinstance(constant, Moment):
            return MOMENT_COST
        if isinstance(constant, frozenset):
            return len(constant)
    return 0
