"""The command `timebound`. Each command imports what it needs when it runs.

Exit codes: 0 done, 1 the operation failed or was refused, 2 the call or a file is wrong, 130 Ctrl-C.
Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from timebound.commands import bench, bounds, control, demo, input, pipeline, pubsub, report, sim, sweep
from timebound.errors import ConfigError, TimeboundError, UnitError
from timebound.version import VERSION

FAILED = 1
WRONG = 2

app = typer.Typer(
    name="timebound",
    help="Publish/subscribe in which lateness counts: an MQTT broker with deadlines, prices and penalties.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)
# Panels of the help, in their order: what a newcomer needs first stands first.
RUN = "Run a broker"
TALK = "Publish and subscribe"
CHOOSE = "What a broker promises and chooses"
STUDY = "Measure, simulate, analyse"
err = Console(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def main() -> None:
    """Run the command line; errors made on purpose become one line and an exit code."""
    try:
        app()
    except (ConfigError, UnitError) as error:
        fail(str(error), WRONG)
    except (TimeboundError, OSError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def fail(message: str, code: int) -> NoReturn:
    show_error(message)
    sys.exit(code)


def show_error(message: str) -> None:
    # The terminal wraps a line by itself; in a pipe or a file it stays one line.
    err.print(f"[red]error:[/red] {_escape(message)}", soft_wrap=True)


def _escape(text: str) -> str:
    from rich.markup import escape

    from timebound.terminal import LINES, safe

    return escape(safe(text, keep=LINES))


def _print_version(wanted: bool) -> None:
    if wanted:
        from timebound.version import is_compiled

        typer.echo(f"timebound {VERSION} ({'compiled' if is_compiled() else 'plain Python'})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Publish/subscribe in which lateness counts."""


@app.command(
    rich_help_panel=RUN,
    epilog="Examples:  timebound serve  ·  timebound serve --config timebound.toml  ·  "
    "timebound serve --port 0 --data /var/lib/timebound",
)
def serve(
    config: Annotated[Path | None, typer.Option(help="TOML file; see docs/configuration.md.")] = None,
    host: Annotated[str | None, typer.Option(help="Address of the first listener.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the first listener; 0 takes a free one.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Directory of the stored sessions and messages.")] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Store nothing: all is lost at stop.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Start although the database lacks acknowledged messages.")
    ] = False,
) -> None:
    """Run the broker until Ctrl-C."""
    from timebound.node.serve import run

    sys.exit(run(config, host, port, data, is_persistent=not memory, accept_loss=accept_loss))


@app.command(rich_help_panel=RUN, epilog="Example:  timebound check timebound.toml")
def check(
    file: Annotated[Path, typer.Argument(help="The configuration to check.")], as_json: Json = False
) -> None:
    """Check a configuration and explain every mistake in it; exit code 2 if there is one."""
    from timebound.node.config import read_config

    _, mistakes = read_config(file)
    if as_json:
        rows = [
            {"path": error.path, "line": error.line, "key": error.key, "message": str(error)}
            for error in mistakes
        ]
        typer.echo(json.dumps({"file": str(file), "ok": not mistakes, "mistakes": rows}, indent=2))
    else:
        for error in mistakes:
            show_error(str(error))
        if not mistakes:
            typer.echo(f"{file}: ok")
    if mistakes:
        sys.exit(WRONG)


@app.command(
    rich_help_panel=RUN,
    epilog="Examples:  timebound passwd users.txt anna  ·  echo secret | timebound passwd users.txt anna  ·  "
    "timebound passwd users.txt anna --delete",
)
def passwd(
    file: Annotated[Path, typer.Argument(help="The password file; made if missing.")],
    user: Annotated[str, typer.Argument(help="The user name.")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
) -> None:
    """Set or remove a user's password. It is asked for, or read from standard input."""
    from timebound.node.login.passwords import PasswordFile, user_name_problem

    problem = "" if delete else user_name_problem(user)
    if problem:
        fail(problem, WRONG)
    users = PasswordFile.load(file) if file.exists() else PasswordFile(file)
    if delete:
        if not users.remove(user):
            fail(f"user {user!r} is not in {file}", FAILED)
    else:
        try:
            users.set(user, _ask_password())
        except ValueError as error:
            fail(str(error), WRONG)
    users.save()
    typer.echo(f"{file}: {'removed' if delete else 'set'} {user}")


def _ask_password() -> str:
    if sys.stdin.isatty():
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        return asked
    try:
        return sys.stdin.readline().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"the password is not text in {error.encoding}") from error


# Here, because help lists commands in the order they are named.
app.command("pub", epilog=pubsub.PUB_EXAMPLES, rich_help_panel=TALK)(pubsub.pub)
app.command("sub", epilog=pubsub.SUB_EXAMPLES, rich_help_panel=TALK)(pubsub.sub)
app.command("bounds", epilog=bounds.EXAMPLES, rich_help_panel=CHOOSE)(bounds.bounds)
app.command("calibrate", epilog="Example:  timebound calibrate --duration 5s", rich_help_panel=CHOOSE)(
    input.calibrate
)
app.command("sweep", epilog=sweep.EXAMPLES, rich_help_panel=STUDY)(sweep.sweep)
app.command("report", epilog=report.EXAMPLES, rich_help_panel=STUDY)(report.report)
app.add_typer(control.app, name="strategy", rich_help_panel=CHOOSE)
app.add_typer(input.app, name="weight", rich_help_panel=CHOOSE)
app.add_typer(demo.app, name="demo", rich_help_panel=STUDY)
app.add_typer(bench.app, name="bench", rich_help_panel=STUDY)
app.add_typer(sim.app, name="sim", rich_help_panel=STUDY)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=STUDY)
