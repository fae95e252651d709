"""`timebound bounds`: delay bounds at the broker's input, and what dominates them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from timebound.commands._connection import Connecting, connects
from timebound.commands._options import Json
from timebound.commands._screen import cell, printer

EXAMPLES = (
    "Examples:  timebound bounds  ·  timebound bounds plant.toml --json  ·  "
    "timebound bounds --weights 4,3,2 --clients 6 --quantum 51.2us --flow topic=1,rate=723.4,burst=2"
)


@connects
def bounds(
    file: Annotated[
        Path | None, typer.Argument(help="A TOML description of topics, clients and flows: docs/bounds.md.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Inline: weights of topics 1, 2, …, such as 4,3,2.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="Inline: clients, each publishing all topics.")] = 1,
    quantum: Annotated[str | None, typer.Option(help="Inline: time of one message, such as 51.2us.")] = None,
    order: Annotated[str, typer.Option(help="Inline: order of cells, even or paper.")] = "even",
    flow: Annotated[
        list[str] | None, typer.Option(help="Inline: topic=1,rate=723.4,burst=2; may be repeated.")
    ] = None,
    *,
    connecting: Connecting,
    as_json: Json = False,
) -> None:
    """Print shares and worst-case delays: of a running broker, of a file, or of a few options.

    Without a file and without --weights, a running broker is asked.
    """
    if file is not None and weights is not None:
        raise typer.BadParameter("give a file or --weights, not both")
    if file is not None or weights is not None:
        _print_described(file, weights, clients, quantum, order, flow, as_json)
        return
    if quantum is not None or flow:
        raise typer.BadParameter("--quantum and --flow require --weights")
    from timebound.commands._requests import ask_bounds

    report = ask_bounds(connecting)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _print_running(report)


def _print_described(
    file: Path | None,
    weights: str | None,
    clients: int,
    quantum: str | None,
    order: str,
    flows: list[str] | None,
    as_json: bool,
) -> None:
    from timebound.commands._bounds_report import describe_inline, describe_toml, report
    from timebound.errors import ConfigError

    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", path=str(file)) from error
        described = describe_toml(text, str(file))
    else:
        if quantum is None:
            raise typer.BadParameter("--weights needs --quantum, the time one message takes, such as 51.2us")
        described = describe_inline(
            weights=weights or "", clients=clients, quantum=quantum, order=order, flows=flows
        )
    result = report(described)
    if as_json:
        typer.echo(json.dumps(result.as_json(), indent=2))
        return
    table = _table(
        "topic",
        "client",
        "weight",
        "share",
        "rate/s",
        "burst",
        "printed ms",
        "bound ms",
        "tight ms",
        "because of",
    )
    for row in result.rows:
        table.add_row(
            cell(str(row.topic)),
            cell(row.client),
            str(row.weight),
            f"{row.share:.1%}",
            "-" if row.rate is None else f"{row.rate:.12g}",
            str(row.burst),
            _milliseconds(row.bound_printed_ms),
            _milliseconds(row.bound_ms),
            _milliseconds(row.bound_tight_ms),
            cell(row.dominating),
        )
    printer().print(table)
    _print_clients(result.clients)


def _print_running(report: dict[str, Any]) -> None:
    typer.echo(
        f"quantum {report['quantum_us']:.1f} us, round {report['round_ms']:.1f} ms, "
        f"stall {report['stop_ms']:.1f} ms, {report['service_rate']:,.0f} messages/s; "
        f"{report['taken']:.1%} of {report['reserved']:.0%} for advertised flows taken"
    )
    topics = _table("topics", "weight", "share")
    for row in report["topics"]:
        topics.add_row(cell(row["topic"]), str(row["weight"]), f"{row['share']:.1%}")
    printer().print(topics)
    if report["rows"]:
        flows = _table("flow", "client", "rate/s", "burst", "asked ms", "bound ms", "because of", "")
        for row in report["rows"]:
            flows.add_row(
                cell(row["topic"]),
                cell(row["client"]),
                f"{row['rate']:.12g}",
                str(row["burst"]),
                "-" if row["delay_ms"] is None else f"{row['delay_ms']:g}",
                _milliseconds(row["bound_ms"]),
                cell(row["dominating"]),
                "" if row["kept"] else "cannot be kept any more",
            )
        printer().print(flows)
    _print_clients(report["clients"])


def _print_clients(clients: dict[str, float]) -> None:
    if clients:
        table = _table("client", "share")
        for name, share in clients.items():
            table.add_row(cell(name), f"{share:.1%}")
        printer().print(table)


def _milliseconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold")
