"""What commands print: text of others steers nothing, and errors have their form and exit code."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from rich.table import Table

from timebound.commands import _screen
from timebound.commands._screen import (
    cell,
    fail,
    print_json,
    print_whole,
    printer,
    progress_bar,
    show_error,
    show_notices,
)


def test_cell_of_a_table_shows_markup_and_escapes_as_text() -> None:
    console = Console(width=80, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(cell("a/[red]b\x1b[2J"))

    assert captured.get() == "a/[red]b\\x1b[2J\n"


def test_an_error_is_one_line_on_standard_error_however_long_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_error(f"[bold]a file[/bold] \x1b[2J {'x' * 500}")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: [bold]a file[/bold] \\x1b[2J {'x' * 500}\n"


def test_failing_prints_the_error_and_ends_with_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fail("no such file", _screen.WRONG)

    assert (ended.value.code, capsys.readouterr().err) == (2, "error: no such file\n")


def test_notices_are_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    show_notices(["t.toml:1: a: is now called 'b'", "t.toml:2: [c]: is old"])

    assert capsys.readouterr().err == "note: t.toml:1: a: is now called 'b'\nnote: t.toml:2: [c]: is old\n"


def test_programs_get_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"ok": True, "rows": [1, 2]})

    assert json.loads(capsys.readouterr().out) == {"ok": True, "rows": [1, 2]}


def test_tables_are_wide_enough_where_there_is_no_terminal() -> None:
    assert printer().width == _screen.FILE_WIDTH


def test_nothing_of_a_table_is_cut_off_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name", "size")
    table.add_row("x" * 300, "1")

    print_whole(table)

    assert "x" * 300 in capsys.readouterr().out


def test_a_bar_counts_and_vanishes(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(force_terminal=True, color_system=None, width=80)

    with progress_bar(console) as bar:
        task = bar.add_task("runs", total=4)
        bar.advance(task, 3)
        bar.refresh()
        assert "3/4" in capsys.readouterr().out

    assert bar.live.transient
