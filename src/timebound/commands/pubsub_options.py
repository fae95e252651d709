"""The options of commands that talk to a server; `connects` gives a command those by which it is reached."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

_CONNECTION = "Connection"
_SESSION_HELP = "Keep the session this long while away and resume it; needs --client-id."

Host = Annotated[
    str | None, typer.Option(help="Server; 127.0.0.1 if not given.", rich_help_panel=_CONNECTION)
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", "-p", min=1, max=65535, help="1883, or 8883 with TLS.", rich_help_panel=_CONNECTION
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="mqtt://user:password@host:port, or mqtts:// for TLS; instead of --host.",
        rich_help_panel=_CONNECTION,
    ),
]
User = Annotated[str | None, typer.Option(help="User name.", rich_help_panel=_CONNECTION)]
Password = Annotated[
    str | None,
    typer.Option(
        envvar="TIMEBOUND_PASSWORD",
        help="Password; others on this machine may see it, so better use a file or the variable.",
        rich_help_panel=_CONNECTION,
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option(help="File whose first line is the password.", rich_help_panel=_CONNECTION)
]
Tls = Annotated[bool, typer.Option("--tls", help="Use TLS.", rich_help_panel=_CONNECTION)]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--cafile", help="Certificates to trust, in PEM; implies --tls.", rich_help_panel=_CONNECTION
    ),
]
Cert = Annotated[
    Path | None,
    typer.Option(
        "--cert", help="The client's certificate, in PEM; implies --tls.", rich_help_panel=_CONNECTION
    ),
]
Key = Annotated[
    Path | None, typer.Option("--key", help="The key that belongs to --cert.", rich_help_panel=_CONNECTION)
]
ClientId = Annotated[
    str, typer.Option("--client-id", help="Empty: the server chooses one.", rich_help_panel=_CONNECTION)
]
Version = Annotated[
    int,
    typer.Option(
        "--version", min=4, max=5, help="5 for MQTT 5, 4 for MQTT 3.1.1.", rich_help_panel=_CONNECTION
    ),
]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service.")]
Property = Annotated[
    list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="User property; may be repeated.")
]

Topic = Annotated[str, typer.Argument(help="The topic to publish to.")]
Payload = Annotated[str | None, typer.Argument(help="The payload; '' for an empty one.")]
File = Annotated[Path | None, typer.Option("--file", help="Publish what is in this file.")]
Stdin = Annotated[bool, typer.Option("--stdin", help="Publish standard input as one message.")]
Lines = Annotated[bool, typer.Option("--lines", help="Publish each line of standard input.")]
Retain = Annotated[bool, typer.Option("--retain", "-r", help="Let the server keep it for new subscribers.")]
Timeout = Annotated[
    str | None, typer.Option(metavar="DURATION", help="How long the message is worth anything, like 400ms.")
]
Priority = Annotated[int | None, typer.Option(min=0, max=9, help="0 to 9.")]
Repeat = Annotated[int, typer.Option("--count", "-n", min=1, help="Number of times to publish.")]
Interval = Annotated[str, typer.Option(metavar="DURATION", help="Pause between messages, like 100ms.")]

Filters = Annotated[
    list[str], typer.Argument(metavar="FILTER...", help="Topic filters; + and # are wildcards.")
]
Where = Annotated[str | None, typer.Option(metavar="EXPRESSION", help="Content filter, like 'value > 90'.")]
Deadline = Annotated[
    str | None, typer.Option(metavar="DURATION", help="How old a message may be on arrival, like 250ms.")
]
Price = Annotated[float | None, typer.Option(min=0, help="What a message in time is worth.")]
Penalty = Annotated[float | None, typer.Option(min=0, help="What a late message costs.")]
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
    bool, typer.Option("--retained-only", help="Print retained messages, and end when no more come.")
]
NoRetained = Annotated[bool, typer.Option("--no-retained", help="Leave retained messages out.")]
PayloadOnly = Annotated[bool, typer.Option("--payload-only", help="Print payloads without their topics.")]
SessionExpiry = Annotated[
    str, typer.Option("--session-expiry", metavar="DURATION", help=_SESSION_HELP, rich_help_panel=_CONNECTION)
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object a line: topic, payload, encoding (text or base64), qos, retain, "
        "user_properties, age in seconds.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object about what was done.")]

# Names as `pubsub.Connecting` has them, with their defaults.
_WAYS_TO_CONNECT: Final[tuple[tuple[str, Any, Any], ...]] = (
    ("host", Host, None),
    ("port", Port, None),
    ("url", Url, None),
    ("user", User, None),
    ("password", Password, None),
    ("password_file", PasswordFile, None),
    ("tls", Tls, False),
    ("cafile", CaFile, None),
    ("cert", Cert, None),
    ("key", Key, None),
)


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Put the options of connecting in the place of a command's parameter `connecting`."""
    hints = get_type_hints(command, localns={"Connecting": object}, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "connecting":
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, kind, default in _WAYS_TO_CONNECT
            ]
        else:
            parameters.append(
                parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            )

    @functools.wraps(command)
    def connected(**values: Any) -> None:
        from timebound.pubsub import Connecting

        ways = {name: values.pop(name) for name, _, _ in _WAYS_TO_CONNECT}
        command(connecting=Connecting(**ways), **values)

    # Where Typer looks for the options.
    connected.__dict__["__signature__"] = inspect.Signature(parameters)
    connected.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return connected
