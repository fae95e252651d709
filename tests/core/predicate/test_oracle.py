"""Random filters and messages, against a naive evaluator that shares no code with the real one.

The filters are made as plain tuples, written out as text for the parser, and worked out here
straight from the definitions: None is UNKNOWN, as in SQL-92.
"""

from __future__ import annotations

import json
import math
import random
import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.predicate.predicate import Attributes, parse

Tree = tuple[Any, ...]

# Few names and few values, so that random filters and messages often meet.
NAMES = {
    "a": ("bare", ("a",)),
    "b": ("bare", ("b",)),
    "n.x": ("bare", ("n", "x")),
    '"odd ""name"""': ("bare", ('odd "name"',)),
    "payload": ("payload", ()),
    "payload.a": ("payload", ("a",)),
    'payload."n".x': ("payload", ("n", "x")),
    "payload.list.1": ("payload", ("list", "1")),
    "payload.list": ("payload", ("list",)),
    "$topic": ("topic", ()),
}
NUMBERS = [-1, 0, 1, 2, 5, 2.0, 0.5, -1.5, 2**53 + 1, float(2**53)]
TEXTS = ["", "a", "ab", "b%", "it's", "5", "5.0", "true", "FALSE", "x_", "2026-01-31", "[1,2]"]
MOMENTS = ["2026-01-31", "2026-01-31T00:00:00Z", "2026-01-31T01:30:00.25+01:00"]

numbers = st.sampled_from(NUMBERS)
texts = st.sampled_from(TEXTS)
attributes = st.sampled_from(sorted(NAMES)).map(lambda name: ("attribute", name))
number_literals = numbers.map(lambda number: ("number", number))
scalar_literals = st.one_of(
    number_literals,
    texts.map(lambda text: ("text", text)),
    st.booleans().map(lambda boolean: ("boolean", boolean)),
    st.sampled_from(MOMENTS).map(lambda moment: ("moment", moment)),
)
members = scalar_literals.filter(lambda literal: literal[0] != "moment")
set_literals = st.lists(members, max_size=3).map(lambda items: ("set", items))
arithmetic = st.recursive(
    attributes,
    lambda inner: st.tuples(
        st.just("arithmetic"), st.sampled_from("+-*/"), inner, st.one_of(inner, number_literals)
    ),
    max_leaves=3,
)
values = st.one_of(attributes, attributes, arithmetic, scalar_literals)
patterns = st.text("ab%_5", max_size=5)
tests = st.one_of(
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), values, values).filter(
        lambda tree: tree[1] in ("=", "<>") or "boolean" not in (tree[2][0], tree[3][0])
    ),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), attributes, set_literals),
    st.tuples(
        st.just("between"),
        st.booleans(),
        values,
        values.filter(_not_boolean := lambda v: v[0] != "boolean"),
        values.filter(_not_boolean),
    ).filter(lambda tree: tree[2][0] != "boolean"),
    st.tuples(st.just("in"), st.booleans(), values, st.lists(scalar_literals, min_size=1, max_size=3)),
    st.tuples(st.just("like"), st.booleans(), values, patterns),
    st.tuples(st.sampled_from(["starts", "ends"]), st.booleans(), values, texts),
    st.tuples(st.just("contains"), st.booleans(), values, members),
    st.tuples(
        st.just("subset"),
        st.booleans(),
        st.booleans(),
        st.one_of(attributes, set_literals),
        st.one_of(attributes, set_literals),
    ),
    st.tuples(st.just("null"), st.booleans(), values),
    st.tuples(st.just("truth"), attributes),
)
filters = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("not"), inner),
    ),
    max_leaves=6,
)

# Making messages at random costs more than matching them: one set of them serves all filters.
PROPERTY_TEXTS = [*TEXTS, *MOMENTS, *map(str, NUMBERS), '["a","5"]', "[1,true,null,[1]]", "[", "tRue"]
PROPERTY_TEXTS += ["1_0", " 1", "+1", "1e0", "9", "10", "9x"]
SCALARS = [*NUMBERS, *TEXTS, *MOMENTS, True, False, None]


def make_messages(count: int) -> list[Tree]:
    """Messages as (user properties, decoded payload)."""
    random_ = random.Random(7)
    made: list[Tree] = []
    for _ in range(count):
        names = random_.choices(["a", "b", "n.x", 'odd "name"'], k=random_.randrange(4))
        user_properties = tuple((name, random_.choice(PROPERTY_TEXTS)) for name in names)
        fields = random_.sample(["a", "b", "n", "list", 'odd "name"'], k=random_.randrange(6))
        payload: object = {name: make_json(random_, 2) for name in fields}
        made.append((user_properties, payload if random_.random() < 0.8 else make_json(random_, 2)))
    return made


