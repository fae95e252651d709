"""Means over seeds, their intervals, and ratios on the same requests."""

from __future__ import annotations

import pytest

from timebound.sim.papers.paper004.grid import PathRow
from timebound.sim.papers.paper004.summary import mean_of, points, ratios


def row(finder: str, seed: int, accepted: int, replicas: int = 1, figure: int = 9) -> PathRow:
    return PathRow(
        figure, finder, replicas, 32, "single", seed, "literal", accepted, 0, 0.1, 10.0 * seed, 5.0, 6.0
    )


def test_an_interval_is_that_of_students_t() -> None:
    mean = mean_of([1.0, 2.0, 3.0])

    assert (mean.value, mean.count) == (2.0, 3)
    assert mean.margin == pytest.approx(4.30 / 3**0.5)
    assert mean_of([5.0]).margin == 0.0
    assert mean_of([1.0, 2.0] * 20).margin == pytest.approx(1.96 * (10 / 39 / 40) ** 0.5)


def test_a_point_sums_up_its_seeds() -> None:
    [one, other] = points([row("fns", 1, 10), row("fns", 2, 20), row("fr", 1, 7)])

    assert (one.finder, one.means["accepted"].value, one.means["latency_ms"].value) == ("fns", 15.0, 15.0)
    assert (other.finder, other.means["accepted"].count) == ("fr", 1)


def test_ratios_are_taken_seed_by_seed() -> None:
    rows = [row("crankback", 1, 10), row("crankback", 2, 30), row("fns", 1, 10), row("fns", 2, 60)]
    rows += [row("indiqos", 1, 5, replicas=3), row("crankback", 3, 10, figure=5)]

    found = {(one.finder, one.replicas): one.means["accepted"].value for one in ratios(rows)}

    assert found == {("fns", 1): 0.75, ("indiqos", 3): 2.0}
