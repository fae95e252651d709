"""`timebound check`: every mistake in a configuration, in the file and in variables of the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from timebound.commands._screen import WRONG, print_json, show_error, show_notices

if TYPE_CHECKING:
    from timebound.config.renames import ConfigNotice
    from timebound.errors import ConfigError

EXAMPLES: Final = "Example:  timebound check timebound.toml"


def check(
    file: Annotated[
        Path | None, typer.Argument(help="The configuration to check; without it, the environment alone.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Check a configuration and explain every mistake in it; exit code 2 if there is one.

    Variables TIMEBOUND_CONFIG_... are checked with it.
    """
    from timebound.node.config import read_config

    config, mistakes = read_config(file, os.environ)
    name = "the environment" if file is None else str(file)
    if as_json:
        found = {
            "file": None if file is None else str(file),
            "ok": not mistakes,
            "mistakes": [_row(error, str(error)) for error in mistakes],
            "notices": [_row(notice, str(notice)) for notice in config.notices],
        }
        print_json(found)
    else:
        for error in mistakes:
            show_error(str(error))
        show_notices(map(str, config.notices))
        if not mistakes:
            typer.echo(f"{name}: ok")
    if mistakes:
        sys.exit(WRONG)


def _row(found: ConfigError | ConfigNotice, message: str) -> dict[str, str | int]:
    return {"path": found.path, "line": found.line, "key": found.key, "message": message}
