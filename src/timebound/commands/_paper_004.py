"""`timebound sim paper 004`: reserved paths, as the paper on IndiQoS has them and by crankback."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from timebound.commands._paper_grid import run_grid
from timebound.commands._screen import printer, screen

if TYPE_CHECKING:
    from timebound.sim.papers.paper004.grid import PathJob, PathRow
    from timebound.sim.papers.paper004.summary import PathMean, PathPoint, Ratio


def path_jobs(
    figures: tuple[int, ...],
    finders: tuple[str, ...],
    networks: tuple[str, ...],
    seeds: tuple[int, ...],
    reading: str,
) -> list[PathJob]:
    """List the runs, or refuse the call."""
    from timebound.sim.papers.paper004 import grid

    try:
        return grid.jobs(figures=figures, finders=finders, networks=networks, seeds=seeds, reading=reading)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def run_paths(
    wanted: list[PathJob],
    workers: int | None,
    master: str | None,
    remote: str | None,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Carry out the runs and show them."""
    from timebound.sim.papers.paper004 import grid
    from timebound.sim.papers.paper004.plots import plot as draw
    from timebound.sim.papers.paper004.summary import points, ratios

    rows: list[PathRow]
    rows, _, _ = run_grid(grid, wanted, "paper 004", workers, master, remote)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        printer().print(_points_table(points(rows)))
        compared = ratios(rows)
        if compared:
            printer().print(_ratios_table(compared))
    if plot is not None:
        for path in draw(points(rows), plot):
            screen.print(f"figure: {path}")


def _points_table(found: list[PathPoint]) -> Table:
    table = Table(title="mean over seeds, with 95 % intervals")
    for name in ("figure", "network", "finder", "replicas", "types"):
        table.add_column(name)
    for name in ("accepted", "utilisation", "latency", "messages per accepted", "with refused"):
        table.add_column(name, justify="right")
    for one in found:
        means = one.means
        table.add_row(
            str(one.figure),
            one.network,
            one.finder,
            str(one.replicas) if one.finder == "indiqos" else "",
            str(one.types),
            _written(means["accepted"], ".0f"),
            _written(means["utilisation"], ".1f", 100.0) + " %",
            _written(means["latency_ms"], ".1f") + " ms",
            _written(means["messages_per_accepted"], ".1f"),
            _written(means["messages_all_per_accepted"], ".1f"),
        )
    return table


def _ratios_table(found: list[Ratio]) -> Table:
    table = Table(title="crankback against others, on the same requests")
    for name in ("network", "against"):
        table.add_column(name)
    for name in ("accepted", "latency", "messages, with refused"):
        table.add_column(name, justify="right")
    for one in found:
        against = f"indiqos, {one.replicas} replicas" if one.finder == "indiqos" else one.finder
        table.add_row(
            one.network,
            against,
            _written(one.means["accepted"], ".3f"),
            _written(one.means["latency_ms"], ".3f"),
            _written(one.means["messages_all_per_accepted"], ".4f"),
        )
    return table


def _written(mean: PathMean, form: str, scale: float = 1.0) -> str:
    text = f"{scale * mean.value:{form}}"
    return f"{text} ± {scale * mean.margin:{form}}" if mean.count > 1 else text
