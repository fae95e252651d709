"""Spreads of latencies, as the tables show them."""

from __future__ import annotations

from timebound.bench.channel_results import (
    spread_of,
)

SPREAD = spread_of([1_000, 2_000, 9_000])


def test_spread_has_the_usual_figures() -> None:
    assert (SPREAD.min_us, SPREAD.max_us, SPREAD.mean_us, SPREAD.p50_us) == (1.0, 9.0, 4.0, 2.0)
    assert spread_of([]).count == 0
