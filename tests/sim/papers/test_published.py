"""Printed values beside simulated ones: means, deviations and ratios."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.sim.papers.grid import FIGURES, MEASURES_OF_FIGURE, STRATEGIES, GridRow
from timebound.sim.papers.published import PUBLISHED, RANGES, compare, deviation, mean, summarise


def row(strategy: str, seed: int, earning: float, traffic: int = 100) -> GridRow:
    return GridRow(
        "002", 5, "ssd", 15.0, strategy, -1.0, seed, "literal", 0.5, earning, traffic, 10, 5, 1, 0.1
    )


def test_summaries_hold_mean_and_deviation() -> None:
    [summary] = summarise([row("eb", 1, 10.0), row("eb", 2, 14.0)])

    assert (summary.seeds, summary.earning) == (2, 12.0)
    assert summary.earning_deviation == pytest.approx(8**0.5)
    assert deviation([3.0]) == 0.0


def test_ratios_stand_beside_the_printed_ones() -> None:
    compared = compare(summarise([row("eb", 1, 90.0, 150), row("fifo", 1, 30.0, 100)]))

    assert [(printed.versus, value) for printed, value in compared] == [("fifo", 3.0), ("fifo", 1.5)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_mean_and_deviation_are_those_of_a_sample(numbers: list[float]) -> None:
    assert mean(numbers) == pytest.approx(fmean(numbers), abs=1e-6)
    assert deviation(numbers) == pytest.approx(stdev(numbers), abs=1e-3)


def test_points_that_differ_in_anything_but_the_seed_are_summarised_apart() -> None:
    first = row("eb", 1, 10.0)
    others = [
        replace(first, rate=9.0),
        replace(first, weight=0.5),
        replace(first, reading="alive"),
        replace(first, figure=4),
    ]

    summaries = summarise([first, *others, replace(first, seed=2, earning=20.0)])

    assert [one.seeds for one in summaries] == [2, 1, 1, 1, 1]
    assert summaries[0].earning == 15.0


def test_the_best_weight_is_held_against_a_printed_number() -> None:
    swept = replace(row("mtep", 1, 100.0), paper="001", figure=9, scenario="net", rate=1.0)

    compared = compare(summarise([replace(swept, weight=0.1), replace(swept, weight=0.4, earning=300.0)]))

    assert [(printed.measure, value) for printed, value in compared] == [
        ("delivery_rate", 0.5),
        ("earning", 300.0),
    ]


def test_a_ratio_to_nothing_is_left_out() -> None:
    assert compare(summarise([row("eb", 1, 90.0), row("fifo", 1, 0.0, traffic=0)])) == []


def test_every_printed_number_is_of_a_figure_that_the_grid_runs() -> None:
    for printed in PUBLISHED:
        assert printed.figure in FIGURES[printed.paper]
        assert printed.measure in MEASURES_OF_FIGURE[(printed.figure, printed.scenario)]
        assert {printed.strategy, printed.versus or printed.strategy} <= set(STRATEGIES)
    for (figure, scenario, measure), (low, high) in RANGES.items():
        assert measure in MEASURES_OF_FIGURE[(figure, scenario)]
        assert low < high
