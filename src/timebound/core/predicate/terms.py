"""The compiled form of a content filter: a tree of small closed classes.

An `Operand` has a value for a message, a `Condition` a truth value: TRUE, FALSE or UNKNOWN
as in SQL-92. NOT is not a node: the parser asks a condition for its opposite, so that negation
sits at the leaves and a filter splits into conjunctions as it stands.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from timebound.core.predicate.attributes import NO_ATTRIBUTES, Attributes, Name
from timebound.core.predicate.search import SEARCHED_LENGTH_MAX, SHARED_LENGTH_MIN, Piece
from timebound.core.predicate.values import (
    FALSE,
    TRUE,
    UNKNOWN,
    Moment,
    Property,
    calculate,
    member,
    number_of,
    order,
    read_moment,
    text_of,
)

# The truth of `left operator right`, by what `order` says of the two: BEFORE, SAME, AFTER,
# EQUAL_UNORDERED, DIFFERENT_UNORDERED, UNLIKE.
TRUTHS: Final = {
    "=": (FALSE, TRUE, FALSE, TRUE, FALSE, UNKNOWN),
    "<>": (TRUE, FALSE, TRUE, FALSE, TRUE, UNKNOWN),
    "<": (TRUE, FALSE, FALSE, UNKNOWN, UNKNOWN, UNKNOWN),
    "<=": (TRUE, TRUE, FALSE, UNKNOWN, UNKNOWN, UNKNOWN),
    ">": (FALSE, FALSE, TRUE, UNKNOWN, UNKNOWN, UNKNOWN),
    ">=": (FALSE, TRUE, TRUE, UNKNOWN, UNKNOWN, UNKNOWN),
}
OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class FilterNode:
    """Anything a filter is made of."""

    __slots__ = ()


class Operand(FilterNode):
    """Something with a value."""

    __slots__ = ()

    @abstractmethod
    def value(self, attributes: Attributes) -> object:
        """Return its value in a message, or None if it has none."""


class Literal(Operand):
    __slots__ = ("constant",)

    def __init__(self, constant: object) -> None:
        self.constant = constant

    def value(self, attributes: Attributes) -> object:
        return self.constant


class Attribute(Operand):
    __slots__ = ("name",)

    def __init__(self, name: Name) -> None:
        self.name = name

    def value(self, attributes: Attributes) -> object:
        return attributes.value(self.name)


class Arithmetic(Operand):
    """`left operator right`, one of `+ - * /`; NULL if either side is not a number."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: str, left: Operand, right: Operand) -> None:
        self.operator = operator
        self.left = left
        self.right = right

    def value(self, attributes: Attributes) -> object:
        left = number_of(self.left.value(attributes))
        right = number_of(self.right.value(attributes))
        if left is None or right is None:
            return None
        return calculate(self.operator, left, right)


class Condition(FilterNode):
    """Something that is TRUE, FALSE or UNKNOWN."""

    __slots__ = ()

    @abstractmethod
    def evaluate(self, attributes: Attributes) -> int:
        """Return its truth value for a message."""

    @abstractmethod
    def opposite(self) -> Condition:
        """Return the condition that is TRUE where this is FALSE, and UNKNOWN where this is."""


class Constant(Condition):
    __slots__ = ("truth",)

    def __init__(self, truth: int) -> None:
        self.truth = truth

    def evaluate(self, attributes: Attributes) -> int:
        return self.truth

    def opposite(self) -> Condition:
        return Constant(-self.truth)


class And(Condition):
    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Condition, ...]) -> None:
        self.parts = parts

    def evaluate(self, attributes: Attributes) -> int:
        truth = TRUE
        for part in self.parts:
            found = part.evaluate(attributes)
            if found == FALSE:
                return FALSE
            if found == UNKNOWN:
                truth = UNKNOWN
        return truth

    def opposite(self) -> Condition:
        return Or(tuple([part.opposite() for part in self.parts]))


