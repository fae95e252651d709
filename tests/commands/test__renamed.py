"""Old spellings of options: read like the new ones, hidden, and a mistake beside them."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from timebound.commands._renamed import parameters_of, renamed, with_signature


def call(*words: str) -> tuple[list[dict[str, Any]], Result]:
    """What a command with renamed options is given, and how it ended."""
    found: list[dict[str, Any]] = []
    small = typer.Typer()

    @small.command()
    @renamed({"mix": ("--weight",), "out_file": ("--out", "--to")})
    def command(
        name: Annotated[str, typer.Argument()],
        mix: Annotated[int, typer.Option(min=0, max=100, help="The mix.")] = 50,
        out_file: Annotated[str | None, typer.Option("--out-file", "-o")] = None,
    ) -> None:
        """Do it."""
        found.append({"name": name, "mix": mix, "out_file": out_file})

    done = CliRunner().invoke(small, list(words), env={"COLUMNS": "200"})
    return found, done


@pytest.mark.parametrize("words", [("--mix", "7"), ("--weight", "7")])
def test_both_spellings_are_read(words: tuple[str, ...]) -> None:
    found, _ = call("a", *words)

    assert found == [{"name": "a", "mix": 7, "out_file": None}]


@pytest.mark.parametrize("spelling", ["--out-file", "-o", "--out", "--to"])
def test_an_option_may_have_had_several_spellings(spelling: str) -> None:
    assert call("a", spelling, "x")[0] == [{"name": "a", "mix": 50, "out_file": "x"}]


def test_the_old_spelling_has_the_same_range() -> None:
    found, done = call("a", "--weight", "101")

    assert found == []
    assert done.exit_code == 2
    assert "--weight" in done.output


def test_both_at_once_are_a_mistake_that_names_the_new_one() -> None:
    _, by_name = call("a", "--mix", "1", "--weight", "2")
    _, by_spelling = call("a", "-o", "x", "--to", "y")

    assert "--mix and --weight are the same option; use --mix alone" in by_name.output
    assert "--out-file and --to are the same option; use --out-file alone" in by_spelling.output


def test_help_shows_the_new_spelling_alone() -> None:
    _, done = call("--help")

    assert "--mix" in done.output
    assert "The mix." in done.output
    for old in ("--weight", "--out ", "--to"):
        assert old not in done.output


def test_a_command_keeps_its_name_and_help_under_another_signature() -> None:
    def command(one: int, two: str = "x") -> None:
        """Do it."""

    def run(**values: Any) -> None:
        raise AssertionError

    made = with_signature(command, run, parameters_of(command)[:1])

    assert (made.__name__, made.__doc__) == ("command", "Do it.")
    assert [(one.name, one.annotation) for one in parameters_of(made)] == [("one", int)]
