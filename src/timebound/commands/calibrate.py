"""`timebound calibrate`: how long the broker takes for a message on this machine."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from timebound.commands._options import Json

EXAMPLES: Final = "Example:  timebound calibrate --duration 5s"


def calibrate(
    duration: Annotated[str, typer.Option(help="How long to measure, such as 5s.")] = "2s",
    size: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes of each payload.")] = 256,
    as_json: Json = False,
) -> None:
    """Measure how long the broker takes for a message on this machine: the quantum, and the rate R."""
    from timebound.node.calibrate import calibrate as measure
    from timebound.units import parse_duration

    result = measure(parse_duration(duration), size).as_json()
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(f"quantum       {result['quantum_us']:.1f} us (median {result['median_us']:.1f} us)")
    typer.echo(f"service rate  {result['service_rate']:,.0f} messages/s")
    typer.echo(f'to fix it, write quantum_time = "{result["quantum_us"]:.1f}us" under [input]')