class Or(Condition):
    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Condition, ...]) -> None:
        self.parts = parts

    def evaluate(self, attributes: Attributes) -> int:
        truth = FALSE
        for part in self.parts:
            found = part.evaluate(attributes)
            if found == TRUE:
                return TRUE
            if found == UNKNOWN:
                truth = UNKNOWN
        return truth

    def opposite(self) -> Condition:
        return And(tuple([part.opposite() for part in self.parts]))


class Comparison(Condition):
    __slots__ = ("_truths", "left", "operator", "right")

    def __init__(self, operator: str, left: Operand, right: Operand) -> None:
        self.operator = operator
        self.left = left
        self.right = right
        self._truths = TRUTHS[operator]

    def evaluate(self, attributes: Attributes) -> int:
        return self._truths[order(self.left.value(attributes), self.right.value(attributes))]

    def opposite(self) -> Condition:
        return Comparison(OPPOSITE[self.operator], self.left, self.right)


class Truth(Condition):
    """An operand that stands as a condition by itself: `armed AND value > 3`."""

    __slots__ = ("is_negated", "operand")

    def __init__(self, operand: Operand, is_negated: bool = False) -> None:
        self.operand = operand
        self.is_negated = is_negated

    def evaluate(self, attributes: Attributes) -> int:
        value = self.operand.value(attributes)
        if isinstance(value, Property):
            value = value.boolean()
        if not isinstance(value, bool):
            return UNKNOWN
        return TRUE if value != self.is_negated else FALSE

    def opposite(self) -> Condition:
        return Truth(self.operand, not self.is_negated)


class IsNull(Condition):
    __slots__ = ("is_negated", "operand")

    def __init__(self, operand: Operand, is_negated: bool) -> None:
        self.operand = operand
        self.is_negated = is_negated

    def evaluate(self, attributes: Attributes) -> int:
        return TRUE if (self.operand.value(attributes) is None) != self.is_negated else FALSE

    def opposite(self) -> Condition:
        return IsNull(self.operand, not self.is_negated)


class InList(Condition):
    """`operand IN (...)`: an OR of equalities, so UNKNOWN where one of them is and none is TRUE.

    The listed values are kept by type, and a value is looked up among its own.
    """

    __slots__ = ("booleans", "is_negated", "moments", "numbers", "operand", "texts", "values")

    def __init__(self, operand: Operand, values: tuple[object, ...], is_negated: bool) -> None:
        self.operand = operand
        self.values = values
        self.is_negated = is_negated
        texts: list[str] = []
        numbers: list[int | float] = []
        booleans: list[bool] = []
        moments: list[int] = []
        for value in values:
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, bool):
                booleans.append(value)
            elif isinstance(value, (int, float)):
                numbers.append(value)
            elif isinstance(value, Moment):
                moments.append(value.epoch_ns)
        self.texts = frozenset(texts)
        self.numbers = frozenset(numbers)
        self.booleans = frozenset(booleans)
        self.moments = frozenset(moments)

    def evaluate(self, attributes: Attributes) -> int:
        truth = self._is_listed(self.operand.value(attributes))
        return -truth if self.is_negated else truth

    def _is_listed_as_text(self, value: Moment) -> int:
        truth = FALSE
        for listed in self.texts:
            moment = read_moment(listed)
            if moment is None:
                truth = UNKNOWN
            elif moment.epoch_ns == value.epoch_ns:
                return TRUE
        return truth

    def _is_listed(self, value: object) -> int:
        text: object = value
        number: object = value
        boolean: object = value
        if isinstance(value, Property):
            text = value.text
            number = value.number() if self.numbers else None
            boolean = value.boolean() if self.booleans else None
        truth = FALSE
        if self.texts:
            if isinstance(value, Moment):
                # As `=` does: a text beside a date-time is read as one.
                truth = self._is_listed_as_text(value)
                if truth == TRUE:
                    return TRUE
            elif not isinstance(text, str):
                truth = UNKNOWN
            elif text in self.texts:
                return TRUE
        if self.numbers:
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                truth = UNKNOWN
            elif number in self.numbers:
                return TRUE
        if self.booleans:
            if not isinstance(boolean, bool):
                truth = UNKNOWN
            elif boolean in self.booleans:
                return TRUE
        if self.moments:
            moment = read_moment(text) if isinstance(text, str) else text
            if not isinstance(moment, Moment):
                truth = UNKNOWN
            elif moment.epoch_ns in self.moments:
                return TRUE
        return truth

    def opposite(self) -> Condition:
        return InList(self.operand, self.values, not self.is_negated)


