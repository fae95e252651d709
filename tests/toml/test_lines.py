"""Lines of TOML keys, compared with what tomllib reads."""

from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.toml.lines import KeyPath, key_lines


def paths_of(value: object, at: KeyPath = ()) -> set[KeyPath]:
    """Every table, key and element of a document as tomllib sees it."""
    found: set[KeyPath] = set()
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= {(*at, key)} | paths_of(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found |= {(*at, index)} | paths_of(inner, (*at, index))
    return found


def test_every_form_of_key_has_its_line() -> None:
    text = "\n".join(
        [
            "# a comment with a = sign",  # 1
            "top = 1 # trailing [not.a.table]",  # 2
            "dotted.key.deep = 'x#y'",  # 3
            '"quoted \\"key\\" \\u00e9" = "a\\"b"',  # 4
            "'literal.key' . second = 1979-05-27 07:32:00",  # 5
            "[table] # comment",  # 6
            "list = [ # comment ]",  # 7
            "  1, 'two ]',",  # 8
            "  { inner = 3, deep.er = [4,",  # 9
            "     5] },",  # 10
            "]",  # 11
            '[table . "sub table"]',  # 12
            "x = true",  # 13
            "[[listeners]]",  # 14
            "host = 'a'",  # 15
            "[listeners.tls]",  # 16
            "key = 'k'",  # 17
            "[[listeners]]",  # 18
            "tls.key = 'l'",  # 19
            "[[listeners.more]]",  # 20
            "y = 1",  # 21
            "[[listeners.more]]",  # 22
            "y = 2",  # 23
        ]
    )

    lines = key_lines(text)

    assert lines[("top",)] == 2
    assert lines[("dotted", "key", "deep")] == lines[("dotted",)] == 3
    assert lines[('quoted "key" é',)] == 4
    assert lines[("literal.key", "second")] == 5
    assert lines[("table",)] == 6
    assert lines[("table", "list")] == 7
    assert lines[("table", "list", 1)] == 8
    assert lines[("table", "list", 2, "deep", "er")] == 9
    assert lines[("table", "list", 2, "deep", "er", 1)] == 10
    assert lines[("table", "sub table", "x")] == 13
    assert lines[("listeners", 0)] == 14
    assert lines[("listeners", 0, "tls", "key")] == 17
    assert lines[("listeners", 1)] == 18
    assert lines[("listeners", 1, "tls", "key")] == 19
    assert lines[("listeners", 1, "more", 0, "y")] == 21
    assert lines[("listeners", 1, "more", 1, "y")] == 23
    assert set(lines) == paths_of(tomllib.loads(text))


def test_multi_line_strings_are_stepped_over() -> None:
    text = "\n".join(
        [
            'a = """one',  # 1
            'b = 2 \\""" still',  # 2
            '[c] """"',  # 3: a quote of its own, then the end
            "d = '''x",  # 4
            "e = 5'''''",  # 5: two quotes of its own, then the end
            'f = """"""',  # 6
            "g = ''''''",  # 7
            'h = ""',  # 8
            "i = ''",  # 9
            'j = ["""',  # 10
            '""", 1]',  # 11
        ]
    )

    lines = key_lines(text)

    assert {path: line for path, line in lines.items() if len(path) == 1} == {
        ("a",): 1,
        ("d",): 4,
        ("f",): 6,
        ("g",): 7,
        ("h",): 8,
        ("i",): 9,
        ("j",): 10,
    }
    assert lines[("j", 1)] == 11
    assert set(lines) == paths_of(tomllib.loads(text))


names = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", '"g\\u0041"', "_h"])
scalars = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "true",
        "nan",
        "1979-05-27 07:32:00",
        '"x#"',
        "'y]'",
        '"""\nm\n"""',
        "'''\n[n]\n'''",
        '"\\""',
    ]
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(inner, max_size=3).map(
            lambda items: "[ # ]\n" + "".join(f"{item} ,\n" for item in items) + "]"
        ),
        st.tuples(names, inner).map(lambda pair: f"{{ {pair[0]}.x = {pair[1]} , y={pair[1]} }}"),
    ),
    max_leaves=5,
)
statements = st.one_of(
    st.tuples(names, values).map(lambda pair: f"{pair[0]} = {pair[1]} # note"),
    st.tuples(names, names, values).map(lambda parts: f"{parts[0]}.{parts[1]}={parts[2]}"),
    names.map(lambda name: f"[ {name} ]"),
    st.tuples(names, names).map(lambda pair: f"[{pair[0]}.{pair[1]}]"),
    names.map(lambda name: f"[[{name}]]"),
    st.sampled_from(["", "# [comment]", "   "]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(statements, max_size=8))
def test_the_scanner_finds_exactly_the_keys_that_tomllib_finds(parts: list[str]) -> None:
    # Keep the longest beginning that is valid: random documents define keys twice.
    text = ""
    starts: list[int] = []
    for part in parts:
        try:
            tomllib.loads(text + part + "\n")
        except tomllib.TOMLDecodeError:
            continue
        starts.append(text.count("\n") + 1)
        text += part + "\n"

    lines = key_lines(text)

    assert set(lines) == paths_of(tomllib.loads(text))
    # A key or header that stands at the start of a statement is on that statement's line.
    assert all(1 <= line <= text.count("\n") for line in lines.values())
    assert {line for path, line in lines.items() if len(path) == 1} <= set(starts)
