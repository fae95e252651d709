"""The scheduling service: admission, refusal with an offer, and what was measured."""

from __future__ import annotations

import time

import pytest

from timebound.channel import ChannelBuilder, ChannelError, Event, Kind, NotSchedulable, Report
from timebound.channel.base.scheduling import Scheduler


def nothing(event: Event) -> None:
    """A consumer that does nothing."""


def test_connection_that_does_not_fit_is_refused_with_what_would() -> None:
    scheduler = Scheduler()
    channel = ChannelBuilder("c").filtering().scheduler(scheduler).build()
    channel.connect(nothing, "a", operation=scheduler.operation("a", period="7ms", cost="3ms"))
    channel.connect(nothing, "b", operation=scheduler.operation("b", period="12ms", cost="3ms"))

    with pytest.raises(NotSchedulable) as caught:
        channel.connect(nothing, "c", operation=scheduler.operation("c", period="20ms", cost="6ms"))

    assert caught.value.available.cost_ns_max == 5_000_000
    assert caught.value.available.period_ns_min == 21_000_000
    assert "cost up to 5ms or period from 21ms" in str(caught.value)
    assert [c.name for c in channel.statistics().consumers] == ["nothing#1", "nothing#2"]
    channel.connect(nothing, "c", operation=scheduler.operation("c", period="20ms", cost="5ms"))


def test_admission_can_be_asked_without_connecting() -> None:
    scheduler = Scheduler()

    fits = scheduler.admission(scheduler.operation("x", period="10ms", cost="10ms"))
    does_not = scheduler.admission(scheduler.operation("x", period="10ms", cost="11ms"))

    assert fits.is_accepted
    assert not does_not.is_accepted
    assert does_not.available.cost_ns_max == 10_000_000
    assert scheduler.utilisation() == 0.0


def test_disconnecting_makes_room_again() -> None:
    scheduler = Scheduler()
    channel = ChannelBuilder("c").filtering().scheduler(scheduler).build()
    whole = scheduler.operation("whole", period="10ms", cost="10ms")
    consumer = channel.connect(nothing, "a", operation=whole)
    with pytest.raises(NotSchedulable, match="available: nothing"):
        channel.connect(nothing, "b", operation=scheduler.operation("b", period="1s", cost="1ms"))

    consumer.disconnect()

    channel.connect(nothing, "b", operation=scheduler.operation("b", period="1s", cost="1ms"))


def test_operation_names_are_unique() -> None:
    scheduler = Scheduler()
    scheduler.admit(scheduler.operation("x", period="10ms", cost="1ms"))

    with pytest.raises(ChannelError, match="already connected"):
        scheduler.admit(scheduler.operation("x", period="20ms", cost="1ms"))


def test_one_scheduler_judges_all_channels_of_a_processor() -> None:
    scheduler = Scheduler()
    first = ChannelBuilder("1").filtering().scheduler(scheduler).build()
    second = ChannelBuilder("2").filtering().scheduler(scheduler).build()
    first.connect(nothing, "a", operation=scheduler.operation("a", period="10ms", cost="6ms"))

    with pytest.raises(NotSchedulable):
        second.connect(nothing, "a", operation=scheduler.operation("b", period="10ms", cost="6ms"))


def burn(event: Event) -> None:
    """Use as much processor time as the payload says."""
    assert isinstance(event.payload, int)
    until = time.thread_time_ns() + event.payload
    while time.thread_time_ns() < until:
        pass


def test_measured_cost_stands_beside_the_stated_one_and_overruns_are_reported() -> None:
    reports: list[Report] = []
    scheduler = Scheduler()
    builder = ChannelBuilder("c").filtering().scheduler(scheduler).on_report(reports.append)
    with builder.build() as channel:
        channel.connect(
            burn, "work", name="burner", operation=scheduler.operation("op", period="1s", cost="2ms")
        )
        supplier = channel.supplier("s", "work")
        supplier.push("work", 100_000)
        supplier.push("work", 3_000_000)
        (report,) = scheduler.report()

    assert (report.name, report.runs, report.overruns, report.misses) == ("op", 2, 1, 0)
    assert report.cost_ns_stated == report.bound_ns == 2_000_000
    assert report.cost_ns_max >= 3_000_000
    assert 100_000 <= report.cost_ns_p50 < 2_000_000
    assert report.response_ns_max >= report.cost_ns_max
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.OVERRUN, "burner")]


def test_report_lists_the_most_urgent_first() -> None:
    scheduler = Scheduler()
    for name, period in (("slow", "1s"), ("fast", "10ms"), ("middle", "100ms")):
        scheduler.admit(scheduler.operation(name, period=period, cost="1ms"))

    assert [(r.name, r.priority) for r in scheduler.report()] == [("fast", 0), ("middle", 1), ("slow", 2)]


def test_replacing_operations_judges_them_together_or_changes_nothing() -> None:
    scheduler = Scheduler()
    small = scheduler.operation("a", period="10ms", cost="1ms")
    large = scheduler.operation("b", period="10ms", cost="8ms")
    scheduler.admit(small)
    scheduler.admit(large)
    grown = scheduler.operation("a", period="10ms", cost="8ms")

    with pytest.raises(NotSchedulable):
        scheduler.replace([small], [grown])
    assert [(r.name, r.cost_ns_stated) for r in scheduler.report()] == [("a", 1_000_000), ("b", 8_000_000)]

    shrunk = scheduler.operation("b", period="10ms", cost="1ms")
    meters = scheduler.replace([small, large], [grown, shrunk])
    assert [meter.operation for meter in meters] == [grown, shrunk]
