"""What commands print: errors, tables, progress bars; and the exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from rich.console import Console

from timebound.terminal import LINES, safe

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

FAILED: Final = 1
WRONG: Final = 2
FILE_WIDTH: Final = 120
WIDTH_MAX: Final = 10_000  # of a line in a file

screen = Console(stderr=True, highlight=False)


def fail(message: str, code: int) -> NoReturn:
    """Print an error and exit."""
    show_error(message)
    sys.exit(code)


def show_error(message: str) -> None:
    """Print an error to standard error."""
    from rich.markup import escape

    # The terminal wraps a line by itself; in a pipe or a file it stays one line.
    screen.print(f"[red]error:[/red] {escape(safe(message, keep=LINES))}", soft_wrap=True)


def show_notices(notices: Iterable[str]) -> None:
    """Print what should be changed in a file, though it can be used, to standard error."""
    from rich.markup import escape

    for notice in notices:
        screen.print(f"[yellow]note:[/yellow] {escape(safe(notice))}", soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value for programs: one JSON document."""
    typer.echo(json.dumps(value, indent=2))


def cell(text: str) -> str:
    """Escape client text for a table: neither markup nor control characters have an effect."""
    from rich.markup import escape

    from timebound.terminal import safe

    return escape(safe(text))


def printer() -> Console:
    """Return a console for tables: as wide as the terminal, or wide enough for a file."""
    console = Console()
    return console if console.is_terminal else Console(width=FILE_WIDTH)


def print_whole(table: Table) -> None:
    """Print a table of which nothing may be cut off: in a file it is as wide as it needs to be."""
    console = printer()
    if not console.is_terminal:
        needed = console.measure(table, options=console.options.update(max_width=WIDTH_MAX)).maximum
        console = Console(width=max(FILE_WIDTH, needed))
    console.print(table)


def progress_bar(console: Console) -> Progress:
    """Return a bar with counts and the remaining time; it vanishes when done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
