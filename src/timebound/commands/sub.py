"""`timebound sub`: subscribe from the shell."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from timebound.commands import _options as given
from timebound.commands._connection import PANEL, WAY, Connecting, connects_by

EXAMPLES: Final = (
    "Examples:  timebound sub '#'  ·  timebound sub 'plant/+/temp' --where 'value > 90' "
    "--deadline 250ms --price 3 --penalty 0.3  ·  timebound sub alarms --count 1 --wait 10s --json"
)

Filters = Annotated[
    list[str], typer.Argument(metavar="FILTER...", help="Topic filters; + and # are wildcards.")
]
Name = Annotated[
    str | None,
    typer.Option(help="Name of the subscription: a session has one for each filter and name."),
]
Where = Annotated[str | None, typer.Option(metavar="EXPRESSION", help="Content filter, like 'value > 90'.")]
Deadline = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Maximum age of a message on arrival, like 250ms.")
]
Price = Annotated[float | None, typer.Option(min=0, help="Value of a message that arrives in time.")]
Penalty = Annotated[float | None, typer.Option(min=0, help="Cost of a late message.")]
Count = Annotated[
    int, typer.Option("--count", "-n", min=0, help="End after this many messages; 0 = no limit.")
]
Wait = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="End after this time; exit code 1 if --count is not reached by then."
    ),
]
RetainedOnly = Annotated[
    bool, typer.Option("--retained-only", help="Print retained messages only, and end when no more arrive.")
]
NoRetained = Annotated[bool, typer.Option("--no-retained", help="Skip retained messages.")]
PayloadOnly = Annotated[bool, typer.Option("--payload-only", help="Print payloads without their topics.")]
SessionExpiry = Annotated[
    str,
    typer.Option(
        "--session-expiry",
        metavar="DURATION",
        help="Keep the session this long while away and resume it; needs --client-id.",
        rich_help_panel=PANEL,
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object a line: topic, payload, encoding (text or base64), qos, retain, "
        "user_properties, age in seconds.",
    ),
]


@connects_by(*WAY, "client_id", "mqtt_version")
def sub(
    filters: Filters,
    qos: given.Qos = 0,
    name: Name = None,
    where: Where = None,
    deadline: Deadline = None,
    price: Price = None,
    penalty: Penalty = None,
    prop: given.Property = None,
    count: Count = 0,
    wait: Wait = None,
    retained_only: RetainedOnly = False,
    no_retained: NoRetained = False,
    payload_only: PayloadOnly = False,
    as_json: JsonLines = False,
    *,
    connecting: Connecting,
    session_expiry: SessionExpiry = "0s",
) -> None:
    """Print messages as they arrive, until Ctrl-C, --count messages, or the end of --wait.

    Exit code 1 if the server refuses, or if fewer than --count messages arrived. Without --count, --wait is
    how long to listen, and any number of messages is a success.
    """
    from timebound.commands._subscribe import Subscribing, run_sub

    subscribing = Subscribing(
        tuple(filters),
        qos=qos,
        terms={"name": name, "where": where, "deadline": deadline, "price": price, "penalty": penalty},
        properties=tuple(prop or ()),
        count=count,
        wait=wait,
        retained_only=retained_only,
        no_retained=no_retained,
        payload_only=payload_only,
        session_expiry=session_expiry,
        as_json=as_json,
    )
    sys.exit(run_sub(connecting, subscribing))
