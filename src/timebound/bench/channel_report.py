"""The results of the channel's experiments as tables, JSON and plots.

Published values stand beside each figure. Plots need matplotlib, an optional package.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from timebound.bench.channel_published import SPACING_NS, Cell
from timebound.bench.channel_results import ChannelResults, LatencyRow, Speed, Spread, UtilisationRun

# The project's own limits: see docs/benchmarks.md.
BARS: Final = (("reactive, 1 to 1", 2.0), ("reactive, 1 to 20", 10.0), ("lanes, hand-over median", 50.0))
# A spacing is kept if at least this share of its rate was achieved.
KEPT_UP: Final = 0.99
LATENCY_TICKS: Final = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))


def to_json(results: ChannelResults) -> str:
    return json.dumps(asdict(results), indent=2)


def tables(results: ChannelResults) -> list[Table]:
    """Return one table for each experiment that was run."""
    found: list[Table] = []
    if results.speed is not None:
        found.append(_speed_table(results.speed))
    if results.collocated:
        found.append(_latency_table("Table 1: one process", ("first", "last"), results.collocated))
    if results.two_processes:
        found.append(_latency_table("Table 2: two processes", ("local", "remote"), results.two_processes))
    found += [_utilisation_table(run) for run in results.utilisation]
    if results.spacing:
        found.append(_spacing_table(results))
    return found


def notes(results: ChannelResults) -> list[str]:
    """Return the conditions of the measurement."""
    lines = [f"{'compiled' if results.compiled else 'plain Python'}, {results.processors} processors"]
    if results.notice:
        lines.append(f"no real-time priorities: {results.notice}")
    return lines


def _speed_table(speed: Speed) -> Table:
    table = Table(title="Speed of the channel", title_justify="left")
    for heading in ("what", "µs per event", "bar"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    values = (speed.reactive_to_1_us, speed.reactive_to_20_us, speed.lanes_hand_over.p50_us)
    for (name, bar), value in zip(BARS, values, strict=True):
        style = "green" if value <= bar else "red"
        table.add_row(name, f"[{style}]{value:.2f}[/{style}]", f"{bar:g}")
    return table


def _latency_table(title: str, sides: tuple[str, str], rows: Sequence[LatencyRow]) -> Table:
    table = Table(title=f"{title}: latency in µs (minimum / maximum / average)", title_justify="left")
    for heading in ("dispatching", "sup.", "con."):
        table.add_column(heading)
    for side in sides:
        for heading in (side, "median", "99 %", "published"):
            table.add_column(heading, justify="right")
    for row in rows:
        near = _latency_cells(row.near, row.published_near)
        far = _latency_cells(row.far, row.published_far)
        table.add_row(row.dispatching, str(row.suppliers), str(row.consumers), *near, *far)
    return table


def _latency_cells(spread: Spread, published: Cell) -> list[str]:
    ours = f"{spread.min_us:.1f} / {spread.max_us:.0f} / {spread.mean_us:.1f}"
    theirs = " / ".join(f"{value:,}" for value in published)
    return [ours, f"{spread.p50_us:.1f}", f"{spread.p99_us:.1f}", theirs]


def _utilisation_table(run: UtilisationRun) -> Table:
    where = "two channels, federated" if run.federated else "one channel"
    title = (
        f"Utilisation, {where} (published: over {run.published:.0%})\n"
        "  every deadline kept in most bursts, except for misses that stalls explain: "
        f"{_reached(run, 'corrected')}\n"
        f"  every deadline kept in one burst of each load: {_reached(run, 'best')}\n"
        f"  every deadline kept in all bursts: {_reached(run, 'always')}"
    )
    table = Table(title=title, title_justify="left")
    for heading in (
        "utilisation",
        "machine stalled",
        "high: laxity ms (min / mean / max)",
        "low: laxity ms",
        "missed in each burst",
        "not explained by stalls",
        "plain threads: missed",
        "not explained",
    ):
        table.add_column(heading, justify="right")
    for step, bare in zip(run.steps, run.bare_steps, strict=True):
        cells = [f"{step.utilisation:.2%}", f"{step.stalled:.1%}"]
        for laxity in (step.high, step.low):
            cells.append(f"{laxity.min_ms:.2f} / {laxity.mean_ms:.2f} / {laxity.max_ms:.2f}")
        for counts in (step.missed, step.unexplained, bare.missed, bare.unexplained):
            cells.append(" ".join(str(count) for count in counts))
        table.add_row(*cells)
    return table


def _reached(run: UtilisationRun, judgement: str) -> str:
    ours, bare = getattr(run.channel, judgement), getattr(run.bare, judgement)
    return f"{ours:.2%} (plain threads without a channel: {bare:.2%})"


def _spacing_table(results: ChannelResults) -> Table:
    title = f"Event spacing: achieved share of the rate (published: kept down to {SPACING_NS / 1e6:.0f} ms)"
    table = Table(title=title, title_justify="left")
    kinds = sorted({step.dispatching for step in results.spacing}, reverse=True)
    table.add_column("spacing", justify="right")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for spacing_us in sorted({step.spacing_us for step in results.spacing}, reverse=True):
        cells = []
        for kind in kinds:
            ratios = [s.ratio for s in results.spacing if (s.dispatching, s.spacing_us) == (kind, spacing_us)]
            cells.append(" ".join(_ratio(ratio) for ratio in ratios))
        table.add_row(f"{spacing_us:g} µs", *cells)
    return table


def _ratio(ratio: float) -> str:
    style = "green" if ratio >= KEPT_UP else "red"
    return f"[{style}]{ratio:.1%}[/{style}]"


# --- plots ------------------------------------------------------------------------------


def plot(results: ChannelResults, folder: Path) -> list[Path]:
    """Draw the results into PNG files and return their paths; needs matplotlib."""
    matplotlib = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for run in results.utilisation:
        name = "federated" if run.federated else "single"
        drawn.append(_draw(pyplot, folder / f"utilisation_{name}.png", _draw_utilisation, run))
    if results.spacing:
        drawn.append(_draw(pyplot, folder / "spacing.png", _draw_spacing, results))
    for rows, name in ((results.collocated, "collocated"), (results.two_processes, "two_processes")):
        if rows:
            drawn.append(_draw(pyplot, folder / f"latency_{name}.png", _draw_latency, rows))
    return drawn


def _draw(pyplot: Any, path: Path, draw: Any, what: object) -> Path:
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    draw(axes, what)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def _draw_utilisation(axes: Any, run: UtilisationRun) -> None:
    # Evenly spaced, because the loads close to 100 % matter most.
    places = list(range(len(run.steps)))
    for name in ("high", "low"):
        found = [step.high if name == "high" else step.low for step in run.steps]
        means = [laxity.mean_ms for laxity in found]
        below = [laxity.mean_ms - laxity.min_ms for laxity in found]
        above = [laxity.max_ms - laxity.mean_ms for laxity in found]
        axes.errorbar(places, means, yerr=[below, above], capsize=3, marker="o", label=f"{name} priority")
    bare = [step.low.mean_ms for step in run.bare_steps]
    axes.plot(places, bare, color="grey", linestyle=":", label="low priority, plain threads")
    axes.axhline(0, color="black", linewidth=0.8)
    published = _place([step.utilisation for step in run.steps], run.published)
    axes.axvline(published, color="grey", linestyle="--", label=f"published: {run.published:.0%}")
    axes.set_xticks(places, [f"{100 * step.target:g}" for step in run.steps])
    where = "two channels, federated" if run.federated else "one channel"
    axes.set(
        title=f"{where}: all bursts, stalls of the machine included",
        xlabel="utilisation in %",
        ylabel="laxity in ms, mean and range (below 0: deadline missed)",
    )


def _place(values: Sequence[float], wanted: float) -> float:
    """Return the position of a value among rising ones that are drawn evenly spaced."""
    after = next((number for number, value in enumerate(values) if value >= wanted), len(values) - 1)
    if after == 0:
        return 0.0
    low, high = values[after - 1], values[after]
    return after - 1 + min((wanted - low) / (high - low), 1.0)


def _draw_spacing(axes: Any, results: ChannelResults) -> None:
    for kind in ("reactive", "lanes"):
        steps = [step for step in results.spacing if step.dispatching == kind]
        axes.plot([s.spacing_us for s in steps], [100 * s.ratio for s in steps], marker="o", label=kind)
    axes.axvline(SPACING_NS / 1000, color="grey", linestyle="--", label="published: 20 ms")
    axes.set(
        title="500 events at shorter and shorter spacing",
        xscale="log",
        xlabel="spacing of events in µs",
        ylabel="achieved share of the rate in %",
    )


def _draw_latency(axes: Any, rows: Sequence[LatencyRow]) -> None:
    for kind in sorted({row.dispatching for row in rows}):
        for suppliers in sorted({row.suppliers for row in rows}):
            chosen = [row for row in rows if (row.dispatching, row.suppliers) == (kind, suppliers)]
            label = f"{kind}, {suppliers} supplier{'s' if suppliers > 1 else ''}"
            axes.plot([r.consumers for r in chosen], [r.far.mean_us for r in chosen], marker="o", label=label)
    chosen = [row for row in rows if row.suppliers == 1 and row.dispatching == rows[0].dispatching]
    published = [row.published_far[2] for row in chosen]
    axes.plot(
        [r.consumers for r in chosen], published, color="grey", linestyle="--", label="published, 1 supplier"
    )
    shown = [row.far.mean_us for row in rows] + published
    ticks = [tick for tick in LATENCY_TICKS if min(shown) / 2 < tick < max(shown) * 2]
    axes.set(yscale="log", xlabel="consumers", ylabel="mean latency in µs (last or remote consumer)")
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xticks(sorted({row.consumers for row in rows}))
