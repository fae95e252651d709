"""`timebound explain`: list what became of one message, from trace files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from timebound.commands._options import Json
from timebound.commands._screen import cell, print_whole

EXAMPLES: Final = (
    "Examples:  timebound explain plant-1:1763480000000000000.42 --trace trace  ·  "
    "timebound explain NAME --trace plant-1/trace --trace plant-2/trace --json"
)


def explain(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the message, as in a notice; or a trace id.")
    ],
    trace: Annotated[
        list[Path], typer.Option("--trace", metavar="DIR", help="Trace of a broker; may be repeated.")
    ],
    as_json: Json = False,
) -> None:
    """List what became of a message: at each broker and for each receiver, outcome, reason and times.

    Its name is <broker>:<start>.<number>, as in notices and in the columns origin, started_ns and number.
    For a W3C trace id, or a `traceparent` with it, the messages that their publisher sampled are listed.
    """
    from timebound.commands._message_records import find_records

    found = find_records(name, trace)
    for warning in found.warnings:
        typer.echo(warning, err=True)
    if as_json:
        typer.echo(json.dumps({"name": name, "records": found.records}, indent=2))
        return
    first = found.records[0]
    names = {row["message"] for row in found.records}
    if len(names) == 1:
        about = f"{first['topic']!r} from {first['publisher']!r}, {first['size_bytes']} bytes"
        typer.echo(f"{first['message']}: {about}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = ("message", "node", "hop") if len(names) > 1 else ("node", "hop")
    for title in (*shown[:-2], "node", "hop", "receiver", "link", "outcome", "reason"):
        table.add_column(title, overflow="fold")  # names are read whole, and copied
    for title in ("age", "queued", "allowed"):
        table.add_column(title, justify="right")
    for row in found.records:
        receiver = row["subscriber"]
        table.add_row(
            *[cell(str(row[key])) for key in shown],
            cell(receiver),
            cell(row["link"] if row["link"] != receiver else ""),
            row["outcome"],
            row["reason"],
            *[_milliseconds(row[key]) for key in ("age_ns", "queued_ns", "allowed_ns")],
        )
    print_whole(table)


def _milliseconds(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.3f} ms" if duration_ns else ""
