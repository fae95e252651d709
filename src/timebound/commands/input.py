"""`timebound weight` and `timebound calibrate`: the input of a running broker, and of this machine."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from timebound.commands import pubsub_options as given

if TYPE_CHECKING:
    from timebound.pubsub import Connecting

app = typer.Typer(help="How often a running broker takes in messages of a topic.", no_args_is_help=True)


@app.command("set", epilog="Example:  timebound weight set 'alarm/#' 10")
@given.connects
def set_(
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A topic filter; '#' is the default.")
    ],
    weight: Annotated[int, typer.Argument(min=1, max=1023, help="Turns in a cycle.")],
    *,
    connecting: Connecting,
) -> None:
    """Give topics a weight, unless that would break what was promised to a flow.

    It lasts until the broker stops: the configuration file says what it starts with.
    """
    _request(connecting, f"{topic_filter} {weight}", f"{topic_filter}: {weight}")


@app.command("remove", epilog="Example:  timebound weight remove 'alarm/#'")
@given.connects
def remove(
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A filter of `timebound weight list`, but not '#'.")
    ],
    *,
    connecting: Connecting,
) -> None:
    """Take a filter's weight away: its topics go by the next filter that matches them.

    It lasts until the broker stops: the configuration file says what it starts with.
    """
    _request(connecting, f"{topic_filter} -", f"{topic_filter}: removed")


def _request(connecting: Connecting, payload: str, done: str) -> None:
    """Ask a running broker to change a weight; exits, with a reason if it refuses."""
    from timebound.pubsub import run_request

    code = run_request(connecting, "control/weight", payload)
    if code == 0:
        typer.echo(done)
    sys.exit(code)


@app.command("list", epilog="Examples:  timebound weight list  ·  timebound weight list --json")
@given.connects
def list_(
    *,
    connecting: Connecting,
    as_json: given.Json = False,
) -> None:
    """Print the weights of topics, and the share of the service rate each gets under load."""
    topics = ask_broker(connecting)["topics"]
    if as_json:
        typer.echo(json.dumps(topics, indent=2))
        return
    table = Table("topics", "weight", "share", box=None, pad_edge=False, header_style="bold")
    for row in topics:
        table.add_row(cell(row["topic"]), str(row["weight"]), f"{row['share']:.1%}")
    Console().print(table)


def cell(text: str) -> str:
    """Text of a broker's clients for a table: neither markup nor what steers a terminal counts in it."""
    from rich.markup import escape

    from timebound.terminal import safe

    return escape(safe(text))


def ask_broker(connecting: Connecting) -> dict[str, Any]:
    """Ask a running broker for its weights, shares and bounds.

    Raises:
        ClientError: it cannot be reached, does not answer, or is not a Timebound broker.
    """
    import asyncio

    from timebound.errors import ClientError

    async def ask() -> dict[str, Any]:
        async with connecting.client() as client, client.subscribe("$SYS/broker/bounds") as answers:
            await client.control("control/bounds")
            async with asyncio.timeout(10):
                # One may be retained from before; what was asked for is no older than the question.
                async for message in answers:
                    if not message.retain:
                        report: dict[str, Any] = json.loads(message.payload)
                        return report
        raise ClientError("the broker closed the connection without an answer")

    try:
        return asyncio.run(ask())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except TimeoutError:
        raise ClientError("the broker did not publish its bounds within 10s") from None


def calibrate(
    duration: Annotated[str, typer.Option(help="How long to measure.")] = "2s",
    size: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes of each payload.")] = 256,
    as_json: given.Json = False,
) -> None:
    """Measure how long the broker takes for a message on this machine: the quantum, and the rate R."""
    from timebound.node.calibrate import calibrate as measure
    from timebound.units import parse_duration

    result = measure(parse_duration(duration), size).as_json()
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(f"quantum       {result['quantum_us']:.1f} us (median {result['median_us']:.1f} us)")
    typer.echo(f"service rate  {result['service_rate']:,.0f} messages/s")
    typer.echo(f'to fix it, write quantum_time = "{result["quantum_us"]:.1f}us" under [input]')
