"""`timebound check`: every mistake in a configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from timebound.commands._screen import WRONG, print_json, show_error

EXAMPLES: Final = "Example:  timebound check timebound.toml"


def check(
    file: Annotated[Path, typer.Argument(help="The configuration to check.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Check a configuration and explain every mistake in it; exit code 2 if there is one."""
    from timebound.node.config import read_config

    _, mistakes = read_config(file)
    if as_json:
        rows = [
            {"path": error.path, "line": error.line, "key": error.key, "message": str(error)}
            for error in mistakes
        ]
        print_json({"file": str(file), "ok": not mistakes, "mistakes": rows})
    else:
        for error in mistakes:
            show_error(str(error))
        if not mistakes:
            typer.echo(f"{file}: ok")
    if mistakes:
        sys.exit(WRONG)
