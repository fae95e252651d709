"""Links: how long sending takes."""

from __future__ import annotations

from random import Random

import pytest

from timebound.sim.mesh.network import SimLink

KB = 1_024


def link(**options: float) -> SimLink:
    return SimLink("a", "b", 75.0, 20.0, Random(1), **options)  # type: ignore[arg-type]  # mixed options


def durations(of: SimLink, count: int = 2_000) -> list[int]:
    return [of.duration_ns(50 * KB) for _ in range(count)]


def test_a_message_takes_its_size_times_the_mean_on_average() -> None:
    times = durations(link())

    assert sum(times) / len(times) == pytest.approx(3.75e9, rel=0.02)
    assert min(times) > 0


def test_drawing_every_kilobyte_varies_less() -> None:
    whole, parts = durations(link()), durations(link(per_kilobyte=True))

    assert max(parts) - min(parts) < 0.3 * (max(whole) - min(whole))


def test_loss_repeats_transmissions() -> None:
    assert sum(durations(link(loss=0.5))) > 1.8 * sum(durations(link()))


def test_clipped_rates_are_positive() -> None:
    slow = SimLink("a", "b", 10.0, 50.0, Random(2), clips=True)

    assert min(durations(slow)) == int(50 * 0.2 * 1e6)


def test_a_slowed_link_says_so() -> None:
    slowed = link()
    slowed.factor = 3.0

    assert slowed.delay().mean_s_per_kb == pytest.approx(0.225)
    assert slowed.delay().variance == pytest.approx(0.0036)
