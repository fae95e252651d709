"""Random content filters and messages; few names and values, so that they often meet."""

from __future__ import annotations

import json
import random

from hypothesis import strategies as st

NAMES = ["a", "b", "payload.a", "n.x", "payload.list", "payload.list.0", "payload", "$topic"]
names = st.sampled_from(NAMES)
numbers = st.sampled_from(["-3", "0", "1", "1.0", "2.5", "5", "1e300", "9007199254740993"])
texts = st.sampled_from(["''", "'a'", "'ab'", "'abc'", "'abcd'", "'5'", "'b/c'", "'true'"])
moments = st.sampled_from(["DATE '2026-01-31'", "TIMESTAMP '2026-01-31T12:00:00Z'"])
booleans = st.sampled_from(["TRUE", "FALSE"])
ordered = st.one_of(numbers, texts, moments)
scalars = st.one_of(ordered, booleans)
members = st.one_of(numbers, texts, booleans)
sets = st.lists(members, max_size=2).map(lambda items: "{" + ",".join(items) + "}")
patterns = st.sampled_from(["'a%'", "'%c'", "'%b%'", "'abc'", "'a_c%'", "'%_c'", "'%'", "'_%d'"])


def joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    strategies = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*strategies).map(" ".join)


comparisons = st.sampled_from(["<", "<=", ">", ">="])
tests = st.one_of(
    joined(names, st.sampled_from(["=", "<>"]), scalars),
    joined(names, comparisons, ordered),
    joined(ordered, comparisons, names),
    joined(names, comparisons, names),
    joined(names, "BETWEEN", ordered, "AND", ordered),
    joined(names, "BETWEEN", numbers, "AND", numbers),
    joined(names, "IN (", scalars, ",", scalars, ")"),
    joined(names, "LIKE", patterns),
    joined(names, "STARTS WITH", texts),
    joined(names, "ENDS WITH", texts),
    joined(names, "CONTAINS", members),
    joined(names, "SUBSET OF", sets),
    joined(sets, "PROPER SUBSET OF", names),
    joined(names, "=", sets),
    joined(names, "IS NULL"),
    joined(names, "IS NOT NULL"),
    joined(names, "+ 1", comparisons, numbers),
    names,
    booleans,
)
filters = st.recursive(
    tests,
    lambda inner: st.one_of(
        joined("(", inner, ") AND (", inner, ")"),
        joined("(", inner, ") OR (", inner, ")"),
        joined("NOT (", inner, ")"),
    ),
    max_leaves=5,
)

JSON_VALUES: list[object] = [
    -3,
    0,
    1,
    2,
    2.5,
    4,
    5,
    1e300,
    10**400,
    2**53,
    "a",
    "abc",
    "xabcx",
    "5",
    True,
    None,
]
JSON_VALUES += [
    "2026-01-31",
    "2026-01-31T18:00:00Z",
    [],
    [1],
    ["a", "abc"],
    [True, [1]],
    {"x": 1},
    {"x": "ab"},
]
PROPERTY_TEXTS = ["", "a", "abcd", "5", "1.0", "0", "true", "2026-01-31T13:00:00+01:00", '["a","abc"]', "[1]"]


def make_messages(count: int) -> list[tuple[tuple[tuple[str, str], ...], bytes, str]]:
    random_ = random.Random(7)
    made = []
    for _ in range(count):
        names = random_.sample(["a", "b", "n.x"], k=random_.randrange(3))
        fields = random_.sample(["a", "b", "n", "list"], k=random_.randrange(5))
        payload = {name: random_.choice(JSON_VALUES) for name in fields}
        encoded = json.dumps(payload if random_.random() < 0.8 else random_.choice(JSON_VALUES)).encode()
        user_properties = tuple((name, random_.choice(PROPERTY_TEXTS)) for name in names)
        made.append((user_properties, encoded, random_.choice(["a", "ab", "b/c", "abc"])))
    return made


MESSAGES = make_messages(150)
