"""`timebound serve`: run a broker."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

EXAMPLES: Final = (
    "Examples:  timebound serve  ·  timebound serve --config timebound.toml  ·  "
    "timebound serve --port 0 --data /var/lib/timebound"
)


def serve(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file in TOML; see docs/configuration.md.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address of the first listener.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the first listener; 0 picks a free one.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of stored sessions and messages.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of /metrics, /healthz and /readyz; 0 turns them off."),
    ] = None,
    ws_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of MQTT over WebSocket, on the first WebSocket listener or a new one.",
        ),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="Users and their passwords, made by `timebound passwd`.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep data in memory only; it is lost when the broker stops.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Start even if the database lacks acknowledged messages.")
    ] = False,
) -> None:
    """Run the broker until Ctrl-C. Options win over variables TIMEBOUND_CONFIG_..., these over the file."""
    from timebound.node.serve import ServeOptions, run

    options = ServeOptions(host, port, data, metrics_port, ws_port, password_file)
    sys.exit(run(config, options, is_persistent=not memory, accept_loss=accept_loss, environment=os.environ))
