"""TOML values by key: what each accepts, and where a mistake is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.errors import ConfigError
from timebound.sim.scenario.reader import ScenarioTable, read_document
from timebound.units import SECOND


def read(folder: Path, text: str) -> ScenarioTable:
    path = folder / "scenario.toml"
    path.write_text(text, encoding="utf-8")
    return read_document(path)


def table(**values: Any) -> ScenarioTable:
    """A table of these values at line 1 of a file."""
    return ScenarioTable(values, Path("scenario.toml"), {}, ())


def test_values_are_read_by_kind(tmp_path: Path) -> None:
    document = read(
        tmp_path,
        'name = "x"\ncount = 3\nshare = 0.5\nis_on = true\nwait = "2s"\nseeds = [1, 2]\nwords = ["a", "b"]\n',
    )

    assert document.text("name") == "x"
    assert document.whole("count") == 3
    assert document.number("share") == 0.5
    assert document.number("count") == 3.0
    assert document.flag("is_on", False) is True
    assert document.duration("wait") == 2 * SECOND
    assert document.whole_list("seeds", (9,)) == (1, 2)
    assert document.text_list("words") == ("a", "b")
    document.finish()


def test_all_of_a_table_is_taken_as_it_is_written() -> None:
    wanted = table(period="100ms", burst=2, rate=2.5)

    assert wanted.plain_texts() == (("period", "100ms"), ("burst", "2"), ("rate", "2.5"))
    wanted.finish()
    with pytest.raises(ConfigError, match="True is neither a text nor a number"):
        table(burst=True).plain_texts()


def test_a_key_that_may_be_there_is_known() -> None:
    wanted = table(keep="last")

    assert [wanted.may_have(key) for key in ("keep", "notify")] == [True, False]
    wanted.finish()


def test_a_whole_number_has_a_greatest_value() -> None:
    with pytest.raises(ConfigError, match="qos: 3 is too large; expected at most 2"):
        table(qos=3).whole("qos", 0, most=2)


def test_what_is_missing_has_its_default() -> None:
    empty = table()

    assert empty.text("a", "x") == "x"
    assert empty.whole("b", 0) == 0
    assert empty.number("c", 0.25) == 0.25
    assert empty.flag("d", True) is True
    assert empty.duration("e", "1s") == SECOND
    assert empty.whole_list("f", (9,)) == (9,)
    assert empty.text_list("g") == ()
    assert empty.draw("h", 4.0).numbers == (4.0,)
    assert empty.tables("i") == []
    assert not empty.has("a")


WRONG: list[tuple[Any, Callable[[ScenarioTable], object], str]] = [
    (1, lambda one: one.text("key"), "1"),
    (
        "blue",
        lambda one: one.text("key", choices=("red", "green")),
        "'blue' is unknown; choose one of red, green",
    ),
    (True, lambda one: one.whole("key"), "True"),
    (1.5, lambda one: one.whole("key"), "1.5"),
    (2, lambda one: one.whole("key", least=3), "2 is too small; expected at least 3"),
    (False, lambda one: one.number("key"), "False"),
    (2, lambda one: one.number("key", most=1.0), "2 is out of range; expected 0 to 1"),
    (-1, lambda one: one.number("key"), "-1 is out of range; expected at least 0"),
    (1, lambda one: one.flag("key", True), "1 is neither true nor false"),
    ("soon", lambda one: one.duration("key"), "'soon' is not a duration"),
    ([], lambda one: one.whole_list("key", (1,)), r"\[\]"),
    ([True], lambda one: one.whole_list("key", (1,)), r"\[True\]"),
    ([1, 0], lambda one: one.whole_list("key", (1,)), "0 is too small; expected at least 1"),
    (["a", 1], lambda one: one.text_list("key"), "'a', 1"),
    (3, lambda one: one.table("key"), "3"),
    ([3], lambda one: one.tables("key"), r"write \[\[key\]\]"),
    ("x", lambda one: one.draw("key"), "'x' is neither a number nor a distribution"),
    ({}, lambda one: one.draw("key"), "{} names 0 distributions; expected one of uniform"),
    ({"uniform": [1, 2], "normal": [1, 2]}, lambda one: one.draw("key"), "names 2 distributions"),
    ({"uniform": ["a", "b"]}, lambda one: one.draw("key"), "number"),
    ({"uniform": [1]}, lambda one: one.draw("key"), "uniform has 1 numbers; expected 2"),
    ({"normal": [5, 1]}, lambda one: one.draw("key"), "can be below 0"),
]


@pytest.mark.parametrize(("value", "take", "message"), WRONG)
def test_a_wrong_value_is_named_with_its_key(
    value: Any, take: Callable[[ScenarioTable], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        take(table(key=value))

    assert (caught.value.path, caught.value.line, caught.value.key) == ("scenario.toml", 1, "key")


def test_a_key_without_default_must_be_there() -> None:
    with pytest.raises(ConfigError, match="key 'rate' is missing"):
        table().number("rate")


def test_a_mistake_in_an_array_of_tables_is_named_by_line_and_index(tmp_path: Path) -> None:
    document = read(tmp_path, "[[links]]\nrate = 1\n\n[[links]]\nrate = 'x'\n")
    _, second = document.tables("links")

    with pytest.raises(ConfigError) as caught:
        second.number("rate")

    assert (caught.value.line, caught.value.key) == (5, "links[1].rate")


def test_a_mistake_in_a_table_that_is_not_there_names_the_first_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'rate' is missing") as caught:
        read(tmp_path, "\n\nname = 'x'\n").table("links").number("rate")

    assert (caught.value.line, caught.value.key) == (1, "links")


def test_an_array_that_is_needed_cannot_be_empty() -> None:
    with pytest.raises(ConfigError, match=r"\[\[links\]\]"):
        table().tables("links", is_needed=True)


def test_a_distribution_may_have_a_minimum() -> None:
    draw = table(size={"normal": [50, 10], "min": 1}).draw("size", least=1.0)

    assert (draw.kind, draw.numbers, draw.least) == ("normal", (50.0, 10.0), 1.0)


def test_distributions_are_read_by_name() -> None:
    draws = table(attributes={"a": 1, "b": {"uniform": [-3, 3]}}).draws("attributes")

    assert [(name, draw.kind, draw.numbers) for name, draw in draws] == [
        ("a", "fixed", (1.0,)),
        ("b", "uniform", (-3.0, 3.0)),
    ]


def test_a_key_that_nobody_asked_for_is_unknown() -> None:
    one = table(rate=1, lattency=2)
    one.number("rate")
    one.text("latency", "")

    with pytest.raises(ConfigError, match="unknown key; did you mean 'latency'") as caught:
        one.finish()

    assert caught.value.key == "lattency"


def test_a_key_like_no_other_is_answered_with_those_there_are() -> None:
    one = table(zzz=2)
    one.text("latency", "")
    one.number("rate", 1.0)

    with pytest.raises(ConfigError, match="unknown key; known are latency, rate"):
        one.finish()


def test_a_check_that_fails_is_a_mistake_under_its_key() -> None:
    def refuse() -> None:
        raise ValueError("it cannot be")

    assert table().checked("where", lambda: 3) == 3
    with pytest.raises(ConfigError, match="it cannot be") as caught:
        table().checked("where", refuse)
    assert caught.value.key == "where"


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"a = 1\nb = \n", 2, "not valid TOML"),
        (b"a = 1\nb = [1,\n", 3, "not valid TOML"),
        (b"a = '\xff'", None, "cannot be read"),
    ],
)
def test_a_file_that_is_not_toml_is_refused(
    tmp_path: Path, content: bytes, line: int | None, message: str
) -> None:
    path = tmp_path / "scenario.toml"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=message) as caught:
        read_document(path)

    assert caught.value.path == str(path)
    if line is not None:
        assert caught.value.line == line


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path / "none.toml")


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)), st.sets(st.sampled_from("abcdef")))
def test_finish_complains_exactly_where_a_key_was_not_asked_for(
    values: dict[str, int], asked: set[str]
) -> None:
    one = table(**values)
    for key in sorted(asked):
        assert one.whole(key, 0) == values.get(key, 0)

    if set(values) <= asked:
        one.finish()
    else:
        with pytest.raises(ConfigError) as caught:
            one.finish()
        assert caught.value.key in set(values) - asked
