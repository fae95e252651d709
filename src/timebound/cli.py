"""The command `timebound`: wires the commands and maps errors to exit codes.

Exit codes: 0 done, 1 the operation failed or was refused, 2 the call or a file is wrong, 130 Ctrl-C.
Results go to standard output, everything else to standard error. Each command imports what it needs when it
runs, so that none pays for the others.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from timebound.commands import (
    bench,
    bounds,
    calibrate,
    check,
    demo,
    explain,
    init,
    mesh,
    passwd,
    pipeline,
    pub,
    report,
    serve,
    sim,
    strategy,
    sub,
    sweep,
    weight,
)
from timebound.commands._screen import FAILED, WRONG, fail
from timebound.errors import ConfigError, TimeboundError, UnitError
from timebound.version import VERSION

INTERRUPTED = 130  # as shells say it: 128 and the number of SIGINT

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
CHOOSE = "Delay bounds and scheduling"
STUDY = "Measure, simulate, analyse"


def main() -> None:
    """Run the command line; errors made on purpose become one line and an exit code."""
    try:
        app()
    except (ConfigError, UnitError) as error:
        fail(str(error), WRONG)
    except (TimeboundError, OSError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


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


# Help lists commands in this order.
for command, panel in (
    (serve, RUN),
    (init, RUN),
    (check, RUN),
    (passwd, RUN),
    (pub, TALK),
    (sub, TALK),
    (bounds, CHOOSE),
    (calibrate, CHOOSE),
    (sweep, STUDY),
    (report, STUDY),
    (explain, STUDY),
):
    name = command.__name__.rpartition(".")[2]
    app.command(name, epilog=command.EXAMPLES, rich_help_panel=panel)(getattr(command, name))
for group, panel in (
    (mesh, RUN),
    (strategy, CHOOSE),
    (weight, CHOOSE),
    (demo, STUDY),
    (bench, STUDY),
    (sim, STUDY),
    (pipeline, STUDY),
):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2], rich_help_panel=panel)
