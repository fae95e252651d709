"""How a condition can be looked up: the test on one attribute that the index files it under.

An access is necessary for its condition: where the condition is TRUE, looking up finds it.
If it is exact the reverse holds too, and a condition found need not be evaluated again.
"""

from __future__ import annotations

from typing import Final

from timebound.core.predicate.attributes import Name
from timebound.core.predicate.like import Like
from timebound.core.predicate.terms import (
    Affix,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Contains,
    InList,
    IsNull,
    Literal,
    Operand,
    Subset,
    Truth,
)
from timebound.core.predicate.values import Moment, member

# Kinds of access, the most selective first. The number is also how many more candidates a
# kind must save before it is taken instead of one before it.
EQUAL: Final = 0  # equal to one of `values`
PREFIX: Final = 2
SUFFIX: Final = 3
INTERVAL: Final = 4  # between the two `values`
CONTAINS: Final = 8  # a set with the member, or a text with the part, `values[0]`
MEMBER: Final = 9  # a set with the member `values[0]`
THRESHOLD: Final = 16  # `operator` to `values[0]`
PRESENT: Final = 32  # not NULL

_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Access:
    """A test of attribute `name` that holds wherever `condition` does."""

    __slots__ = ("condition", "is_exact", "kind", "name", "operator", "values")

    def __init__(
        self,
        kind: int,
        name: Name,
        values: tuple[object, ...],
        condition: Condition | None,
        is_exact: bool = False,
        operator: str = "",
    ) -> None:
        self.kind = kind
        self.name = name
        self.values = values
        self.condition = condition
        self.is_exact = is_exact
        self.operator = operator


def access_of(condition: Condition) -> Access | None:
    """Return the best access to one condition, or None if there is none."""
    if isinstance(condition, Comparison):
        return _comparison(condition)
    if isinstance(condition, InList):
        if isinstance(condition.operand, Attribute) and not condition.is_negated:
            return Access(EQUAL, condition.operand.name, condition.values, condition, True)
        return _present(condition.operand, condition)
    if isinstance(condition, Truth):
        if isinstance(condition.operand, Attribute):
            return Access(EQUAL, condition.operand.name, (not condition.is_negated,), condition, True)
        return None
    if isinstance(condition, (Like, Affix)):
        return _text_test(condition)
    if isinstance(condition, (Contains, Subset)):
        return _set_test(condition)
    if isinstance(condition, IsNull) and condition.is_negated:
        return _present(condition.operand, condition, isinstance(condition.operand, Attribute))
    return None


def _comparison(condition: Comparison) -> Access | None:
    left, right, operator = condition.left, condition.right, condition.operator
    if isinstance(left, Literal):
        left, right, operator = right, left, _MIRRORED[operator]
    if isinstance(left, Attribute) and isinstance(right, Literal):
        constant = right.constant
        if isinstance(constant, frozenset) or operator == "<>":
            return Access(PRESENT, left.name, (), condition)
        kind = EQUAL if operator == "=" else THRESHOLD
        return Access(kind, left.name, (constant,), condition, True, operator)
    return _present(left, condition) or _present(right, condition)


def _text_test(condition: Like | Affix) -> Access | None:
    operand = condition.operand
    if condition.is_negated or not isinstance(operand, Attribute):
        return _present(operand, condition)
    name = operand.name
    if isinstance(condition, Affix):
        return Access(SUFFIX if condition.at_end else PREFIX, name, (condition.affix,), condition, True)
    pattern = condition.pattern
    if pattern.is_whole_text():
        return Access(EQUAL, name, (pattern.prefix(),), condition, True)
    if pattern.prefix():
        return Access(PREFIX, name, (pattern.prefix(),), condition, pattern.is_prefix_test())
    if pattern.suffix():
        return Access(SUFFIX, name, (pattern.suffix(),), condition)
    return _present(operand, condition)


def _set_test(condition: Contains | Subset) -> Access | None:
    if isinstance(condition, Contains):
        operand = condition.operand
        if condition.is_negated or not isinstance(operand, Attribute):
            return _present(operand, condition)
        return Access(CONTAINS, operand.name, (condition.needle,), condition)
    left, right = condition.left, condition.right
    if not condition.is_negated and isinstance(left, Literal) and isinstance(right, Attribute):
        members = left.constant
        if isinstance(members, frozenset) and members:
            # Any member does; the same one is taken in every run.
            return Access(MEMBER, right.name, (min(members, key=repr),), condition)
    return _present(left, condition) or _present(right, condition)


def _present(operand: Operand, condition: Condition, is_exact: bool = False) -> Access | None:
    """Return the access "has the attribute": every test of a missing attribute is UNKNOWN."""
    name = _attribute_in(operand)
    return None if name is None else Access(PRESENT, name, (), condition, is_exact)


def _attribute_in(operand: Operand) -> Name | None:
    if isinstance(operand, Attribute):
        return operand.name
    if isinstance(operand, Arithmetic):
        return _attribute_in(operand.left) or _attribute_in(operand.right)
    return None


def interval_of(accesses: list[Access]) -> list[Access]:
    """Pair thresholds that bound one attribute from both sides: each pair is an interval.

    It is not exact: the cells of an interval hold more than what lies between its bounds.
    """
    lows: dict[str, Access] = {}
    highs: dict[str, Access] = {}
    for access in accesses:
        if access.kind == THRESHOLD and bound_of(access.values[0]) is not None:
            side = lows if access.operator[0] == ">" else highs
            # Numbers and date-times are apart: a value is compared with one or the other.
            key = access.name.key + ("@" if isinstance(access.values[0], Moment) else "#")
            side.setdefault(key, access)
    pairs: list[Access] = []
    for key, low in lows.items():
        high = highs.get(key)
        if high is not None:
            pairs.append(Access(INTERVAL, low.name, (low.values[0], high.values[0]), None))
    return pairs


def bound_of(value: object) -> int | float | None:
    """Return a number, or a date-time as one; None for values that have no width between them."""
    if isinstance(value, Moment):
        return value.epoch_ns
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def member_key(access: Access) -> object:
    """Return the set member that a CONTAINS or MEMBER access asks for."""
    value = access.values[0]
    return member(value) if access.kind == CONTAINS else value
