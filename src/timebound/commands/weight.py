"""`timebound weight`: show or change the input weights of topics in a running broker."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.table import Table

from timebound.commands._connection import Connecting, connects
from timebound.commands._options import Json
from timebound.commands._screen import cell, print_whole

app = typer.Typer(help="Show or change the input weights of topics.", no_args_is_help=True)


@app.command("set", epilog="Example:  timebound weight set 'alarm/#' 10")
@connects
def set_(
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A topic filter; '#' is the default.")
    ],
    weight: Annotated[int, typer.Argument(min=1, max=1023, help="Turns in a cycle.")],
    *,
    connecting: Connecting,
) -> None:
    """Set the weight of topics; refused if it would break the delay bound of an admitted flow.

    It lasts until the broker stops; the next start takes the weights of the configuration file.
    """
    _request(connecting, f"{topic_filter} {weight}", f"{topic_filter}: {weight}")


@app.command("remove", epilog="Example:  timebound weight remove 'alarm/#'")
@connects
def remove(
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A filter of `timebound weight list`, but not '#'.")
    ],
    *,
    connecting: Connecting,
) -> None:
    """Remove the weight of a filter: its topics get that of the next filter that matches.

    It lasts until the broker stops; the next start takes the weights of the configuration file.
    """
    _request(connecting, f"{topic_filter} -", f"{topic_filter}: removed")


def _request(connecting: Connecting, payload: str, done: str) -> None:
    """Ask a running broker to change a weight, and exit; a refusal is printed with its reason."""
    from timebound.commands._requests import run_request

    code = run_request(connecting, "control/weight", payload)
    if code == 0:
        typer.echo(done)
    sys.exit(code)


@app.command("list", epilog="Examples:  timebound weight list  ·  timebound weight list --json")
@connects
def list_(
    *,
    connecting: Connecting,
    as_json: Json = False,
) -> None:
    """Print the weights of topics, and the share of the service rate that each gets under load."""
    from timebound.commands._requests import ask_bounds

    topics = ask_bounds(connecting)["topics"]
    if as_json:
        typer.echo(json.dumps(topics, indent=2))
        return
    table = Table("topics", "weight", "share", box=None, pad_edge=False, header_style="bold")
    for row in topics:
        table.add_row(cell(row["topic"]), str(row["weight"]), f"{row['share']:.1%}")
    print_whole(table)
