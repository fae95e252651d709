"""Experiments over a real slow interface: what a result says, and one short run."""

from __future__ import annotations

import pytest

from timebound.demo.interface import why_not
from timebound.demo.interface_run import CLASSES, Case, InterfaceResult, run
from timebound.demo.traffic import Fate, Traffic
from timebound.units import SECOND

REASON = why_not()
CASE = Case(125_000.0, 0.4, 2.0, 4.0)


def result(held: list[tuple[int, int]] | None = None) -> InterfaceResult:
    """Of four alerts one is in time, one late and two lost; everything else is lost."""
    alerts, telemetry, bulk = (Traffic(kind) for kind in CLASSES)
    alerts.fates = [Fate(SECOND, SECOND + SECOND // 4), Fate(SECOND, 3 * SECOND), Fate(SECOND), Fate(SECOND)]
    telemetry.fates = [Fate(SECOND)]
    return InterfaceResult(CASE, [alerts, telemetry, bulk], 40.0, held or [])


def test_value_counts_what_was_in_time_against_the_best() -> None:
    assert (result().value, result().share_of_best) == (10.0, 0.25)


def test_shares_are_of_what_was_published_and_of_what_arrived() -> None:
    assert result().in_time_share("alerts") == 0.25
    assert result().late_share("alerts") == 0.5
    assert result().late_share("telemetry") == 0.0


def test_age_is_that_of_what_arrived() -> None:
    assert result().age_s("alerts", 0.0) == 0.25
    assert result().age_s("alerts", 1.0) == 2.0
    assert result().age_s("telemetry") == float("inf")


def test_held_bytes_have_a_median_and_an_unsent_maximum() -> None:
    watched = result([(3_000, 0), (5_000, 2_000), (9_000, 1_000)])

    assert (watched.held_median, watched.unsent_max) == (5_000, 2_000)
    assert (result().held_median, result().unsent_max) == (0.0, 0)


@pytest.mark.skipif(bool(REASON), reason=f"no real slow interface can be made here: {REASON}")
def test_short_run_judges_every_message_that_was_published() -> None:
    found = run(Case(125_000.0, 0.1, 0.5, 1.0, qos=1))

    # How much is in time depends on the machine; half of what the link carries arrives on any.
    assert all(traffic.fates for traffic in found.traffics)
    assert sum(len(traffic.delays_ns()) for traffic in found.traffics) > 0
    assert 0 < found.value <= found.value_best * 1.001
