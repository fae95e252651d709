"""Quantiles of durations: never too small, at most a fifth too large, by weight, and fading."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.input.meter import DurationMeter


def test_nothing_measured_has_no_quantile() -> None:
    assert DurationMeter().quantile_ns(0.99) == 0


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 50)), min_size=1, max_size=50),
    st.sampled_from([0.5, 0.9, 0.999]),
)
def test_a_quantile_covers_that_part_by_weight(values: list[tuple[int, int]], part: float) -> None:
    meter = DurationMeter()
    for duration_ns, weight in values:
        meter.add(duration_ns, weight)

    found = meter.quantile_ns(part)

    everything = sorted(duration_ns for duration_ns, weight in values for _ in range(weight))
    rank = -int(-len(everything) * part // 1)
    exact = everything[rank - 1]
    assert exact <= found <= exact * 1.2 + 2


def test_a_long_round_counts_for_all_that_come_while_it_lasts() -> None:
    meter = DurationMeter()
    for _ in range(1_000):
        meter.add(1_000_000, 10)
    meter.add(50_000_000, 500)

    assert meter.quantile_ns(0.9) == pytest.approx(1_000_000, rel=0.2)
    assert meter.quantile_ns(0.999) == pytest.approx(50_000_000, rel=0.2)


def test_what_is_old_fades() -> None:
    meter = DurationMeter()
    meter.add(1_000, 2)
    meter.fade()
    meter.add(64_000, 9)

    assert meter.count == 10
    assert meter.quantile_ns(0.5) == pytest.approx(64_000, rel=0.2)


def test_one_stop_in_a_long_time_is_no_overrun() -> None:
    meter = DurationMeter()
    for _ in range(100_000):
        meter.add(1_000_000, 10)
    meter.add(90_000_000, 900)  # of 100 s, 90 ms

    assert meter.overrun_ns(0.001) == pytest.approx(1_000_000, rel=0.2)
    assert meter.overrun_ns(0.0001) == pytest.approx(80_000_000, rel=0.2)


def test_one_stop_soon_after_the_start_says_little() -> None:
    meter = DurationMeter()
    for _ in range(1_000):
        meter.add(1_000_000, 10)
    meter.add(90_000_000, 900)  # of 1 s, 90 ms

    assert meter.overrun_ns(0.001) == pytest.approx(90_000_000, rel=0.2)
    assert meter.overrun_ns(0.001, 1_000_000) == pytest.approx(1_000_000, rel=0.2)


def test_nothing_measured_has_no_overrun() -> None:
    assert DurationMeter().overrun_ns(0.001) == 0


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=50),
    st.sampled_from([0.5, 0.1, 0.001]),
)
def test_no_more_than_that_part_of_the_time_is_beyond_an_overrun(durations: list[int], part: float) -> None:
    meter = DurationMeter()
    for duration in durations:
        meter.add(duration, duration)

    found = meter.overrun_ns(part)

    def beyond(limit: float) -> float:
        return sum(max(0, duration - limit) for duration in durations)

    assert beyond(found) <= part * sum(durations)
    # Lengths are known to a quarter of an octave, and so is the limit.
    assert beyond(found / 1.5 - 2) >= part * sum(durations) or found <= 2


def test_counts_take_no_memory_as_they_grow() -> None:
    meter = DurationMeter()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for bucket in range(100):
            meter.add(2.0 ** (bucket / 4 + 0.1), 1_000)
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert meter.count == 100_000
    assert taken_bytes < 1_000, "each count is an object, which keeps the memory around it"
