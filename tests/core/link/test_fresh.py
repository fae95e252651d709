"""Under overload what is sent is fresh: a link behind a hidden buffer, in virtual time.

Every case drives the real broker core; the receiver's clock decides (`hidden_link.py`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from timebound.core.link.scheduling import Scheduling
from timebound.units import MILLISECOND

from .hidden_link import CLASSES, RATE_BYTES_PER_S, HiddenLink

SECONDS = 12.0


@pytest.mark.parametrize("load", [1.5, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("hidden_bytes", [0, 20_000, 100_000])
def test_what_is_acknowledged_arrives_in_time(hidden_bytes: int, load: float) -> None:
    outcome = HiddenLink(hidden_bytes, 1).run(load, SECONDS)

    assert outcome.share_in_time("alerts") >= 0.99
    assert outcome.share_of_possible("telemetry") >= 0.8
    assert outcome.late_share() < 0.03
    assert outcome.counted_in_time() <= outcome.in_time()
    assert outcome.in_time() - outcome.counted_in_time() <= 0.01 * outcome.in_time()


@pytest.mark.parametrize("load", [1.5, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("hidden_bytes", [0, 20_000])
def test_what_nobody_acknowledges_has_time_for_a_small_buffer(hidden_bytes: int, load: float) -> None:
    outcome = HiddenLink(hidden_bytes, 0).run(load, SECONDS)

    assert outcome.share_in_time("alerts") >= 0.99
    assert outcome.share_of_possible("telemetry") >= 0.8
    assert outcome.late_share() < 0.03


@pytest.mark.parametrize("load", [1.5, 2.0, 3.0, 5.0])
def test_a_margin_keeps_what_cannot_arrive_off_the_link(load: float) -> None:
    # A buffer of 800 ms: no alert can be in time behind it, whatever is done. The rest can.
    scheduling = Scheduling(margin_ns=810 * MILLISECOND)
    outcome = HiddenLink(100_000, 0, scheduling=scheduling).run(load, SECONDS)

    assert outcome.share_of_possible("telemetry") >= 0.8
    assert outcome.late_share() < 0.03


def test_without_a_margin_lasting_overload_leaves_time_for_a_large_buffer() -> None:
    outcome = HiddenLink(100_000, 0).run(3.0, SECONDS)

    assert outcome.share_of_possible("telemetry") >= 0.8


@pytest.mark.parametrize("topics", [1, 300])
def test_freshness_does_not_need_flows(topics: int) -> None:
    outcome = HiddenLink(20_000, 0, topics=topics).run(3.0, SECONDS)

    assert outcome.share_of_possible("telemetry") >= 0.8
    assert outcome.late_share() < 0.03


@pytest.mark.parametrize("qos", [0, 1])
def test_order_inside_a_flow_stays(qos: int) -> None:
    link = HiddenLink(20_000, qos)

    outcome = link.run(3.0, 8.0)

    for traffic in outcome.traffics:
        arrived = [fate.arrived_ns for fate in traffic.fates if fate.arrived_ns]
        assert arrived == sorted(arrived)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_link_with_room_loses_nothing(qos: int) -> None:
    outcome = HiddenLink(0, qos).run(0.9, SECONDS)

    for traffic in outcome.traffics:
        assert traffic.in_time() == len(traffic.fates)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_burst_that_fits_is_sent_completely(qos: int) -> None:
    # One second of three times the capacity: the telemetry takes 1.7 s of the link and has two.
    outcome = HiddenLink(0, qos).run(3.0, 1.0)

    for traffic in outcome.traffics:
        assert traffic.in_time() == len(traffic.fates), traffic.kind.name


def test_a_fast_receiver_is_not_held_back() -> None:
    # Ten times the rate: the window has to open, or the link would be idle.
    outcome = HiddenLink(0, 1, rate_bytes_per_s=10 * RATE_BYTES_PER_S).run(0.95, 6.0)

    for traffic in outcome.traffics:
        assert traffic.in_time() == len(traffic.fates)


def test_untimed_bulk_does_not_make_the_rest_wait() -> None:
    classes = [replace(kind, deadline_ns=0 if kind.name == "bulk" else kind.deadline_ns) for kind in CLASSES]

    outcome = HiddenLink(20_000, 0, classes=classes).run(1.5, SECONDS)

    ages_ns = outcome.of("telemetry").delays_ns()
    assert ages_ns[len(ages_ns) // 2] < 1_000 * MILLISECOND
    assert outcome.share_of_possible("telemetry") >= 0.95
