"""`timebound report`: write results as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

EXAMPLES: Final = (
    "Examples:  timebound report sweep-quick  ·  timebound report pipeline-out --out report.html"
)


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Results of `sweep`, `sim paper --out` or `pipeline run`.")
    ],
    out: Annotated[Path | None, typer.Option(help="The page to write; DIR/report.html by default.")] = None,
) -> None:
    """Write one self-contained HTML page about results: headline, figures, tables."""
    from timebound.pipeline.report.report import write_report

    typer.echo(write_report(folder, out).resolve())
