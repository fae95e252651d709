"""Histograms and meters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.channel.base.measure import Histogram, Meter
from timebound.core.input.schedulability import Operation


def test_empty_histogram_answers_zero() -> None:
    histogram = Histogram()

    assert histogram.percentile_ns(50) == 0


def test_percentile_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        Histogram().percentile_ns(101)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), st.sampled_from([1, 50, 90, 99, 100]))
def test_percentiles_are_never_too_low_and_at_most_a_thirtieth_too_high(
    values: list[int], percent: int
) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    ordered = sorted(values)
    exact = ordered[max(-(-len(values) * percent // 100) - 1, 0)]

    found = histogram.percentile_ns(percent)

    assert exact <= found <= exact * (1 + 1 / 30)
    assert (histogram.min_ns, histogram.max_ns) == (ordered[0], ordered[-1])
    assert histogram.count == len(values)


def test_values_beyond_the_range_keep_their_exact_maximum() -> None:
    histogram = Histogram()
    histogram.record(1 << 50)

    assert histogram.max_ns == 1 << 50


def test_meter_counts_overruns_and_misses_apart() -> None:
    meter = Meter(Operation("op", period_ns=100, cost_ns=10))

    assert not meter.record(10, 100)
    assert meter.record(11, 50)
    assert not meter.record(5, 101)
    assert (meter.overruns, meter.misses, meter.cost.max_ns, meter.response.max_ns) == (1, 1, 11, 101)
