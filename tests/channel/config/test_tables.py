"""Tables read key by key, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.channel.config.tables import FILE_BYTES_MAX, Document, key_text, read_duration, shown
from timebound.units import MILLISECOND

TEXT = """
text = "t"
texts = ["a", "b"]
whole = 7
flag = true
duration = "20ms"
[table]
key = 1
[[tables]]
key = 2
[[tables]]
key = 3
"""


def document(tmp_path: Path, content: str | bytes) -> Document:
    path = tmp_path / "channel.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Document(path)


def told(document: Document) -> list[str]:
    return [str(mistake).removeprefix(str(document.path)) for mistake in document.in_order()]


def test_values_of_every_kind_are_read(tmp_path: Path) -> None:
    read = document(tmp_path, TEXT)
    root = read.root

    assert root.text("text") == root.text("text", choices=("s", "t")) == "t"
    assert root.texts("texts") == ("a", "b")
    assert root.whole("whole", 0, 1, 9) == 7
    assert root.flag("flag", False)
    assert root.duration("duration") == 20 * MILLISECOND
    table = root.table("table")
    assert table is not None
    assert table.values() == {"key": 1}
    assert [entry.whole("key", 0, 1, 9) for entry in root.tables("tables")] == [2, 3]
    root.finish()
    table.finish()
    assert told(read) == []


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    read = document(tmp_path, "")
    root = read.root

    assert (root.text("a", "x"), root.texts("b"), root.whole("c", 3, 1, 2)) == ("x", (), 3)
    assert (root.flag("d", True), root.duration("e"), root.table("f"), root.tables("g")) == (
        True,
        0,
        None,
        [],
    )
    assert told(read) == []


def test_wrong_values_are_noted_and_reading_goes_on_with_the_default(tmp_path: Path) -> None:
    read = document(tmp_path, "a = 1\nb = 'x'\nc = true\nd = 1\ne = 1\nf = 1\ng = [1]\nh = ['']\ni = 'y'\n")
    root = read.root

    assert (root.text("a", "x"), root.texts("b"), root.whole("c", 3, 1, 2)) == ("x", (), 3)
    assert (root.flag("d", True), root.duration("e"), root.table("f"), root.tables("g")) == (
        True,
        0,
        None,
        [],
    )
    assert (root.texts("h"), root.text("i", "x1", ("x1", "y1"))) == ((), "x1")
    assert told(read) == [
        ":1: a: must be text in quotes, not 1",
        ':2: b: must be a list of texts like ["a", "b"], not \'x\'',
        ":3: c: must be a whole number from 1 to 2, not true",
        ":4: d: must be true or false, not 1",
        ':5: e: must be a duration in quotes like "20ms", not 1',
        ":6: f: must be a table, not 1; write its keys under [f]",
        ":7: g: must be a list of tables; write [[g]] above the keys of each",
        ':8: h: must be a list of texts like ["a", "b"], not [\'\']',
        ":9: i: must be 'x1' or 'y1', not 'y'; did you mean 'y1'?",
    ]


def test_required_text_says_what_it_is_for(tmp_path: Path) -> None:
    read = document(tmp_path, "[[a]]\nb = 1\n")
    (table,) = read.root.tables("a")

    assert table.required_text("name", "told apart by it") == ""
    assert told(read) == [":1: a[0].name: is required: told apart by it"]


def test_keys_that_nobody_asked_for_are_noted_with_what_was_meant(tmp_path: Path) -> None:
    read = document(tmp_path, "threads = 1\ntreads = 2\nother = 3\n")
    read.root.whole("threads", 1, 1, 9)
    read.root.finish()

    assert told(read) == [
        ":2: treads: unknown key; did you mean 'threads'?",
        ":3: other: unknown key; known are threads",
    ]


def test_hint_of_the_caller_stands_in_for_the_known_keys(tmp_path: Path) -> None:
    read = document(tmp_path, "other = 3\n")
    read.root.finish("; it is for lanes")

    assert told(read) == [":1: other: unknown key; it is for lanes"]


def test_mistakes_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    read = document(tmp_path, "a = 1\n[b]\nc = 2\n")
    read.note(("b", "c"), "third")
    read.note(("b", "missing"), "second")
    read.note(("a",), "first")

    assert told(read) == [":1: a: first", ":2: b.missing: second", ":3: b.c: third"]


def test_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (missing,) = Document(tmp_path / "missing.toml").mistakes
    assert str(missing).endswith("missing.toml: cannot be read: no such file or directory")

    assert told(document(tmp_path, b"a = 1\nb = '\xff'\n")) == [":2: is not UTF-8 text: byte 0xff"]
    (large,) = told(document(tmp_path, b"#" * (FILE_BYTES_MAX + 1)))
    assert "is it the right file" in large
    assert told(document(tmp_path, "a = " + "[" * 10_000))


def test_invalid_toml_is_told_with_its_line_and_the_root_is_empty(tmp_path: Path) -> None:
    read = document(tmp_path, "a = 1\n\nb = \n")

    assert told(read) == [":3: not valid TOML: invalid value"]
    assert read.root.values() == {}


def test_lines_are_counted_alike_with_windows_line_ends(tmp_path: Path) -> None:
    read = document(tmp_path, b"\xef\xbb\xbf# a comment\r\n\r\nname = 7\r\n")
    read.root.text("name")

    assert told(read) == [":3: name: must be text in quotes, not 7"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1.5s", 1500 * MILLISECOND), ("0", 0), ("soon", 0), (20, 0)],
)
def test_duration_that_is_wrong_is_noted_and_zero(value: object, expected: int, tmp_path: Path) -> None:
    read = document(tmp_path, "")

    assert read_duration(read, value, ("period",)) == expected
    assert len(read.mistakes) == (0 if expected else 1)


def test_keys_and_values_are_shown_as_people_write_them() -> None:
    assert key_text(("operations", 0, "depends_on", "any", 1)) == "operations[0].depends_on.any[1]"
    assert key_text(()) == ""
    assert [shown(value) for value in (True, "x", [1])] == ["true", "'x'", "[1]"]
    assert shown("x" * 100) == "'" + "x" * 59 + "…"
