"""How a command reaches a server: its options, in one spelling for all commands.

`connects` gives a command these options; it gets them as one value, `connecting`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

if TYPE_CHECKING:
    import ssl

    from timebound.client import Client

PANEL: Final = "Connection"

Host = Annotated[str | None, typer.Option(help="Server; 127.0.0.1 if not given.", rich_help_panel=PANEL)]
Port = Annotated[
    int | None,
    typer.Option("--port", "-p", min=1, max=65535, help="1883, or 8883 with TLS.", rich_help_panel=PANEL),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="mqtt://user:password@host:port, or mqtts:// for TLS; instead of --host.",
        rich_help_panel=PANEL,
    ),
]
User = Annotated[str | None, typer.Option(help="User name.", rich_help_panel=PANEL)]
Password = Annotated[
    str | None,
    typer.Option(
        envvar="TIMEBOUND_PASSWORD",
        help="Password; others on this machine may see it, so better use a file or the variable.",
        rich_help_panel=PANEL,
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option(help="File whose first line is the password.", rich_help_panel=PANEL)
]
Tls = Annotated[bool, typer.Option("--tls", help="Use TLS.", rich_help_panel=PANEL)]
CaFile = Annotated[
    Path | None,
    typer.Option("--cafile", help="Certificates to trust, in PEM; implies --tls.", rich_help_panel=PANEL),
]
Cert = Annotated[
    Path | None,
    typer.Option("--cert", help="The client's certificate, in PEM; implies --tls.", rich_help_panel=PANEL),
]
Key = Annotated[
    Path | None, typer.Option("--key", help="The key that belongs to --cert.", rich_help_panel=PANEL)
]
ClientId = Annotated[
    str, typer.Option("--client-id", help="Empty: the server chooses one.", rich_help_panel=PANEL)
]
Version = Annotated[
    int,
    typer.Option("--version", min=4, max=5, help="5 for MQTT 5, 4 for MQTT 3.1.1.", rich_help_panel=PANEL),
]


@dataclass(frozen=True, slots=True)
class Connecting:
    """How to reach the server."""

    host: str | None = None
    port: int | None = None
    url: str | None = None
    user: str | None = None
    password: str | None = None
    password_file: Path | None = None
    tls: bool = False
    cafile: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    client_id: str = ""
    version: int = 5

    def client(self, *, session_expiry: str = "0s") -> Client:
        """Return the client; raises ValueError where the options do not fit together."""
        from timebound.client import Client
        from timebound.client.values import to_ns

        if self.url is not None and self.host is not None:
            raise ValueError("both --url and --host are given; one of them says where the server is")
        if self.password is not None and self.password_file is not None:
            raise ValueError("both --password and --password-file are given; use one of them")
        if self.key is not None and self.cert is None:
            raise ValueError("--key needs --cert, the certificate that belongs to it")
        keeps = to_ns(session_expiry, "--session-expiry") > 0
        if keeps and not self.client_id:
            raise ValueError("--session-expiry needs --client-id, under which the session is found again")
        return Client(
            self.url or self.host or "127.0.0.1",
            self.port,
            client_id=self.client_id,
            username=self.user,
            password=self._password(),
            tls=self._tls(),
            version=self.version,
            clean_start=not keeps,
            session_expiry=session_expiry if self.version == 5 else 0,
        )

    def _password(self) -> str | None:
        if self.password_file is None:
            return self.password
        with reading("--password-file", self.password_file):
            lines = self.password_file.read_text().splitlines()
        if not lines:
            raise ValueError(f"password file {str(self.password_file)!r} is empty")
        return lines[0]

    def _tls(self) -> bool | ssl.SSLContext:
        if self.cafile is None and self.cert is None:
            return self.tls
        import ssl

        with reading("--cafile", self.cafile):
            context = ssl.create_default_context(cafile=self.cafile)
        if self.cert is not None:
            with reading("--cert", self.cert, *(() if self.key is None else (self.key,))):
                context.load_cert_chain(self.cert, self.key)
        return context


@contextmanager
def reading(option: str, *files: Path | None) -> Iterator[None]:
    """Make a file that an option names, and that cannot be used, a mistake of the call."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        names = " and ".join(str(file) for file in files)
        reason = error.strerror if isinstance(error, OSError) else error.reason
        raise ValueError(f"{option} {names} cannot be used: {reason or error}") from error


# Names as `Connecting` has them, with their defaults.
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
    hints = get_type_hints(command, include_extras=True)
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
        ways = {name: values.pop(name) for name, _, _ in _WAYS_TO_CONNECT}
        command(connecting=Connecting(**ways), **values)

    # Where Typer looks for the options.
    connected.__dict__["__signature__"] = inspect.Signature(parameters)
    connected.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return connected