def make_json(random_: random.Random, depth: int) -> object:
    form = random_.randrange(6) if depth else 0
    if form == 4:
        return [make_json(random_, depth - 1) for _ in range(random_.randrange(4))]
    return {"x": make_json(random_, depth - 1)} if form == 5 else random_.choice(SCALARS)


MESSAGES = make_messages(300)


# Writing a filter.


def write(tree: Tree) -> str:
    kind = tree[0]
    if kind == "attribute":
        return str(tree[1])
    if kind == "number":
        return repr(tree[1])
    if kind == "boolean":
        return str(tree[1]).upper()
    if kind == "text":
        return "'" + tree[1].replace("'", "''") + "'"
    if kind == "moment":
        return ("DATE" if len(tree[1]) == 10 else "TIMESTAMP") + f" '{tree[1]}'"
    if kind == "set":
        return "{" + ", ".join(map(write, tree[1])) + "}"
    if kind == "arithmetic":
        return f"({write(tree[2])} {tree[1]} {write(tree[3])})"
    return write_condition(tree)


def write_condition(tree: Tree) -> str:
    kind = tree[0]
    if kind in ("and", "or"):
        # AND binds tighter than OR: inside an OR it goes without parentheses.
        loose = ("and", "or") if kind == "and" else ("or",)
        parts = [f"({write(part)})" if part[0] in loose else write(part) for part in tree[1]]
        return f" {kind.upper()} ".join(parts)
    if kind == "not":
        return f"NOT ({write(tree[1])})"
    if kind == "compare":
        return f"{write(tree[2])} {tree[1]} {write(tree[3])}"
    if kind == "truth":
        return write(tree[1])
    if kind == "null":
        return f"{write(tree[2])} IS {'NOT ' if tree[1] else ''}NULL"
    if kind == "subset":
        words = ("NOT " if tree[1] else "") + ("PROPER " if tree[2] else "") + "SUBSET OF"
        return f"{write(tree[3])} {words} {write(tree[4])}"
    negation = "NOT " if tree[1] else ""
    if kind == "between":
        return f"{write(tree[2])} {negation}BETWEEN {write(tree[3])} AND {write(tree[4])}"
    if kind == "in":
        return f"{write(tree[2])} {negation}IN ({', '.join(map(write, tree[3]))})"
    if kind == "contains":
        return f"{write(tree[2])} {negation}CONTAINS {write(tree[3])}"
    word = {"like": "LIKE", "starts": "STARTS WITH", "ends": "ENDS WITH"}[kind]
    return f"{write(tree[2])} {negation}{word} {write(('text', tree[3]))}"


# Working a filter out. A value is (type, content); NULL is None.


def typed(decoded: object) -> Any:
    if decoded is None:
        return None
    if isinstance(decoded, bool):
        return ("boolean", decoded)
    if isinstance(decoded, int | float):
        return ("number", decoded)
    if isinstance(decoded, str):
        return ("text", decoded)
    if isinstance(decoded, list):
        return ("set", {member_of(item) for item in decoded})
    return ("object", None)


def member_of(item: object) -> Any:
    """Two items of a set are equal if they are of one type and equal."""
    scalar = typed(item)
    if scalar is None or scalar[0] in ("set", "object"):
        return ("json", json.dumps(item, sort_keys=True))
    return scalar


def look_up(name: str, message: Tree) -> Any:
    user_properties, payload = message
    source, segments = NAMES[name]
    if source == "topic":
        return ("text", "a/b")
    if source == "bare":
        for key, text in user_properties:
            if key == ".".join(segments):
                return ("property", text)
        if not isinstance(payload, dict):
            return None
    found = payload
    for segment in segments:
        if isinstance(found, dict):
            found = found.get(segment)
        elif isinstance(found, list) and segment.isdigit() and int(segment) < len(found):
            found = found[int(segment)]
        else:
            found = None
    return typed(found)


def as_number(value: Any) -> Any:
    if value and value[0] == "property":
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", value[1], re.IGNORECASE | re.ASCII):
            return None
        return int(value[1]) if re.fullmatch(r"[+-]?\d+", value[1], re.ASCII) else float(value[1])
    return value[1] if value and value[0] == "number" else None


def as_text(value: Any) -> Any:
    return value[1] if value and value[0] in ("property", "text") else None


def as_moment(value: Any) -> Any:
    if value is None or value[0] not in ("property", "text", "moment"):
        return None
    if not re.match(r"\d{4}-\d\d-\d\d", value[1]):
        return None
    moment = datetime.fromisoformat(value[1])
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def as_boolean(value: Any) -> Any:
    if value and value[0] == "property":
        return {"true": True, "false": False}.get(value[1].lower())
    return value[1] if value and value[0] == "boolean" else None


def as_set(value: Any) -> Any:
    if value and value[0] == "property":
        try:
            decoded = json.loads(value[1])
        except ValueError:
            return None
        return typed(decoded)[1] if isinstance(decoded, list) else None
    return value[1] if value and value[0] == "set" else None


