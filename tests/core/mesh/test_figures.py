"""Figures of links between brokers: when they are told again, and what a loss is."""

from __future__ import annotations

import pytest

from timebound.core.mesh.figures import LinkFigures, LossMeter

MS = 1_000_000


def figures(waiting: int = 10, queue_ms: float = 10, latency_ms: float = 5, lost: float = 0.1) -> LinkFigures:
    return LinkFigures(waiting, int(queue_ms * MS), int(latency_ms * MS), lost)


@pytest.mark.parametrize(
    ("now", "has_moved"),
    [
        (figures(), False),
        (figures(waiting=12), False),
        (figures(waiting=14), True),
        (figures(waiting=7), True),
        (figures(queue_ms=14), True),
        (figures(latency_ms=4.5), False),
        (figures(latency_ms=7), True),
        (figures(lost=0.0), True),
    ],
)
def test_they_are_told_again_when_one_has_moved_by_a_quarter(now: LinkFigures, has_moved: bool) -> None:
    assert now.has_moved(figures()) == has_moved
    assert figures().has_moved(now) == has_moved


def test_what_is_small_does_not_count() -> None:
    nothing = figures(0, 0, 0, 0.0)

    assert not figures(0, 0.9, 0.9, 0.0009).has_moved(nothing)
    assert figures(1, 0, 0, 0.0).has_moved(nothing)


@pytest.mark.parametrize("wrong", [(-1, 0, 0, 0.0), (0, -1, 0, 0.0), (0, 0, -1, 0.0), (0, 0, 0, 1.1)])
def test_figures_out_of_range_are_refused(wrong: tuple[int, int, int, float]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        LinkFigures(*wrong)


def test_the_loss_is_that_since_the_last_call() -> None:
    meter = LossMeter()
    assert meter.take_share() == 0.0
    meter.sent, meter.dropped = 30, 10
    assert meter.take_share() == 0.25
    assert meter.take_share() == 0.0
    meter.dropped += 5
    assert meter.take_share() == 1.0
