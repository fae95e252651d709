"""`timebound mesh`: the map of a running mesh, the ways through it, and a check before it is started."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from timebound.commands._connection import Connecting, connects
from timebound.commands._options import Json
from timebound.commands._screen import FAILED, WRONG, fail, print_json, screen, show_error, show_notices

if TYPE_CHECKING:
    from timebound.config.mesh_plan import MeshPlan
    from timebound.config.reader import ConfigReader
    from timebound.errors import ConfigError

SIZE_FACTORS: Final = {None: 1, "K": 1_024, "M": 1_048_576}

app = typer.Typer(
    help="Show a mesh of brokers, the ways through it, or check one before it is started.",
    epilog="Examples:  timebound mesh  ·  timebound mesh --svg mesh.svg  ·  timebound mesh path a b",
)


@app.callback(invoke_without_command=True)
@connects
def show(
    context: typer.Context,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the map as a picture into this file.")
    ] = None,
    *,
    connecting: Connecting,
    as_json: Json = False,
) -> None:
    """Show the brokers and links of a mesh as a running broker knows them: who is up, and how links do.

    Delays are measured by the broker at the start of each link; queues, latency and loss are at most half a
    minute old.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return
    from timebound.commands._mesh_picture import picture
    from timebound.commands._mesh_tables import print_map
    from timebound.commands._requests import ask_map

    document = ask_map(connecting)
    if svg is not None:
        try:
            svg.write_text(picture(document), "utf-8")
        except OSError as error:
            fail(f"--svg: cannot write {str(svg)!r}: {error.strerror}", WRONG)
        screen.print(f"picture: {svg}")
    if as_json:
        print_json(document)
    else:
        print_map(document)


def _refuse_misplaced(context: typer.Context) -> None:
    """Refuse options before a further command, which would not see them."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--json" if name == "as_json" else f"--{name.replace('_', '-')}"
            command = context.invoked_subcommand
            raise typer.BadParameter(f"write it after the command: timebound mesh {command} ... {option}")


@app.command("path", epilog="Example:  timebound mesh path plant-1 plant-3 --deadline 200ms --size 2KB")
@connects
def path(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Broker of the publisher.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Broker of the subscriber.")],
    deadline: Annotated[
        str, typer.Option(help="Time that the message has, such as 200ms; left out: any.")
    ] = "",
    size: Annotated[str, typer.Option(help="Size of the message, such as 2KB.")] = "100",
    *,
    connecting: Connecting,
    as_json: Json = False,
) -> None:
    """Say which ways a message would take now, and its chance to be in time over each.

    Exit code 1 if no way leads there.
    """
    from timebound.commands._mesh_tables import print_ways
    from timebound.commands._mesh_ways import ways_between
    from timebound.commands._requests import ask_map
    from timebound.errors import TimeboundError, UnitError
    from timebound.units import MILLISECOND, parse_duration

    try:
        deadline_ms = parse_duration(deadline) / MILLISECOND if deadline else 0.0
        size_bytes = _read_size(size)
    except UnitError as error:
        raise typer.BadParameter(str(error)) from error
    document = ask_map(connecting)
    try:
        ways = ways_between(document, source, target, size_bytes, deadline_ms)
    except TimeboundError as error:
        fail(str(error), WRONG)
    if as_json:
        print_json([way.as_json() for way in ways])
    else:
        print_ways(ways, has_deadline=bool(deadline))
    if not ways:
        fail(f"no way leads from {source!r} to {target!r} now", FAILED)


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


def _read_size(text: str) -> int:
    """Read a number of bytes, perhaps with a unit: 2KB and 2KiB are 2,048."""
    from timebound.errors import UnitError

    found = re.fullmatch(r"([0-9]{1,9})\s*(?:B|(K|M)i?B)?", text.strip())
    if found is None:
        raise UnitError(f"{text!r} is not a size; write bytes like 500, or 2KB, 1MB")
    return int(found[1]) * SIZE_FACTORS[found[2]]


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
