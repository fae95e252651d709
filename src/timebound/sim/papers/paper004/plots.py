"""Plots of figures 5 to 9: means over seeds with 95 % intervals; requires matplotlib."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from timebound.sim.papers.paper004.summary import PathPoint

_SHOWN: Final = {
    5: ("utilisation", "utilisation of links (%)", "types"),
    6: ("utilisation", "utilisation of links (%)", "replicas"),
    7: ("latency_ms", "mean latency (ms)", "replicas"),
    8: ("messages_per_accepted", "control messages per accepted request", "replicas"),
}
_TITLES: Final = {
    5: "types against utilisation",
    6: "replicas against utilisation",
    7: "replicas against latency",
    8: "replicas against control messages",
    9: "ways to find paths",
}
_DPI: Final = 90


def plot(points: list[PathPoint], folder: Path) -> list[Path]:
    """Draw every figure that has runs as a PNG file; return the paths. Requires matplotlib."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number in sorted({one.figure for one in points}):
        members = [one for one in points if one.figure == number]
        figure = _compared(pyplot, members) if number == 9 else _lines(pyplot, members, number)
        seeds = members[0].means["accepted"].count
        figure.suptitle(f"paper 004, figure {number}: {_TITLES[number]}, {seeds} seeds")
        figure.tight_layout()
        path = folder / f"paper004-figure{number}.png"
        figure.savefig(path, dpi=_DPI)
        pyplot.close(figure)
        written.append(path)
    return written


def _lines(pyplot: Any, members: list[PathPoint], number: int) -> Any:
    measure, label, over = _SHOWN[number]
    scale = 100.0 if measure == "utilisation" else 1.0
    figure, axes = pyplot.subplots(figsize=(6.4, 4.4))
    for network in dict.fromkeys(one.network for one in members):
        line = [one for one in members if one.network == network]
        places = [getattr(one, over) for one in line]
        means = [one.means[measure] for one in line]
        axes.errorbar(
            places,
            [scale * mean.value for mean in means],
            yerr=[scale * mean.margin for mean in means],
            marker="o",
            markersize=4,
            capsize=3,
            label=f"{network}-homed",
        )
    if over == "types":
        axes.set_xscale("log", base=2)
    places = sorted({getattr(one, over) for one in members})
    axes.set_xticks(places, [str(place) for place in places])
    axes.set_xlabel(over)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def _compared(pyplot: Any, members: list[PathPoint]) -> Any:
    """Draw accepted requests, latency and messages of each finder as bars, a colour per network."""
    measures = {
        "accepted": "accepted requests",
        "latency_ms": "mean latency (ms)",
        "messages_all_per_accepted": "messages per accepted, with refused",
    }
    figure, panels = pyplot.subplots(1, len(measures), figsize=(5.2 * len(measures), 4.6))
    networks = list(dict.fromkeys(one.network for one in members))
    names = list(dict.fromkeys(_name(one) for one in members))
    for axes, (measure, label) in zip(panels, measures.items(), strict=True):
        for index, network in enumerate(networks):
            bars = {_name(one): one.means[measure] for one in members if one.network == network}
            width = 0.8 / len(networks)
            places = [names.index(name) + (index - (len(networks) - 1) / 2) * width for name in bars]
            values = [mean.value for mean in bars.values()]
            margins = [mean.margin for mean in bars.values()]
            axes.bar(places, values, width, yerr=margins, capsize=3, label=f"{network}-homed")
        axes.set_xticks(range(len(names)), names, rotation=20)
        axes.set_ylabel(label)
        if measure == "messages_all_per_accepted":
            axes.set_yscale("log")
    panels[2].legend(loc="upper right")
    return figure


def _name(point: PathPoint) -> str:
    return f"{point.finder} {point.replicas}" if point.finder == "indiqos" else point.finder
