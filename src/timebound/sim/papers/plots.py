"""Plots of the figures: means and deviations over seeds beside the printed values; requires matplotlib.

A printed value is a cross in the colour of its strategy, a printed range a grey band; printed
ratios are listed below the plot with the simulated ones.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from timebound.sim.papers.grid import MEASURES_OF_FIGURE
from timebound.sim.papers.published import PUBLISHED, RANGES, PointSummary, compare

_LABELS: Final = {
    "delivery_rate": "delivered in time (%)",
    "earning": "earning",
    "traffic": "messages received by brokers",
}
# Figures over the weight of a strategy; the others are over the rate.
_OVER_WEIGHT: Final = (4, 9)
# Ratios per line below a plot.
_RATIOS_A_LINE: Final = 3
_DPI: Final = 90


def plot(summaries: list[PointSummary], folder: Path) -> list[Path]:
    """Draw every figure that has runs as a PNG file; return the paths. Requires matplotlib."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for paper, number, scenario in sorted({(one.paper, one.figure, one.scenario) for one in summaries}):
        members = [
            one for one in summaries if (one.paper, one.figure, one.scenario) == (paper, number, scenario)
        ]
        measures = MEASURES_OF_FIGURE[(number, scenario)]
        figure, panels = pyplot.subplots(1, len(measures), figsize=(5.6 * len(measures), 4.4), squeeze=False)
        for axes, measure in zip(panels[0], measures, strict=True):
            _draw(axes, members, measure)
        figure.suptitle(_title(members))
        figure.supxlabel(_ratios(members), fontsize=8)
        figure.tight_layout()
        path = folder / f"paper{paper}-figure{number}-{scenario}.png"
        figure.savefig(path, dpi=_DPI)
        pyplot.close(figure)
        written.append(path)
    return written


def _title(members: list[PointSummary]) -> str:
    first = members[0]
    seeds = sorted({one.seeds for one in members})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"paper {first.paper}, figure {first.figure} ({first.scenario}), {first.reading}, {count} seeds"


def _ratios(members: list[PointSummary]) -> str:
    """Return the printed ratios of a figure beside the simulated ones, in a few lines."""
    texts = [
        f"{printed.measure.replace('_', ' ')} {printed.strategy} / {printed.versus}: "
        f"{value:.2f} (printed {printed.value:g})"
        for printed, value in compare(members)
        if printed.versus
    ]
    lines = [texts[start : start + _RATIOS_A_LINE] for start in range(0, len(texts), _RATIOS_A_LINE)]
    return "\n".join("   ".join(line) for line in lines)


def _draw(axes: Any, members: list[PointSummary], measure: str) -> None:
    by_weight = members[0].figure in _OVER_WEIGHT
    if not by_weight and len({one.rate for one in members}) == 1:
        _draw_bars(axes, members, measure)
    else:
        _draw_lines(axes, members, measure, by_weight)
        axes.set_xlabel("mix" if by_weight else "messages per minute and publisher")
        axes.legend()
    axes.set_ylabel(_LABELS[measure])
    low, high = RANGES.get((members[0].figure, members[0].scenario, measure), (0.0, 0.0))
    if high:
        axes.axhspan(_scaled(low, measure), _scaled(high, measure), color="0.85")


def _draw_bars(axes: Any, members: list[PointSummary], measure: str) -> None:
    names = [one.strategy for one in members]
    axes.bar(names, _means(members, measure), yerr=_spreads(members, measure), capsize=4, color="C0")
    for name, value in _printed(members, measure).items():
        axes.plot([name], [value], "x", color="black", markersize=9)


def _draw_lines(axes: Any, members: list[PointSummary], measure: str, by_weight: bool) -> None:
    printed = _printed(members, measure)
    for number, strategy in enumerate(dict.fromkeys(one.strategy for one in members)):
        points = [one for one in members if one.strategy == strategy]
        colour = f"C{number}"
        if by_weight and points[0].weight < 0:
            axes.axhline(_means(points, measure)[0], linestyle="--", color=colour, label=strategy)
            continue
        places = [one.weight if by_weight else one.rate for one in points]
        order = sorted(range(len(points)), key=places.__getitem__)
        points = [points[index] for index in order]
        axes.errorbar(
            sorted(places),
            _means(points, measure),
            yerr=_spreads(points, measure),
            marker="o",
            markersize=3,
            capsize=3,
            color=colour,
            label=strategy,
        )
        if strategy in printed and not by_weight:
            rate = _printed_rate(members, measure, strategy)
            axes.plot(
                [rate], [printed[strategy]], "x", color=colour, markersize=9, label=f"{strategy} as printed"
            )


def _printed(members: list[PointSummary], measure: str) -> dict[str, float]:
    """Return the printed values of this measure by strategy, without ratios."""
    first = members[0]
    return {
        printed.strategy: _scaled(printed.value, measure)
        for printed in PUBLISHED
        if (printed.paper, printed.figure, printed.scenario) == (first.paper, first.figure, first.scenario)
        and printed.measure == measure
        and not printed.versus
        and any(one.strategy == printed.strategy and one.rate == printed.rate for one in members)
    }


def _printed_rate(members: list[PointSummary], measure: str, strategy: str) -> float:
    return next(
        printed.rate
        for printed in PUBLISHED
        if (printed.figure, printed.measure, printed.strategy) == (members[0].figure, measure, strategy)
        and not printed.versus
    )


def _means(members: list[PointSummary], measure: str) -> list[float]:
    return [_scaled(float(getattr(one, measure)), measure) for one in members]


def _spreads(members: list[PointSummary], measure: str) -> list[float]:
    return [_scaled(float(getattr(one, f"{measure}_deviation")), measure) for one in members]


def _scaled(value: float, measure: str) -> float:
    return 100.0 * value if measure == "delivery_rate" else value
