"""Links and draws: how long sending takes, and which distributions there are."""

from __future__ import annotations

from random import Random

import pytest

from timebound.sim.kernel.draws import Draw, choice, fixed, uniform
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh.network import SimLink
from timebound.sim.mesh.workload import Source
from timebound.sim.papers.settings import paper_002
from timebound.units import MINUTE

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


def test_draws_stay_within_what_they_promise() -> None:
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
        ("uniform", (1.0,), "has 1 numbers; want 2"),
        ("uniform", (2.0, 1.0), "wrong way round"),
        ("normal", (0.0, -1.0), "negative deviation"),
        ("exponential", (0.0,), "positive mean"),
        ("choice", (), "want at least 1"),
        ("fixed", (float("inf"),), "not finite"),
    ],
)
def test_impossible_distributions_are_refused(kind: str, numbers: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Draw(kind, numbers)


def test_a_least_that_is_never_reached_ends() -> None:
    with pytest.raises(ValueError, match="hardly ever"):
        Draw("fixed", (1.0,), 2.0).draw(Random(1))


@pytest.mark.parametrize("arrivals", ["poisson", "periodic", "bursty"])
def test_publishers_keep_their_mean_rate(arrivals: str) -> None:
    from dataclasses import replace

    setting = replace(paper_002("psd", 30.0, "eb").publishers[0], arrivals=arrivals)
    source = Source("p1", "b1", setting, Streams(1).stream("publisher p1"))
    now = source.first_ns()
    count = 0
    while now < 200 * MINUTE:
        count += 1
        now = source.next_ns(now)

    assert count == pytest.approx(6_000, rel=0.1)


def test_messages_carry_what_the_paper_says() -> None:
    source = Source("p1", "b1", paper_002("psd", 1.0, "eb").publishers[0], Random(1))

    what = source.message(7, 123)

    assert what.size_bytes == 50 * KB
    assert what.message.sequence == 7
    assert 10_000_000_000 <= what.message.timeout_ns <= 30_000_000_000
    assert [name for name, _ in what.message.user_properties] == ["a1", "a2"]
