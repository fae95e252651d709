"""The figures as pictures, with the spread over seeds and the printed values; needs matplotlib."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from timebound.errors import ConfigError
from timebound.sim.published import PUBLISHED, Summary

# What each figure shows, left and right.
_MEASURES: Final = {
    (4, "ssd"): ("earning",),
    (4, "psd"): ("delivery_rate",),
    (5, "ssd"): ("earning", "traffic"),
    (6, "psd"): ("delivery_rate", "traffic"),
    (7, "net"): ("earning", "delivery_rate"),
    (8, "net"): ("earning", "delivery_rate"),
    (9, "net"): ("earning", "delivery_rate"),
}


def plot(summaries: list[Summary], folder: Path) -> list[Path]:
    """Draw every figure there are runs of, as PNG files; returns where they are.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ImportError as error:
        raise ConfigError("matplotlib is not installed; leave out --plot or install it") from error
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    figures = sorted({(one.paper, one.figure, one.scenario) for one in summaries})
    for paper, number, scenario in figures:
        members = [
            one for one in summaries if (one.paper, one.figure, one.scenario) == (paper, number, scenario)
        ]
        measures = _MEASURES[(number, scenario)]
        figure, panels = pyplot.subplots(1, len(measures), figsize=(6 * len(measures), 4.5), squeeze=False)
        for axes, measure in zip(panels[0], measures, strict=True):
            _draw(axes, members, measure, by_weight=number in (4, 9))
            axes.set_title(f"paper {paper}, figure {number} ({scenario}), reading {members[0].reading}")
        path = folder / f"paper{paper}-figure{number}-{scenario}.png"
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
        written.append(path)
    return written


def _draw(axes: Any, members: list[Summary], measure: str, *, by_weight: bool) -> None:
    for strategy in dict.fromkeys(one.strategy for one in members):
        points = [
            (one.weight if by_weight and one.weight >= 0 else one.rate, one)
            for one in members
            if one.strategy == strategy
        ]
        points.sort(key=_place)
        middles = [float(getattr(one, measure)) for _, one in points]
        spreads = [float(getattr(one, f"{measure}_deviation")) for _, one in points]
        if by_weight and points[0][1].weight < 0:
            axes.axhline(middles[0], linestyle="--", label=strategy)
            continue
        axes.errorbar([at for at, _ in points], middles, yerr=spreads, marker="o", capsize=3, label=strategy)
    for printed in PUBLISHED:
        same = any(
            (one.paper, one.figure, one.scenario, one.strategy)
            == (printed.paper, printed.figure, printed.scenario, printed.strategy)
            for one in members
        )
        if same and printed.measure == measure and not printed.versus and not by_weight:
            axes.plot([printed.rate], [printed.value], "x", label=f"{printed.strategy} as printed")
    axes.set_xlabel("weight" if by_weight else "messages per minute and publisher")
    axes.set_ylabel(measure.replace("_", " "))
    axes.legend()


def _place(point: tuple[float, Summary]) -> float:
    return point[0]
