"""`timebound strategy`: see and change by which strategy a running broker chooses what goes next."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from timebound.commands import pubsub_options as given

if TYPE_CHECKING:
    from timebound.pubsub import Connecting

app = typer.Typer(help="Show or change the scheduling strategy of a running broker.", no_args_is_help=True)

_MEANING = {
    "fifo": "the one that came first",
    "fixed": "the highest priority, then the first",
    "remaining-lifetime": "the shortest remaining lifetime, averaged over its subscriptions",
    "eb": "the largest expected benefit: price times chance of being in time",
    "pc": "the largest cost of sending another one first",
    "ebpc": "a mean of the two; the weight is that of eb, 50 % if not given",
    "mtep": "earning and penalty together; the weight is that of earning, 40 % if not given",
    "worth": "the default: what is at stake for its sending time, sooner the less it can wait",
}


@app.command("list", epilog="Example:  timebound strategy list")
def list_(as_json: given.Json = False) -> None:
    """Print the strategies by which a link can choose."""
    from timebound.core.scheduling import DEFAULT_SCHEDULING, STRATEGY_NAMES

    if as_json:
        rows = [
            {"name": name, "meaning": _MEANING[name], "default": name == DEFAULT_SCHEDULING.name}
            for name in STRATEGY_NAMES
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("strategy", "what goes next", box=None, pad_edge=False, header_style="bold")
    for name in STRATEGY_NAMES:
        table.add_row(name, _MEANING[name])
    Console().print(table)


@app.command(
    "set",
    epilog="Examples:  timebound strategy set fifo  ·  timebound strategy set ebpc --weight 70  ·  "
    "timebound strategy set worth --listener field",
)
@given.connects
def set_(
    name: Annotated[str, typer.Argument(help="One of `timebound strategy list`.")],
    listener: Annotated[
        str, typer.Option(help="The listener's name in the configuration; all of them if not given.")
    ] = "",
    weight: Annotated[
        int | None, typer.Option(min=0, max=100, help="r of ebpc, w of mtep, in percent.")
    ] = None,
    *,
    connecting: Connecting,
) -> None:
    """Change the strategy of a running broker, for waiting messages too; none is lost.

    It lasts until the broker stops: the configuration file says what it starts with.
    """
    from timebound.pubsub import run_request

    request = f"control/strategy/{listener}" if listener else "control/strategy"
    payload = name if weight is None else f"{name} {weight}"
    code = run_request(connecting, request, payload)
    if code == 0:
        typer.echo(f"{listener or 'all listeners'}: {payload}")
    sys.exit(code)
