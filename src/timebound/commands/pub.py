"""`timebound pub`: publish from the shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from timebound.commands import _options as given
from timebound.commands._connection import WAY, Connecting, connects_by

EXAMPLES: Final = (
    "Examples:  timebound pub plant/7/temp 91.5 --timeout 400ms  ·  "
    "timebound pub plant/7/temp '{\"value\": 91.5}' --qos 1 --retain  ·  "
    "tail -f log.txt | timebound pub logs --lines"
)

Topic = Annotated[str, typer.Argument(help="Topic to publish to.")]
Payload = Annotated[str | None, typer.Argument(help="Payload; '' is an empty one.")]
File = Annotated[Path | None, typer.Option("--file", help="Publish the contents of this file.")]
Stdin = Annotated[bool, typer.Option("--stdin", help="Publish standard input as one message.")]
Lines = Annotated[bool, typer.Option("--lines", help="Publish each line of standard input.")]
Retain = Annotated[bool, typer.Option("--retain", "-r", help="Retain the message for new subscribers.")]
Timeout = Annotated[
    str | None, typer.Option(metavar="DURATION", help="How long the message stays useful, like 400ms.")
]
Priority = Annotated[int | None, typer.Option(min=0, max=9, help="Priority, 0 to 9.")]
Repeat = Annotated[int, typer.Option("--count", "-n", min=1, help="Number of times to publish.")]
Interval = Annotated[str, typer.Option(metavar="DURATION", help="Pause between messages, like 100ms.")]


@connects_by(*WAY, "client_id", "mqtt_version")
def pub(
    topic: Topic,
    payload: Payload = None,
    file: File = None,
    stdin: Stdin = False,
    lines: Lines = False,
    qos: given.Qos = 0,
    retain: Retain = False,
    timeout: Timeout = None,
    priority: Priority = None,
    prop: given.Property = None,
    count: Repeat = 1,
    interval: Interval = "0s",
    as_json: given.Json = False,
    *,
    connecting: Connecting,
) -> None:
    """Publish a message, or several; exit code 1 if the server refuses.

    A server does not acknowledge QoS 0: exit code 0 then means that it read everything and kept the
    connection. Use --qos 1 or 2 to learn whether a message was accepted.
    """
    from timebound.commands._publish import PublishSource, run_pub

    publishing = PublishSource(
        topic,
        payload=payload,
        file=file,
        stdin=stdin,
        lines=lines,
        qos=qos,
        retain=retain,
        timeout=timeout,
        priority=priority,
        properties=tuple(prop or ()),
        count=count,
        interval=interval,
    )
    sys.exit(run_pub(connecting, publishing, as_json=as_json))
