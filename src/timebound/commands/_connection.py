"""How a command reaches a server: its options, in one spelling for all commands.

`connects` adds these options to a command, which receives them as one value, `connecting`. Old spellings
still work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from timebound.commands._renamed import Command, parameters_of, renamed, with_signature

if TYPE_CHECKING:
    import ssl

    from timebound.client import Client
    from timebound.client.options import Address

PANEL: Final = "Connection"

Host = Annotated[
    str | None, typer.Option(help="Address of the server; 127.0.0.1 by default.", rich_help_panel=PANEL)
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        "-p",
        min=1,
        max=65535,
        help="Port of the server; by default 1883, or 8883 with TLS.",
        rich_help_panel=PANEL,
    ),
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
        help="Password; visible to others on this machine, so prefer --password-file or the variable.",
        rich_help_panel=PANEL,
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option(help="File whose first line is the password.", rich_help_panel=PANEL)
]
Tls = Annotated[bool, typer.Option("--tls", help="Connect with TLS.", rich_help_panel=PANEL)]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", help="CA certificates to trust, in PEM; implies --tls.", rich_help_panel=PANEL),
]
CertFile = Annotated[
    Path | None,
    typer.Option("--cert-file", help="Client certificate, in PEM; implies --tls.", rich_help_panel=PANEL),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="Private key of --cert-file, in PEM.", rich_help_panel=PANEL),
]
ClientId = Annotated[
    str,
    typer.Option("--client-id", help="Client identifier; empty: the server chooses.", rich_help_panel=PANEL),
]
MqttVersion = Annotated[
    int,
    typer.Option(
        "--mqtt-version",
        parser=lambda text: read_mqtt_version(text),
        metavar="[5|3.1.1]",
        help="Version of the protocol.",
        rich_help_panel=PANEL,
    ),
]
# As users write them, and as the number in CONNECT.
_MQTT_VERSIONS: Final = {"5": 5, "3.1.1": 4, "4": 4}


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
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    client_id: str = ""
    mqtt_version: int = 5

    def client(self, *, session_expiry: str = "0s") -> Client:
        """Return the client; raises ValueError where the options do not fit together."""
        from timebound.client import Client
        from timebound.client.values import to_ns

        self._check()
        keeps = to_ns(session_expiry, "--session-expiry") > 0
        if keeps and not self.client_id:
            raise ValueError("--session-expiry needs --client-id, under which the session is found again")
        return Client(
            self._server(),
            self.port,
            client_id=self.client_id,
            username=self.user,
            password=self.read_password(),
            tls=self.read_tls(),
            version=self.mqtt_version,
            clean_start=not keeps,
            session_expiry=session_expiry if self.mqtt_version == 5 else 0,
        )

    def address(self) -> Address:
        """Return host and port, and what a URL says besides; raises ValueError as `client` does."""
        from timebound.client.options import parse_address

        self._check()
        return parse_address(self._server(), self.port, bool(self.read_tls()))

    def read_password(self) -> str | None:
        """Return the password, from its file if one is named."""
        if self.password_file is None:
            return self.password
        if self.password is not None:
            raise ValueError("both --password and --password-file are given; use one of them")
        with reading("--password-file", self.password_file):
            lines = self.password_file.read_text().splitlines()
        if not lines:
            raise ValueError(f"password file {str(self.password_file)!r} is empty")
        return lines[0]

    def read_tls(self) -> bool | ssl.SSLContext:
        """Return whether to use TLS, or the context made of the files that are named."""
        if self.ca_file is None and self.cert_file is None:
            return self.tls
        import ssl

        with reading("--ca-file", self.ca_file):
            context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            with reading("--cert-file", self.cert_file, *(() if self.key_file is None else (self.key_file,))):
                context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def _server(self) -> str:
        return self.url or self.host or "127.0.0.1"

    def _check(self) -> None:
        if self.url is not None and self.host is not None:
            raise ValueError("both --url and --host are given; use one of them")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("--key-file needs --cert-file, the certificate that belongs to it")


def read_mqtt_version(text: object) -> int:
    """Read a version of MQTT as users write it."""
    version = _MQTT_VERSIONS.get(str(text))
    if version is None:
        raise typer.BadParameter(f"{text!r} is not a supported version; use 5 or 3.1.1")
    return version


@contextmanager
def reading(option: str, *files: Path | None) -> Iterator[None]:
    """Make a file that an option names, and that cannot be used, a mistake of the call."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        names = " and ".join(str(file) for file in files)
        reason = error.strerror if isinstance(error, OSError) else error.reason
        raise ValueError(f"{option} {names} cannot be used: {reason or error}") from error


# By their names in `Connecting`, with their defaults; help lists them in this order.
_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "host": (Host, None),
    "port": (Port, None),
    "url": (Url, None),
    "user": (User, None),
    "password": (Password, None),
    "password_file": (PasswordFile, None),
    "tls": (Tls, False),
    "ca_file": (CaFile, None),
    "cert_file": (CertFile, None),
    "key_file": (KeyFile, None),
    "client_id": (ClientId, ""),
    "mqtt_version": (MqttVersion, 5),
}
OLD_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "user": ("--username",),
    "ca_file": ("--cafile", "--tls-ca"),
    "cert_file": ("--cert",),
    "key_file": ("--key",),
    "mqtt_version": ("--version", "--mqtt"),
}
LOGIN: Final = ("user", "password", "password_file")
# For every command that speaks MQTT.
WAY: Final = ("host", "port", "url", *LOGIN, "tls", "ca_file", "cert_file", "key_file")


def connects_by(*names: str) -> Callable[[Command], Command]:
    """Put these options of connecting in the place of a command's parameter `connecting`."""

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        for parameter in parameters_of(command):
            if parameter.name == "connecting":
                parameters += [_parameter(name) for name in names]
            else:
                parameters.append(parameter)

        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            command(connecting=Connecting(**given), **values)

        old = {name: OLD_SPELLINGS[name] for name in names if name in OLD_SPELLINGS}
        return renamed(old)(with_signature(command, run, parameters))

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    kind, default = _OPTIONS[name]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


connects = connects_by(*WAY)
