"""Dispatching in the supplier's thread, and what stands in while there is none."""

from __future__ import annotations

import pytest
from tests.channel.doubles import Recorder, reactive

from timebound.channel.base.consumer import PLAIN, Consumer
from timebound.channel.base.dependency import all_of
from timebound.channel.base.errors import ChannelError
from timebound.channel.base.event import Event
from timebound.channel.base.filtering import RouteEntry
from timebound.channel.base.reports import Kind, Report
from timebound.channel.dispatch.dispatcher import Absent, Dispatcher, Reactive

EVENT = Event("a", "s", 1, 0)

Delivery = tuple[Consumer, Event, int]


def started(dispatcher: Dispatcher, passed_on: list[Delivery], reports: list[Report]) -> Dispatcher:
    dispatcher.start(lambda consumer, event, mask: passed_on.append((consumer, event, mask)), reports.append)
    return dispatcher


def test_most_urgent_consumer_is_called_first() -> None:
    order: list[str] = []
    with reactive() as carrier:
        operation = carrier.scheduler.operation
        slow = operation("slow", period="1s", cost="1ms")
        critical = operation("critical", period="1s", cost="1ms", criticality=3)
        fast = operation("fast", period="10ms", cost="1ms")
        carrier.connect(lambda e: order.append("none"), "a")
        carrier.connect(lambda e: order.append("slow"), "a", operation=slow)
        carrier.connect(lambda e: order.append("critical"), "a", operation=critical)
        carrier.connect(lambda e: order.append("fast"), "a", operation=fast)
        carrier.supplier("s", "a").push("a")

    assert order == ["fast", "critical", "slow", "none"]


def test_coroutine_functions_need_asyncio_dispatching() -> None:
    async def consumer(event: Event) -> None: ...

    with reactive() as carrier, pytest.raises(ChannelError, match="needs asyncio dispatching"):
        carrier.connect(consumer, "a")


def test_reactive_evaluates_before_it_calls() -> None:
    got = Recorder()
    consumer = reactive().connect(got, all_of("a", "b"))
    dispatcher = started(Reactive(), [], [])
    dispatcher.submit(consumer, EVENT, 0b01)
    assert got.events == []

    dispatcher.dispatch([RouteEntry(consumer, 0b10)], Event("b", "s", 2, 0))

    assert [part.payload for part in got.events[0].parts] == [1, 2]


def test_reactive_passes_on_what_comes_while_a_consumer_is_held_or_after_its_end() -> None:
    got, passed_on = Recorder(), list[Delivery]()
    consumer = reactive().connect(got, "a")
    dispatcher = started(Reactive(), passed_on, [])
    route = [RouteEntry(consumer, PLAIN)]
    consumer.hold()
    dispatcher.dispatch(route, EVENT)
    consumer.take_held()
    dispatcher.dispatch(route, EVENT)

    assert dispatcher.close(0) == []
    dispatcher.dispatch(route, EVENT)

    assert passed_on == [(consumer, EVENT, PLAIN)] * 2
    assert got.payloads == [1]


def test_absent_dispatcher_refuses_pushes_and_forgets_deliveries() -> None:
    got = Recorder()
    consumer = reactive().connect(got, "a")
    absent = Absent("channel 'c' is closed")

    absent.submit(consumer, EVENT, PLAIN)
    with pytest.raises(ChannelError, match="channel 'c' is closed"):
        absent.dispatch([RouteEntry(consumer, PLAIN)], EVENT)
    assert got.events == []


def test_notice_is_reported_for_the_channel_itself() -> None:
    reports: list[Report] = []
    started(Reactive(), [], reports).notice("said")

    assert reports == [Report(Kind.NOTICE, "", "said")]


def test_modules_are_of_their_own_kind_and_of_no_other() -> None:
    assert isinstance(Reactive(), Dispatcher)
    assert not isinstance(Reactive(), Absent)
    assert not isinstance(Absent(""), Reactive)
