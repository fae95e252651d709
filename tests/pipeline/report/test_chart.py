"""Charts: round ticks, values in their place, and text that cannot break the page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timebound.pipeline.report.chart import (
    Axes,
    Bar,
    Line,
    Mark,
    bar_chart,
    legend,
    line_chart,
    number,
    ticks,
)

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 14.0, [0.0, 5.0, 10.0]),
        (3.0, 3.0, [3.0]),
        (-10.0, 10.0, [-10.0, -5.0, 0.0, 5.0, 10.0]),
        (-5e-324, 5e-324, [0.0]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@given(low=FINITE, width=st.floats(1e-3, 1e9))
def test_ticks_are_few_even_and_inside(low: float, width: float) -> None:
    found = ticks(low, low + width)
    slack = 1e-6 * (abs(low) + width)

    assert 1 <= len(found) <= 7
    assert all(low - slack <= tick <= low + width + slack for tick in found)


@pytest.mark.parametrize(
    ("value", "is_percent", "expected"),
    [
        (0.401, True, "40.1 %"),
        (348_287.2, False, "348 k"),
        (2_500_000.0, False, "2.5 M"),
        (1_234.0, False, "1,234"),
        (0.05, False, "0.05"),
        (0.0, False, "0"),
    ],
)
def test_numbers_are_short(value: float, is_percent: bool, expected: str) -> None:
    assert number(value, is_percent) == expected


@given(
    points=st.lists(st.tuples(FINITE, FINITE, st.floats(0, 1e6)), min_size=1, max_size=20),
    level=FINITE,
)
@example(points=[(0.0, 0.0, 5e-324)], level=0.0)
def test_everything_drawn_is_inside_the_picture(
    points: list[tuple[float, float, float]], level: float
) -> None:
    lines = [Line("a", points), Line("b", (), level)]

    drawn = line_chart(lines, Axes("x", "y", names=["a", "b"]), [Mark("a", points[0][0], level)])

    box = ElementTree.fromstring(drawn).attrib["viewBox"].split()
    width, height = float(box[2]), float(box[3])
    for x, y in re.findall(r'd="M(-?[\d.]+) (-?[\d.]+)', drawn):
        assert -10 <= float(x) <= width
        assert -10 <= float(y) <= height


def test_a_higher_value_is_drawn_higher_and_a_larger_one_further_right() -> None:
    drawn = line_chart([Line("a", [(1.0, 2.0, 0.0), (3.0, 8.0, 0.0)])], Axes("x", "y", names=["a"]))

    way = re.search(r'class="line"[^>]*d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', drawn)
    assert way is not None
    first_x, first_y, last_x, last_y = map(float, way.groups())
    assert first_x < last_x
    assert first_y > last_y


def test_parts_of_bars_are_to_scale() -> None:
    bars = [Bar("a", ((30, "good"), (10, "bad")), "75 %"), Bar("b", ((20, "good"),), "100 %", is_strong=True)]

    root = ElementTree.fromstring(bar_chart(bars, "bars"))

    widths = [float(one.attrib["width"]) for one in root.iter("rect")]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)
    assert widths[2] == pytest.approx(2 * widths[1], rel=0.01)


def test_names_cannot_break_out() -> None:
    evil = '<script>alert("x")</script>&'
    drawn = [
        bar_chart([Bar(evil, ((1, "good"),), evil)], evil),
        line_chart([Line(evil, [(1.0, 1.0, 1.0)])], Axes(evil, evil, names=[evil])),
        legend([evil]),
    ]

    assert all("<script" not in one for one in drawn)
    assert ElementTree.fromstring(drawn[0]) is not None
    assert ElementTree.fromstring(drawn[1]) is not None


def test_bars_without_anything_are_no_error() -> None:
    assert "<svg" in bar_chart([Bar("a", ((0, "good"),), "0")], "none")
