"""The page about a sweep: figures, published values beside them, and every point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from timebound.pipeline.report import page as html
from timebound.pipeline.report.chart import Axes, Line, Mark, legend, line_chart, number
from timebound.pipeline.report.page import Page
from timebound.pipeline.sweep.results import (
    RUNS_FILE,
    Figure,
    Point,
    Printed,
    SweepInfo,
    Value,
    read_results,
    summarise,
)

if TYPE_CHECKING:
    import pyarrow as pa

ERRORS_SHOWN = 10


def sweep_page(folder: Path) -> Page:
    """Make the page about the results in a folder."""
    table, info = read_results(folder)
    points = summarise(table, info.keys, info.measures)
    page = Page("simulation sweep", info.title, _lead(info, points), info.note)
    page.tiles = _tiles(info)
    for figure in info.figures:
        page.sections.append(_figure(figure, points, info))
    if info.printed:
        page.sections.append(_printed(info.printed))
    page.sections.append(_all_points(info, points))
    if info.failed:
        page.sections.append(_failures(table, info))
    page.footer = (
        f"{info.runs:,} runs took {info.cpu_s:,.1f} s of processor time and {info.wall_s:,.1f} s in all on "
        f"{info.cores} cores. {RUNS_FILE} has every run. "
        "Whiskers show one standard deviation over seeds."
    )
    return page


def words(measure: str) -> str:
    return {"delivery_rate": "delivered in time"}.get(measure, measure.replace("_", " "))


def is_share(measure: str) -> bool:
    return measure.endswith(("_rate", "_share"))


def _lead(info: SweepInfo, points: list[Point]) -> str:
    """Return the main result in one sentence."""
    if not points:
        return "No run succeeded; the errors are listed below."
    figure = info.figures[0] if info.figures else None
    measure = (figure or info).measures[0]
    if figure is None:
        best = max(points, key=lambda point: point.means[measure])
        found = number(best.means[measure], is_share(measure))
        return f"Best by {words(measure)} is {_name(best, info.keys)}: {found}."
    members = [point for point in points if _fits(point, figure)]
    at = max(float(point.values[figure.x]) for point in members)
    there = sorted(
        (point for point in members if float(point.values[figure.x]) == at or _is_level(point, figure)),
        key=lambda point: point.means[measure],
    )
    best, worst = there[-1], there[0]
    found = number(best.means[measure], is_share(measure))
    where = f"At {figure.x.replace('_', ' ')} {at:g}"
    what = "delivers {} in time" if measure == "delivery_rate" else f"reaches {{}} in {words(measure)}"
    said = f"{where}, {_name(best, figure.series) or 'the scenario'} {what.format(found)}"
    if len(there) > 1 and worst.means[measure] > 0:
        ratio = best.means[measure] / worst.means[measure]
        low = number(worst.means[measure], is_share(measure))
        said += f", {ratio:.2g} times {_name(worst, figure.series)} ({low})"
    return said + "."


def _tiles(info: SweepInfo) -> list[tuple[str, str]]:
    tiles = [(f"{info.runs:,}", "runs"), (_duration(info.wall_s), f"on {info.cores} cores")]
    if info.printed:
        tiles.append((f"{len(info.printed)}", "published values compared"))
    if info.failed:
        tiles.append((f"{info.failed:,}", "runs failed"))
    return tiles


def _figure(figure: Figure, points: list[Point], info: SweepInfo) -> str:
    members = [point for point in points if _fits(point, figure)]
    names = list(dict.fromkeys(_name(point, figure.series) for point in members))
    charts = []
    for measure in figure.measures:
        axes = Axes(figure.x_label, words(measure), is_share(measure), names)
        lines = [_line(name, figure, measure, members) for name in names]
        marks = [
            Mark(one.series, one.x, one.printed)
            for one in info.printed
            if (one.figure, one.measure, one.versus) == (figure.title, measure, "") and figure.x == "rate"
        ]
        charts.append(html.figure(words(measure), line_chart(lines, axes, marks)))
    text = f"{_listed([words(measure) for measure in figure.measures])} over {figure.x_label}".capitalize()
    if any(one.figure == figure.title and not one.versus for one in info.printed):
        text += "; crosses are published values"
    key = legend(names) if names != [""] else ""
    return html.section(figure.title or "Effect of the parameters", text + ".", key, html.panels(charts))


def _line(name: str, figure: Figure, measure: str, members: list[Point]) -> Line:
    own = [point for point in members if _name(point, figure.series) == name]
    if own and all(_is_level(point, figure) for point in own):
        return Line(name, (), own[0].means[measure])
    places = sorted(
        (float(point.values[figure.x]), point.means[measure], point.deviations[measure]) for point in own
    )
    return Line(name, places)


def _printed(printed: Sequence[Printed]) -> str:
    rows = []
    for one in printed:
        share = is_share(one.measure) and not one.versus
        rows.append(
            [
                one.figure,
                one.what,
                number(one.printed, share),
                number(one.found, share),
                f"{one.found / one.printed:.2f}" if one.printed else "",
            ]
        )
    columns = ["figure", "what", "published", "found here", "found / published"]
    text = "Published values, and the results of the same setting here."
    return html.section(
        "Comparison with published values", text, html.table(columns, rows, texts=2, rows_max=100)
    )


def _all_points(info: SweepInfo, points: list[Point]) -> str:
    columns = [key.replace("_", " ") for key in info.keys] + ["runs"]
    columns += [words(measure) for measure in info.measures]
    rows = []
    for point in points:
        cells = [_text(value) for value in point.values.values()] + [f"{point.runs}"]
        cells += [
            _spread(point.means[measure], point.deviations[measure], is_share(measure))
            for measure in info.measures
        ]
        rows.append(cells)
    shown = html.table(columns, rows, texts=len(info.keys), where=RUNS_FILE, rows_max=200)
    return html.section("All points", "Mean and standard deviation over the seeds.", shown)


def _failures(table: pa.Table, info: SweepInfo) -> str:
    counts: dict[str, int] = {}
    for error in table["error"].to_pylist():
        if error:
            counts[error] = counts.get(error, 0) + 1
    rows = [[error, f"{count:,}"] for error, count in counts.items()]
    shown = html.table(["error", "runs"], rows, where=RUNS_FILE, rows_max=ERRORS_SHOWN)
    text = f"{info.failed:,} of {info.runs:,} runs failed; they are not included above."
    return html.section("Failed runs", text, shown)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def _spread(mean: float, deviation: float, share: bool) -> str:
    """Format mean and deviation, with digits by their size."""
    if share:
        return f"{100 * mean:.1f} ± {100 * deviation:.1f} %"
    digits = 0 if deviation >= 10 or abs(mean) >= 1_000 else 1 if abs(mean) >= 10 else 3
    return f"{mean:,.{digits}f} ± {deviation:,.{digits}f}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min" if seconds >= 120 else f"{seconds:,.1f} s"


def _fits(point: Point, figure: Figure) -> bool:
    return all(point.values.get(key) == value for key, value in figure.where.items())


def _is_level(point: Point, figure: Figure) -> bool:
    """Whether the weight does not apply to this point: it is negative then."""
    return figure.x == "weight" and float(point.values[figure.x]) < 0


def _name(point: Point, keys: Sequence[str]) -> str:
    shown = [
        value if isinstance(value, str) else f"{key.replace('_', ' ')} {value:g}"
        for key, value in point.values.items()
        if key in keys
    ]
    return ", ".join(shown)


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    return f"{value:g}" if value >= 0 else "–"