READERS = {
    "number": as_number,
    "text": as_text,
    "moment": as_moment,
    "boolean": as_boolean,
    "set": as_set,
}


def compare(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    kinds = {left[0], right[0]}
    if kinds == {"property"}:
        both_numbers = as_number(left) is not None and as_number(right) is not None
        kind = "number" if both_numbers else "text"
    elif "moment" in kinds:
        kind = "moment"
    else:
        kinds.discard("property")
        if len(kinds) != 1:
            return None
        kind = kinds.pop()
    if kind == "object":
        return None
    first, second = READERS[kind](left), READERS[kind](right)
    if first is None or second is None:
        return None
    if kind == "number":
        first, second = Fraction(first), Fraction(second)
    if operator in ("=", "<>"):
        return bool((first == second) == (operator == "="))
    if kind in ("boolean", "set"):
        return None
    return bool(
        {"<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}[operator]
    )


def work_out_value(tree: Tree, message: Tree) -> Any:
    kind = tree[0]
    if kind == "attribute":
        return look_up(tree[1], message)
    if kind == "set":
        return ("set", {tuple(item) for item in tree[1]})
    if kind != "arithmetic":
        return tree
    left = as_number(work_out_value(tree[2], message))
    right = as_number(work_out_value(tree[3], message))
    if left is None or right is None:
        return None
    if tree[1] == "/":
        if right == 0:
            return None
        is_whole = isinstance(left, int) and isinstance(right, int)
        return ("number", math.trunc(Fraction(left, right)) if is_whole else left / right)
    result = {"+": left + right, "-": left - right, "*": left * right}[tree[1]]
    return ("number", result if abs(result) < 2**63 else float(result))


def negate(truth: bool | None, is_wanted: bool = True) -> bool | None:
    return truth if truth is None or not is_wanted else not truth


def all_of(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def work_out(tree: Tree, message: Tree) -> bool | None:
    kind = tree[0]
    if kind == "and":
        return all_of([work_out(part, message) for part in tree[1]])
    if kind == "or":
        return negate(all_of([negate(work_out(part, message)) for part in tree[1]]))
    if kind == "not":
        return negate(work_out(tree[1], message))
    if kind == "compare":
        return compare(tree[1], work_out_value(tree[2], message), work_out_value(tree[3], message))
    if kind == "truth":
        return as_boolean(work_out_value(tree[1], message))  # type: ignore[no-any-return]
    if kind == "subset":
        left = as_set(work_out_value(tree[3], message))
        right = as_set(work_out_value(tree[4], message))
        if left is None or right is None:
            return None
        return negate(left < right if tree[2] else left <= right, tree[1])
    value = work_out_value(tree[2], message)
    if kind == "null":
        return negate(value is None, tree[1])
    return negate(work_out_test(tree, value, message), tree[1])


def work_out_test(tree: Tree, value: Any, message: Tree) -> bool | None:
    kind = tree[0]
    if kind == "between":
        low, high = work_out_value(tree[3], message), work_out_value(tree[4], message)
        return all_of([compare(">=", value, low), compare("<=", value, high)])
    if kind == "in":
        return negate(all_of([negate(compare("=", value, item)) for item in tree[3]]))
    if kind == "contains":
        held = as_set(value)
        if held is not None:
            return tree[3] in held
        return tree[3][1] in as_text(value) if as_text(value) is not None and tree[3][0] == "text" else None
    text = as_text(value)
    if text is None:
        return None
    if kind == "starts":
        return bool(text[: len(tree[3])] == tree[3])
    if kind == "ends":
        return bool(text[::-1].startswith(tree[3][::-1]))
    expression = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in tree[3])
    return re.fullmatch(expression, text, re.DOTALL) is not None


def real(message: Tree) -> Attributes:
    user_properties, payload = message
    return Attributes(user_properties, json.dumps(payload).encode(), "a/b")


@settings(max_examples=250, deadline=None)
@given(filters)
def test_filters_match_as_the_naive_evaluator_says(tree: Tree) -> None:
    text = write(tree)
    predicate, opposite = parse(text), parse(f"NOT ({text})")

    for message in MESSAGES:
        attributes = real(message)
        truth = work_out(tree, message)
        assert predicate.matches(attributes) is (truth is True), (text, message)
        # A filter that is UNKNOWN matches neither way round.
        assert opposite.matches(attributes) is (truth is False), (text, message)


@settings(max_examples=60, deadline=None)
@given(filters)
def test_a_filter_matches_if_all_parts_of_a_conjunction_are_true(tree: Tree) -> None:
    predicate = parse(write(tree))

    for message in MESSAGES:
        attributes = real(message)
        found = any(all(part.evaluate(attributes) == 1 for part in row) for row in predicate.conjunctions)
        assert found is predicate.matches(attributes)
