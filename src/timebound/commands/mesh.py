"""`timebound mesh`: check a mesh before it is started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timebound.commands._options import Json
from timebound.commands._screen import WRONG, print_json, show_error, show_notices

if TYPE_CHECKING:
    from timebound.config.mesh_plan import MeshPlan
    from timebound.config.reader import ConfigReader
    from timebound.errors import ConfigError

app = typer.Typer(help="Check a mesh of brokers.", no_args_is_help=True)


@app.command("check", epilog="Example:  timebound mesh check plant-1.toml plant-2.toml")
def check(
    files: Annotated[list[Path], typer.Argument(help="The configurations of all brokers of the mesh.")],
    as_json: Json = False,
) -> None:
    """Find what cannot work in a mesh before anything is started; exit code 2 if something is found.

    Links that nobody accepts, names twice, wrong users, passwords and certificates, brokers that no link
    joins with the rest, and every mistake in a file. Nothing is started, and no network is used.
    """
    from timebound.commands._mesh_logins import try_logins
    from timebound.config.mesh_plan import MeshPlan

    read, mistakes = _read(files)
    plan = MeshPlan(read, is_complete=len(read) == len(files))
    try_logins(plan)
    for _, reader in read:
        mistakes += sorted(reader.mistakes, key=lambda mistake: mistake.line)
    if as_json:
        print_json(_document(files, plan, mistakes))
    else:
        for mistake in mistakes:
            show_error(str(mistake))
        show_notices(map(str, plan.notices))
        if not mistakes:
            brokers, links = len(plan.brokers), len(plan.pairs())
            typer.echo(f"ok: {_counted(brokers, 'broker')}, {_counted(links, 'link')}")
    if mistakes:
        sys.exit(WRONG)


def _read(files: list[Path]) -> tuple[list[tuple[str, ConfigReader]], list[ConfigError]]:
    """Read the files; one that cannot be read at all is a mistake, and left out."""
    from timebound.errors import ConfigError
    from timebound.node.config import open_config

    read: list[tuple[str, ConfigReader]] = []
    mistakes: list[ConfigError] = []
    for file in files:
        try:
            read.append((str(file), open_config(file, is_persistent=False)))
        except ConfigError as error:
            mistakes.append(error)
    return read, mistakes


def _document(files: list[Path], plan: MeshPlan, mistakes: list[ConfigError]) -> dict[str, object]:
    return {
        "files": list(map(str, files)),
        "ok": not mistakes,
        "brokers": list(plan.brokers),
        "links": [list(pair) for pair in plan.pairs()],
        "mistakes": [
            {"path": one.path, "line": one.line, "key": one.key, "message": str(one)} for one in mistakes
        ],
        "notices": [
            {"path": one.path, "line": one.line, "key": one.key, "message": str(one)} for one in plan.notices
        ],
    }


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