class Affix(Condition):
    """`STARTS WITH` and, with `at_end`, `ENDS WITH`."""

    __slots__ = ("affix", "at_end", "is_negated", "operand")

    def __init__(self, operand: Operand, affix: str, *, at_end: bool, is_negated: bool) -> None:
        self.operand = operand
        self.affix = affix
        self.at_end = at_end
        self.is_negated = is_negated

    def evaluate(self, attributes: Attributes) -> int:
        text = text_of(self.operand.value(attributes))
        if text is None:
            return UNKNOWN
        found = text.endswith(self.affix) if self.at_end else text.startswith(self.affix)
        return TRUE if found != self.is_negated else FALSE

    def opposite(self) -> Condition:
        return Affix(self.operand, self.affix, at_end=self.at_end, is_negated=not self.is_negated)


class Contains(Condition):
    """`CONTAINS`: a member of a set, or a part of a text.

    A user property that writes a JSON array is a set here, any other is a text.
    """

    __slots__ = ("is_negated", "needle", "operand", "piece", "search_key")

    def __init__(self, operand: Operand, needle: object, is_negated: bool) -> None:
        self.operand = operand
        self.needle = needle
        self.is_negated = is_negated
        self.search_key = search_key(operand, "CONTAINS", needle) if isinstance(needle, str) else ""
        self.piece = Piece(needle, ()) if isinstance(needle, str) else None

    def evaluate(self, attributes: Attributes) -> int:
        value = self.operand.value(attributes)
        members = members_of(value)
        if members is not None:
            found = member(self.needle) in members
        else:
            text = text_of(value)
            piece = self.piece
            if text is None or piece is None or len(text) > SEARCHED_LENGTH_MAX:
                return UNKNOWN
            if len(text) < SHARED_LENGTH_MIN:
                found = piece.characters in text
            elif self.search_key in attributes.searches:
                found = attributes.searches[self.search_key]
            else:
                found = piece.find(text, 0, len(text)) >= 0
                attributes.searches[self.search_key] = found
        return TRUE if found != self.is_negated else FALSE

    def opposite(self) -> Condition:
        return Contains(self.operand, self.needle, not self.is_negated)


class Subset(Condition):
    """`SUBSET OF` and `PROPER SUBSET OF`."""

    __slots__ = ("is_negated", "is_proper", "left", "right")

    def __init__(self, left: Operand, right: Operand, *, is_proper: bool, is_negated: bool) -> None:
        self.left = left
        self.right = right
        self.is_proper = is_proper
        self.is_negated = is_negated

    def evaluate(self, attributes: Attributes) -> int:
        left = members_of(self.left.value(attributes))
        right = members_of(self.right.value(attributes))
        if left is None or right is None:
            return UNKNOWN
        found = left < right if self.is_proper else left <= right
        return TRUE if found != self.is_negated else FALSE

    def opposite(self) -> Condition:
        return Subset(self.left, self.right, is_proper=self.is_proper, is_negated=not self.is_negated)


def search_key(operand: Operand, kind: str, sought: str) -> str:
    """Return the key under which equal searches of one message share their result."""
    where = operand.name.key if isinstance(operand, Attribute) else repr(operand.value(NO_ATTRIBUTES))
    return f"{where} {kind} {sought}"


def members_of(value: object) -> frozenset[object] | None:
    if isinstance(value, Property):
        return value.members()
    return value if isinstance(value, frozenset) else None
