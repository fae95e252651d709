"""`timebound serve`: run a broker."""

from __future__ import annotations

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
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep data in memory only; it is lost when the broker stops.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Start even if the database lacks acknowledged messages.")
    ] = False,
) -> None:
    """Run the broker until Ctrl-C."""
    from timebound.node.serve import run

    sys.exit(run(config, host, port, data, is_persistent=not memory, accept_loss=accept_loss))
