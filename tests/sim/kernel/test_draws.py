"""Distributions: their range, their mean, and which parameters are refused."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.sim.kernel.draws import KINDS, Draw, choice, fixed, uniform

finite = st.floats(-1e6, 1e6)
positive = st.floats(1e-3, 1e6)
every_draw = st.one_of(
    finite.map(fixed),
    st.lists(finite, min_size=1, max_size=5).map(lambda numbers: choice(*numbers)),
    st.tuples(finite, finite).map(lambda ends: uniform(min(ends), max(ends))),
    st.tuples(finite, st.floats(0, 1e3)).map(lambda numbers: Draw("normal", numbers)),
    st.tuples(positive, st.floats(0, 3)).map(lambda numbers: Draw("lognormal", numbers)),
    positive.map(lambda mean: Draw("exponential", (mean,))),
)


def test_draws_stay_within_their_range() -> None:
    random = Random(3)

    assert all(5 <= uniform(5, 6).draw(random) <= 6 for _ in range(100))
    assert {choice(1, 2).draw(random) for _ in range(100)} == {1, 2}
    assert fixed(4).draw(random) == 4
    assert all(Draw("normal", (0.0, 5.0), 1.0).draw(random) >= 1.0 for _ in range(100))
    assert Draw("lognormal", (8.0, 0.0)).draw(random) == 8.0
    assert Draw("exponential", (8.0,)).draw(random) > 0


@pytest.mark.parametrize(
    ("kind", "numbers", "message"),
    [
        ("zipf", (1.0,), "unknown"),
        ("uniform", (1.0,), "has 1 numbers; expected 2"),
        ("uniform", (2.0, 1.0), "wrong order"),
        ("normal", (0.0, -1.0), "negative deviation"),
        ("exponential", (0.0,), "positive mean"),
        ("choice", (), "expected at least 1"),
        ("fixed", (float("inf"),), "not finite"),
    ],
)
def test_impossible_distributions_are_refused(kind: str, numbers: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Draw(kind, numbers)


def test_a_minimum_that_is_never_reached_raises() -> None:
    with pytest.raises(ValueError, match="almost never"):
        Draw("fixed", (1.0,), 2.0).draw(Random(1))


@given(every_draw, st.integers(0, 1_000))
def test_no_draw_is_below_its_lowest(draw: Draw, seed: int) -> None:
    random = Random(seed)

    assert min(draw.draw(random) for _ in range(20)) >= draw.lowest()


@pytest.mark.parametrize(
    ("draw", "lowest"),
    [
        (fixed(4), 4),
        (choice(3, 1, 2), 1),
        (uniform(5, 6), 5),
        (Draw("uniform", (0.0, 9.0), 2.0), 2),
        (Draw("exponential", (3.0,)), 0),
        (Draw("lognormal", (3.0, 1.0)), 0),
        (Draw("normal", (3.0, 1.0)), -math.inf),
        (Draw("normal", (3.0, 1.0), 1.0), 1),
    ],
)
def test_the_lowest_is_that_of_the_distribution_or_its_minimum(draw: Draw, lowest: float) -> None:
    assert draw.lowest() == lowest


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (uniform(10, 30), 20),
        (choice(10, 20, 60), 30),
        (Draw("normal", (50.0, 10.0)), 50),
        (Draw("exponential", (20.0,)), 20),
        (Draw("lognormal", (50.0, 0.5)), 50 * math.exp(0.125)),
    ],
    ids=lambda value: value.kind if isinstance(value, Draw) else None,
)
def test_the_mean_is_that_of_the_distribution(draw: Draw, mean: float) -> None:
    random = Random(5)

    assert fmean(draw.draw(random) for _ in range(5_000)) == pytest.approx(mean, rel=0.05)


def test_every_kind_can_be_drawn_and_repeats_by_seed() -> None:
    for kind, count in KINDS.items():
        draw = Draw(kind, (2.0, 3.0)[: count or 2])
        assert draw.draw(Random(1)) == draw.draw(Random(1)), kind
