"""Charts as inline SVG: lines with whiskers, and bars.

Colours are variables of the page, so charts follow its dark and print styles; lines also differ by
marker, for readers who cannot tell colours apart. No scripts, no external resources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

COLOURS: Final = 8
_WIDTH: Final = 480
_HEIGHT: Final = 280
_LEFT: Final = 58
_RIGHT: Final = 14
_TOP: Final = 12
_BOTTOM: Final = 42
_TICKS: Final = 5
_LEAST_STEP: Final = 1e-12  # between ticks; what is closer is one value to a reader
# Up to this many values of x, each has a label.
_FEW: Final = 8
_BAR_HEIGHT: Final = 22
_BAR_STEP: Final = 32
_BAR_WIDTH: Final = 760
_CHARACTER: Final = 6.6  # width at the size of the labels


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y, deviation) of one series; a level, which is the same for all x, has no points."""

    name: str
    points: Sequence[tuple[float, float, float]]
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A published value, drawn as a cross in the colour of its line."""

    line: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of parts (value, class) with its label; a strong one is highlighted."""

    name: str
    parts: Sequence[tuple[float, str]]
    text: str
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """Labels of the axes."""

    x: str
    y: str
    is_percent: bool = False
    names: Sequence[str] = field(default_factory=tuple)  # all lines of the figure, for their colours


def line_chart(lines: Sequence[Line], axes: Axes, marks: Sequence[Mark] = ()) -> str:
    """Draw lines over numbers; the vertical axis begins at zero."""
    xs = [x for line in lines for x, _, _ in line.points] + [mark.x for mark in marks]
    flat = [line.level for line in lines if line.level is not None] + [mark.y for mark in marks]
    highs = flat + [y + deviation for line in lines for _, y, deviation in line.points]
    lows = flat + [y - deviation for line in lines for _, y, deviation in line.points]
    if axes.is_percent:  # a deviation may reach beyond 100 %; the chart does not
        highs = [min(high, 1.0) for high in highs]
        lows = [max(low, 0.0) for low in lows]
    distinct = sorted(set(xs))
    few = len(distinct) <= _FEW
    x_ticks = distinct if few else ticks(distinct[0], distinct[-1])
    y_ticks = _around(min([0.0, *lows]), max([0.0, *highs]) or 1.0)
    scale = _Scale(min(xs, default=0.0), max(xs, default=1.0), y_ticks[0], y_ticks[-1])
    parts = [_grid(scale, x_ticks, y_ticks, axes)]
    for line in lines:
        parts.append(_line(scale, line, axes))
    for mark in marks:
        x, y = scale.place(mark.x, mark.y)
        colour = _colour(axes, mark.line)
        parts.append(
            f'<path class="mark" style="stroke:{colour}" d="M{x - 5:.1f} {y - 5:.1f}l10 10m0-10l-10 10">'
            f"<title>{escape(mark.line)}, published: {number(mark.y, axes.is_percent)}</title></path>"
        )
    return _svg(_WIDTH, _HEIGHT, "".join(parts), f"{axes.y} over {axes.x}")


def bar_chart(bars: Sequence[Bar], title: str) -> str:
    """Draw horizontal bars, all to one scale."""
    left = 12 + _CHARACTER * max((len(_short(bar.name)) for bar in bars), default=0)
    right = 12 + _CHARACTER * max((len(bar.text) for bar in bars), default=0)
    most = max((sum(max(value, 0.0) for value, _ in bar.parts) for bar in bars), default=0.0) or 1.0
    unit = (_BAR_WIDTH - left - right) / most
    parts = []
    for index, bar in enumerate(bars):
        y = index * _BAR_STEP + 4
        middle = y + _BAR_HEIGHT / 2 + 4
        strong = " strong" if bar.is_strong else ""
        parts.append(
            f'<text class="label{strong}" x="{left - 8:.0f}" y="{middle:.0f}" text-anchor="end">'
            f"{escape(_short(bar.name))}</text>"
        )
        x = left
        for value, kind in bar.parts:
            width = max(value, 0.0) * unit
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" '
                f'height="{_BAR_HEIGHT}" rx="2"/>'
            )
            x += width
        parts.append(
            f'<text class="value{strong}" x="{x + 8:.1f}" y="{middle:.0f}">{escape(bar.text)}</text>'
        )
    return _svg(_BAR_WIDTH, len(bars) * _BAR_STEP + 4, "".join(parts), title)


