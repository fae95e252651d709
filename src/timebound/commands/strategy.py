"""`timebound strategy`: show or change the scheduling strategy of a running broker."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from timebound.commands._connection import Connecting, connects
from timebound.commands._options import Json
from timebound.commands._renamed import renamed
from timebound.commands._screen import cell, print_whole
from timebound.terminal import safe

if TYPE_CHECKING:
    from timebound.core.link.strategy.base import StrategyKind

app = typer.Typer(help="Show or change the scheduling strategy of a running broker.", no_args_is_help=True)


@app.command(
    "list", epilog="Examples:  timebound strategy list  ·  timebound strategy list --port 1884 --json"
)
@connects
def list_(
    *,
    connecting: Connecting,
    as_json: Json = False,
) -> None:
    """Print all strategies, and which of them a running broker uses where."""
    from timebound.commands._requests import ask_strategies
    from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGIES
    from timebound.errors import ClientError

    in_use: dict[str, str] | None = None
    try:
        in_use = ask_strategies(connecting)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except ClientError as error:
        note = f"note: the strategies in use are unknown: {safe(str(error))}"
        Console(stderr=True, highlight=False).print(note, markup=False, soft_wrap=True)
    if as_json:
        rows = [
            {
                "name": name,
                "meaning": kind.meaning,
                "mix_percent": round(100 * kind.mix_default) if kind.takes_mix else None,
                "default": name == DEFAULT_STRATEGY,
                "used_by": None if in_use is None else _users_of(name, in_use),
            }
            for name, kind in STRATEGIES.items()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    columns = ("strategy", "what goes next", *(() if in_use is None else ("in use by",)))
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for name, kind in STRATEGIES.items():
        cells = [] if in_use is None else [", ".join(_users_of(name, in_use))]
        table.add_row(name, _shown(kind), *map(cell, cells), style="bold" if any(cells) else None)
    print_whole(table)


def _shown(kind: StrategyKind) -> str:
    """Return the meaning of a strategy, marked as the default, and with its default mix."""
    from timebound.core.link.strategy.registry import DEFAULT_STRATEGY

    mix = f" ({100 * kind.mix_default:.0f} % if not set)" if kind.takes_mix else ""
    return f"{'the default: ' if kind.name == DEFAULT_STRATEGY else ''}{kind.meaning}{mix}"


def _users_of(name: str, in_use: dict[str, str]) -> list[str]:
    """Return the listeners and links that use a strategy, with its mix where one was set."""
    users = []
    for user, setting in in_use.items():
        strategy, _, mix = setting.partition(" ")
        if strategy == name:
            users.append(f"{user} (mix {mix} %)" if mix else user)
    return users


@app.command(
    "set",
    epilog="Examples:  timebound strategy set fifo  ·  timebound strategy set ebpc --mix 70  ·  "
    "timebound strategy set worth --listener field",
)
@renamed({"mix": ("--weight",)})
@connects
def set_(
    name: Annotated[str, typer.Argument(help="One of `timebound strategy list`.")],
    listener: Annotated[
        str, typer.Option(help="Name of the listener, or of the neighbour; all of them by default.")
    ] = "",
    mix: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Part of the first aim in a strategy that mixes two: 100 is that aim alone, 0 the other; "
            "by default the strategy's own.",
        ),
    ] = None,
    *,
    connecting: Connecting,
) -> None:
    """Change the strategy of a running broker, for queued messages too; none is lost.

    It lasts until the broker stops; the next start takes the strategy of the configuration file.
    """
    from timebound.commands._requests import run_request

    request = f"control/strategy/{listener}" if listener else "control/strategy"
    payload = name if mix is None else f"{name} {mix}"
    code = run_request(connecting, request, payload)
    if code == 0:
        typer.echo(f"{listener or 'all listeners'}: {payload}")
    sys.exit(code)
