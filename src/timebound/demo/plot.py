"""The picture of the overload demo: share in time of each class, and value earned, over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from timebound.demo.overload import OverloadResult
from timebound.demo.report import BIN_S, format_rate, over_time
from timebound.packages import FOR_PLOTS, require
from timebound.units import format_duration

PICTURE: Final = "overload.png"
# In the order of the runs; the last strategy of this broker, the default, is drawn thicker and on top.
_COLOURS: Final = ("#d95f02", "#7570b3", "#1b9e77", "#e7298a", "#666666", "#a6761d", "#66a61e", "#1f78b4")


def check_drawing() -> None:
    """Make sure that pictures can be drawn here; ask before a run, not after it.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    require("--plot", *FOR_PLOTS)


def draw(outcomes: Sequence[OverloadResult], folder: Path) -> Path:
    """Write the picture and return its path.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    check_drawing()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    loads = sorted({outcome.load for outcome in outcomes})
    classes = outcomes[0].traffics
    rows = len(classes) + 1
    figure, grid = pyplot.subplots(
        rows, len(loads), figsize=(5.2 * len(loads) + 0.6, 2.1 * rows + 1), sharex=True, squeeze=False
    )
    for column, load in enumerate(loads):
        runs = [outcome for outcome in outcomes if outcome.load == load]
        for row in range(len(classes)):
            _draw_share(grid[row][column], runs, row)
        _draw_value(grid[-1][column], runs)
        grid[0][column].set_title(f"offered {load:g}× what the link carries", fontsize=11, pad=26)
        grid[-1][column].set_xlabel("time of publication, s")
    for row, traffic in enumerate(classes):
        kind = traffic.kind
        grid[row][0].set_ylabel("in time" if kind.deadline_ns else "arrived at all")
        limit = format_duration(kind.deadline_ns) if kind.deadline_ns else "no deadline"
        for column in range(len(loads)):
            text = f"{kind.name}: {limit}, worth {kind.price:g}"
            grid[row][column].text(0.0, 1.06, text, transform=grid[row][column].transAxes, fontsize=9)
    grid[-1][0].set_ylabel("value per second")
    _add_legend(figure, grid[-1][0])
    rate = format_rate(outcomes[0].setting.rate_bytes_per_s)
    figure.suptitle(f"A link of {rate} with more offered than it carries", fontsize=13, x=0.5, y=0.985)
    figure.tight_layout(rect=(0, 0.045, 1, 0.985))
    path = folder / PICTURE
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def _draw_share(axes: Any, runs: Sequence[OverloadResult], row: int) -> None:
    for number, outcome in enumerate(runs):
        traffic = outcome.traffics[row]
        times, shares, _ = over_time(outcome, traffic)
        axes.plot(times, shares, **_line(runs, number))
    traffic = runs[0].traffics[row]
    best = runs[0].best[row].messages / max(len(traffic.fates), 1)
    axes.axhline(min(max(best, 0.0), 1.0), color="black", linestyle=":", linewidth=1)
    axes.set_ylim(-0.04, 1.06)
    axes.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    _tidy(axes, runs)


def _draw_value(axes: Any, runs: Sequence[OverloadResult]) -> None:
    for number, outcome in enumerate(runs):
        total: list[float] = []
        times: list[float] = []
        for traffic in outcome.traffics:
            times, _, values = over_time(outcome, traffic)
            total = [one + other for one, other in zip(total or [0.0] * len(values), values, strict=True)]
        axes.plot(times, total, label=outcome.contender.label, **_line(runs, number))
    best = runs[0].value_best / runs[0].setting.seconds
    axes.axhline(best, color="black", linestyle=":", linewidth=1, label="best possible, on average")
    axes.set_ylim(bottom=0)
    axes.text(0.0, 1.06, "all classes", transform=axes.transAxes, fontsize=9)
    _tidy(axes, runs)


def _line(runs: Sequence[OverloadResult], number: int) -> dict[str, Any]:
    ours = [index for index, outcome in enumerate(runs) if outcome.contender.is_ours]
    is_default = bool(ours) and number == ours[-1]
    return {
        "color": "#08519c" if is_default else _COLOURS[number % len(_COLOURS)],
        "linewidth": 2.4 if is_default else 1.5,
        "zorder": 3 if is_default else 2,
    }


def _tidy(axes: Any, runs: Sequence[OverloadResult]) -> None:
    axes.set_xlim(0, max(runs[0].setting.seconds, BIN_S))
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def _add_legend(figure: Any, axes: Any) -> None:
    lines, labels = axes.get_legend_handles_labels()
    figure.legend(lines, labels, loc="lower center", ncols=len(labels), frameon=False, fontsize=9)