def legend(names: Sequence[str]) -> str:
    """Return the legend: marker and colour of each line."""
    items = []
    for index, name in enumerate(names):
        items.append(
            f'<span class="key"><svg width="28" height="14" aria-hidden="true">'
            f'<path style="stroke:var(--c{index % COLOURS})" d="M1 7h26"/>'
            f"{_marker(14, 7, index)}</svg>{escape(name)}</span>"
        )
    return f'<p class="legend">{"".join(items)}</p>'


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers from `low` to `high`."""
    if high <= low:
        return [low]
    raw = max((high - low) / _TICKS, _LEAST_STEP)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def number(value: float, is_percent: bool = False) -> str:
    """Format a number in few digits."""
    if is_percent:
        return f"{100 * value:.3g} %"
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g} M"
    if size >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:,.0f}" if size >= 100 else f"{value:.3g}"


def _around(low: float, high: float) -> list[float]:
    """Return ticks that include both ends."""
    inside = ticks(low, high)
    step = inside[1] - inside[0] if len(inside) > 1 else high - low
    if inside[-1] < high - 1e-9 * step:
        inside.append(round(inside[-1] + step, 12))
    if inside[0] > low + 1e-9 * step:
        inside.insert(0, round(inside[0] - step, 12))
    return inside


class _Scale:
    """Maps values to positions in the chart."""

    def __init__(self, x_low: float, x_high: float, y_low: float, y_high: float) -> None:
        self._x_low = x_low
        self._y_low = y_low
        self._x_unit = (_WIDTH - _LEFT - _RIGHT - 12) / ((x_high - x_low) or 1.0)
        self._y_unit = (_HEIGHT - _TOP - _BOTTOM) / ((y_high - y_low) or 1.0)

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = _LEFT + 6 + (x - self._x_low) * self._x_unit
        return across, _HEIGHT - _BOTTOM - (y - self._y_low) * self._y_unit


def _grid(scale: _Scale, x_ticks: list[float], y_ticks: list[float], axes: Axes) -> str:
    parts = []
    for tick in y_ticks:
        _, y = scale.place(0.0, tick)
        kind = "axis" if tick == 0 else "grid"
        parts.append(f'<path class="{kind}" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        text = number(tick, axes.is_percent)
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    bottom = _HEIGHT - _BOTTOM
    for tick in x_ticks:
        x, _ = scale.place(tick, 0.0)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{number(tick)}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="label" x="{middle:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(axes.x)}</text>'
    )
    return "".join(parts)


def _line(scale: _Scale, line: Line, axes: Axes) -> str:
    colour = _colour(axes, line.name)
    if line.level is not None:
        _, y = scale.place(0.0, line.level)
        return (
            f'<path class="line level" style="stroke:{colour}" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}">'
            f"<title>{escape(line.name)}: {number(line.level, axes.is_percent)}</title></path>"
        )
    places = [(*scale.place(x, y), x, y, deviation) for x, y, deviation in line.points]
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y, *_ in places)
    parts = [f'<path class="line" style="stroke:{colour}" d="M{way}"/>'] if len(places) > 1 else []
    for across, down, x, y, deviation in places:
        _, top = scale.place(x, min(y + deviation, 1.0) if axes.is_percent else y + deviation)
        _, low = scale.place(x, max(y - deviation, 0.0) if axes.is_percent else y - deviation)
        if deviation > 0:
            parts.append(
                f'<path class="whisker" style="stroke:{colour}" '
                f'd="M{across - 3:.1f} {top:.1f}h6m-3 0V{low:.1f}m-3 0h6"/>'
            )
        said = (
            f"{line.name}: {number(y, axes.is_percent)} ± {number(deviation, axes.is_percent)} at {number(x)}"
        )
        parts.append(_marker(across, down, _index(axes, line.name), said))
    return "".join(parts)


def _marker(x: float, y: float, index: int, title: str = "") -> str:
    shapes = (
        f"M{x - 3.5:.1f} {y:.1f}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        f"M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z",
        f"M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z",
        f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
    )
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<path class="marker" style="fill:var(--c{index % COLOURS})" d="{shapes[index % len(shapes)]}">'
        f"{inside}</path>"
    )


def _index(axes: Axes, name: str) -> int:
    return list(axes.names).index(name) if name in axes.names else 0


def _colour(axes: Axes, name: str) -> str:
    return f"var(--c{_index(axes, name) % COLOURS})"


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:13] + "…" + name[-14:]


def _svg(width: float, height: float, inside: str, title: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{inside}</svg>"
    )
