"""`timebound init`: a first configuration, with comments, from a few answers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from timebound.commands._screen import FAILED, WRONG, fail, show_error

EXAMPLES: Final = "Examples:  timebound init  ·  timebound init /etc/timebound  ·  timebound init --yes"

FILE: Final = "timebound.toml"
USERS: Final = "users"
ONLY_HERE: Final = "127.0.0.1"
EVERY_ADDRESS: Final = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class InitAnswers:
    """What is asked; the defaults are what `--yes` answers. Port 0: none."""

    is_on_network: bool = False
    port: int = 1883
    ws_port: int = 0
    metrics_port: int = 9464


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder to write to; made if missing.")
    ] = Path(),
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing: a broker for programs on this machine.")
    ] = False,
) -> None:
    """Write a commented configuration after a few questions; no file is replaced unasked."""
    file, users = folder / FILE, folder / USERS
    if file.exists() and (yes or not typer.confirm(f"{file} exists. Replace it?")):
        fail(f"{file} exists, nothing was written", FAILED)
    answers = InitAnswers() if yes else _ask()
    text = configuration(answers)
    _check(text, file)
    folder.mkdir(parents=True, exist_ok=True)
    if answers.is_on_network and not users.exists():
        _write_no_users(users)
    file.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {file}")
    if answers.is_on_network:
        typer.echo(f"add a user:    timebound passwd {users} NAME")
    typer.echo(f"start it with: timebound serve --config {file}")


def _ask() -> InitAnswers:
    usual = InitAnswers()
    return InitAnswers(
        is_on_network=typer.confirm("May other machines connect, with a password?", usual.is_on_network),
        port=_ask_port("Port for MQTT", usual.port),
        ws_port=_ask_port("Port for browsers, over WebSocket; 0: none", usual.ws_port),
        metrics_port=_ask_port("Port for Prometheus and health checks; 0: none", usual.metrics_port),
    )


def _ask_port(question: str, usual: int) -> int:
    asked: int = typer.prompt(question, default=usual, type=int)
    return asked


def _check(text: str, file: Path) -> None:
    """Refuse answers that make no configuration, such as one port for two services."""
    from timebound.config.reader import ConfigReader

    mistakes = ConfigReader(text, file).mistakes
    for mistake in mistakes:
        # The file is not there yet, so its lines would say nothing.
        show_error(str(mistake).removeprefix(f"{file}:{mistake.line}: "))
    if mistakes:
        sys.exit(WRONG)


def _write_no_users(users: Path) -> None:
    from timebound.node.login.passwords import PasswordFile

    PasswordFile(users).save()


def configuration(answers: InitAnswers) -> str:
    """Return the text of a configuration file."""
    parts = [_TOP, _METRICS.format(port=answers.metrics_port), _listener(answers)]
    if answers.ws_port:
        host = EVERY_ADDRESS if answers.is_on_network else ONLY_HERE
        parts.append(_BROWSERS.format(host=host, port=answers.ws_port))
    parts.append(_TLS)
    parts.append(_USERS if answers.is_on_network else _NO_USERS)
    parts.append(_LIMITS)
    return "\n".join(parts)


def _listener(answers: InitAnswers) -> str:
    if answers.is_on_network:
        host, who = EVERY_ADDRESS, "Every address of this machine: clients log in"
    else:
        host, who = ONLY_HERE, "This machine only: nobody has to log in"
    return _LISTENER.format(host=host, who=who, port=answers.port)


_TOP: Final = """\
# Configuration of a Timebound broker. Every key that is left out has its default; docs/configuration.md lists
# them all. After a change:  timebound check timebound.toml
#
# Paths are relative to this file. Durations have a unit ("250ms", "30s", "7d"), sizes may have one ("64KiB").

# Name of this broker in logs, $SYS and records.
node_name = "timebound"

[data]
# Sessions, retained and queued messages.
path = "data"
# Acknowledged messages survive a power cut; false is faster, and they survive only the end of the broker.
fsync = true

[log]
# debug, info, warning or error; info shows who connects, leaves and is refused.
level = "info"
# "json" writes one object per line.
format = "text"
"""
_METRICS: Final = """\
[metrics]
# /metrics for Prometheus, /healthz and /readyz for health checks, for this machine only; 0 = off.
port = {port}
"""
_LISTENER: Final = """\
# Where clients connect. Further addresses are further [[listeners]].
[[listeners]]
# {who}.
host = "{host}"
port = {port}
# What goes first when a link cannot carry all in time: the message that is worth most.
# strategy = "worth"
# The least share of a full link for these topics.
# shares = ["plant/+/alarm=20"]
"""
_BROWSERS: Final = """\
[[listeners]]
kind = "websocket"
host = "{host}"
port = {port}
# Origins of web pages that may connect, like "https://dashboard.example"; without any, browsers are refused.
origins = []
"""
_TLS: Final = """\
# On a network that you do not own, passwords and messages need TLS: put this below the listener.
# [listeners.tls]
# certificate = "server.pem"
# key = "server.key"
"""
_USERS: Final = """\
[security]
# Users and their passwords:  timebound passwd users NAME
password_file = "users"
"""
_NO_USERS: Final = """\
# [security]
# Users and their passwords:  timebound passwd users NAME
# password_file = "users"
"""
_LIMITS: Final = """\
# Who may do what. The first rule that matches decides; with any rule, all else is denied.
# [[acl]]
# user = "*"
# filter = "plant/#"

# [limits]
# connections_max = 20000
# packet_size_max = "1MiB"

# Figures, prices and deadlines of every message, as Parquet files.
# [trace]
# enabled = true
"""
