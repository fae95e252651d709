"""Delay model: Φ, success, paths, and the estimator that follows a link."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.values.delay import (
    KILOBYTE,
    MEAN_FLOOR_S_PER_KB,
    SATURATED,
    START_MEAN_S_PER_KB,
    DelayEstimator,
    LinkDelay,
    Path,
    link_of_rate,
    normal_cdf,
    normal_quantile,
    phi,
    success,
)

MS = 1_000_000


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (0.0, 0.5),
        (1.0, 0.841344746068543),
        (-1.0, 0.158655253931457),
        (2.0, 0.977249868051821),
        (-3.0, 0.001349898031630),
    ],
)
def test_normal_cdf_has_the_tabulated_values(z: float, expected: float) -> None:
    assert normal_cdf(z) == pytest.approx(expected, abs=1e-14)
    assert phi(z) == pytest.approx(expected, abs=7e-9)


@given(st.floats(-12.0, 12.0))
def test_phi_is_within_7e_9_of_the_normal_distribution(z: float) -> None:
    assert abs(phi(z) - normal_cdf(z)) < 7e-9


@given(st.floats(-7.0, 7.0), st.floats(0.0, 1.0))
def test_phi_never_decreases(z: float, step: float) -> None:
    assert phi(z + step) >= phi(z)


@given(st.floats(-SATURATED, SATURATED))
def test_phi_never_decreases_between_neighbouring_floats_and_grid_points(z: float) -> None:
    around = [z - 2.0**-26, math.nextafter(z, -9), z, math.nextafter(z, 9), z + 2.0**-26]

    values = [phi(x) for x in around]

    assert values == sorted(values)


def test_phi_is_exactly_zero_and_one_far_out() -> None:
    assert (phi(-SATURATED), phi(SATURATED), phi(-math.inf), phi(math.inf)) == (0.0, 1.0, 0.0, 1.0)


@given(st.floats(1e-9, 1 - 1e-9))
def test_quantile_is_the_inverse_of_the_distribution(probability: float) -> None:
    assert normal_cdf(normal_quantile(probability)) == pytest.approx(probability, rel=1e-9)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_quantile_outside_zero_and_one_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        normal_quantile(probability)


def test_success_follows_the_model() -> None:
    # 50 KB at 60 ms/KB take 3 s on average, ±1 s for 20 ms/KB: 4 s of slack are one deviation.
    assert success(4.0, 50.0, 0.060, 0.020) == pytest.approx(0.841344746068543)
    assert success(3.0, 50.0, 0.060, 0.020) == pytest.approx(0.5)


def test_success_without_deviation_is_certain_either_way() -> None:
    assert success(3.0, 50.0, 0.060, 0.0) == 1.0
    assert success(2.999, 50.0, 0.060, 0.0) == 0.0


def test_path_adds_means_variances_and_brokers() -> None:
    path = Path(0.05, 0.0004, 1, 20 * MS).behind(LinkDelay(0.07, 0.0005))

    assert path.mean_s_per_kb == pytest.approx(0.12)
    assert path.variance == pytest.approx(0.0009)
    assert (path.brokers, path.last_mile_ns) == (2, 20 * MS)


def test_link_of_rate_is_the_inverse_of_the_rate() -> None:
    link = link_of_rate(125_000.0, variation=0.1)

    assert link.mean_s_per_kb == pytest.approx(0.008192)
    assert math.sqrt(link.variance) == pytest.approx(0.0008192)


@pytest.mark.parametrize("values", [(-1.0, 0.0), (0.0, -1.0), (math.inf, 0.0), (math.nan, 0.0)])
def test_delays_out_of_range_are_refused(values: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        LinkDelay(*values)
    with pytest.raises(ValueError, match="out of range"):
        Path(*values)


def test_a_negative_jitter_is_refused() -> None:
    with pytest.raises(ValueError, match="jitter_s=-1"):
        LinkDelay(0.1, 0.0, -1.0)


def test_path_with_negative_brokers_or_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="brokers=-1"):
        Path(0.0, 0.0, -1)
    with pytest.raises(ValueError, match="not a positive number"):
        link_of_rate(0.0)
    with pytest.raises(ValueError, match="memory_ns=0"):
        DelayEstimator(memory_ns=0)


def send(estimator: DelayEstimator, rate_bytes_per_s: float, seconds: float, source: random.Random) -> None:
    """Feed samples of 1 to 8 KB, each sent at about the given rate."""
    left = seconds
    while left > 0.0:
        size = source.randint(KILOBYTE, 8 * KILOBYTE)
        duration = size / rate_bytes_per_s * source.uniform(0.9, 1.1)
        estimator.add(size, int(duration * 1e9))
        left -= duration


def test_estimator_starts_with_the_start_value() -> None:
    assert DelayEstimator().mean_s_per_kb() == START_MEAN_S_PER_KB
    assert DelayEstimator(LinkDelay(0.5, 0.01)).link_delay().mean_s_per_kb == 0.5
    assert DelayEstimator(LinkDelay(0.5, 0.01)).variance() == pytest.approx(0.01)


def test_estimator_finds_mean_and_deviation_of_a_steady_link() -> None:
    estimator = DelayEstimator(memory_ns=20_000 * MS)

    send(estimator, 125_000.0, 100.0, random.Random(1))

    assert estimator.rate_bytes_per_s() == pytest.approx(125_000.0, rel=0.02)
    # Uniform within ±10 % has a deviation of 0.2/√12 = 5.8 %.
    assert math.sqrt(estimator.variance()) / estimator.mean_s_per_kb() == pytest.approx(0.0577, rel=0.1)


@pytest.mark.parametrize("factor", [4.0, 0.25])
@pytest.mark.parametrize("rate", [60_000.0, 125_000.0, 12_500_000.0])
def test_estimator_follows_a_change_of_four_within_two_and_a_half_seconds(rate: float, factor: float) -> None:
    source = random.Random(2)
    estimator = DelayEstimator()
    send(estimator, rate, 5.0, source)

    send(estimator, rate * factor, 2.5, source)

    assert estimator.rate_bytes_per_s() == pytest.approx(rate * factor, rel=0.15)


def test_estimator_keeps_its_value_while_nothing_is_sent() -> None:
    estimator = DelayEstimator()
    send(estimator, 125_000.0, 3.0, random.Random(3))
    before = estimator.mean_s_per_kb()

    estimator.add(0, 5_000 * MS)
    estimator.add(1_000, 0)
    estimator.add(1_000, -5)

    assert estimator.mean_s_per_kb() == before


def test_estimator_has_floors_for_mean_and_deviation() -> None:
    estimator = DelayEstimator(LinkDelay(0.0, 0.0))

    for _ in range(100):
        estimator.add(1 << 30, 1)

    assert estimator.mean_s_per_kb() == MEAN_FLOOR_S_PER_KB
    assert math.sqrt(estimator.variance()) >= 0.05 * MEAN_FLOOR_S_PER_KB


def test_estimator_sees_more_deviation_on_an_unsteady_link() -> None:
    estimator = DelayEstimator()

    for index in range(200):
        estimator.add(KILOBYTE, 5 * MS if index % 2 else 15 * MS)

    assert estimator.mean_s_per_kb() == pytest.approx(0.010, rel=0.05)
    assert math.sqrt(estimator.variance()) == pytest.approx(0.005, rel=0.05)


def test_one_long_sample_does_not_replace_all_before() -> None:
    estimator = DelayEstimator()
    for index in range(20):
        estimator.add(50 * KILOBYTE, (2_000 if index % 2 else 4_000) * MS)

    # 50 KB in 2 s or 4 s: 60 ms/KB, ±20. With a memory of half a second alone it would be the last.
    assert estimator.mean_s_per_kb() == pytest.approx(0.060, rel=0.1)
    assert math.sqrt(estimator.variance()) == pytest.approx(0.020, rel=0.1)


def test_has_moved_tells_small_moves_from_large_ones() -> None:
    estimator = DelayEstimator(LinkDelay(0.010, 0.001**2))

    assert not estimator.has_moved(LinkDelay(0.0105, 0.001**2))
    assert estimator.has_moved(LinkDelay(0.012, 0.001**2))
    assert estimator.has_moved(LinkDelay(0.010, 0.004**2))


@given(st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 10**10)), min_size=1, max_size=50))
def test_estimate_stays_between_the_smallest_and_largest_sample(samples: list[tuple[int, int]]) -> None:
    estimator = DelayEstimator()

    for size, duration in samples:
        estimator.add(size, duration)

    rates = [duration / 1e9 / (size / KILOBYTE) for size, duration in samples] + [START_MEAN_S_PER_KB]
    assert min(rates) * 0.999 <= estimator.mean_s_per_kb() <= max(rates) * 1.001 + MEAN_FLOOR_S_PER_KB
    assert estimator.variance() > 0.0
