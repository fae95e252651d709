"""Dispatching and timers on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from threading import Thread

import pytest
from tests.channel.doubles import LIMIT_S

from timebound.channel import (
    TIMEOUT,
    AsyncioTiming,
    ChannelBuilder,
    ChannelError,
    Event,
    EventChannel,
    Kind,
    Report,
    all_of,
    every,
)
from timebound.channel.base.consumer import STALL_NS
from timebound.channel.dispatch.aio import AsyncioDispatch
from timebound.units import MILLISECOND


def looped(reports: list[Report] | None = None) -> EventChannel:
    builder = ChannelBuilder("loop").filtering().dispatching(AsyncioDispatch()).timers(AsyncioTiming())
    return builder.on_report((reports if reports is not None else []).append).build()


async def wait_until_has(got: Sequence[object], count: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while len(got) < count:  # noqa: ASYNC110  # the consumer under test cannot set an event for us
            await asyncio.sleep(0)


async def wait_until_told(reports: Sequence[Report], kind: Kind) -> Report:
    """Wait for the first report of a kind; others may come before it."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            for report in reports:
                if report.kind is kind:
                    return report
            await asyncio.sleep(0)


async def test_plain_and_coroutine_consumers_are_called_on_the_loop() -> None:
    got: list[object] = []

    async def coroutine(event: Event) -> None:
        await asyncio.sleep(0)
        got.append(("coroutine", event.payload))

    with looped() as channel:
        channel.connect(coroutine, "a")
        channel.connect(lambda e: got.append(("plain", e.payload)), "a")
        channel.supplier("s", "a").push("a", 1)
        assert got == []
        await wait_until_has(got, 2)

    assert sorted(got, key=str) == [("coroutine", 1), ("plain", 1)]


async def test_waiting_coroutine_delays_only_itself_and_keeps_its_order() -> None:
    slow: list[object] = []
    quick: list[object] = []
    release = asyncio.Event()

    async def waits(event: Event) -> None:
        await release.wait()
        slow.append(event.payload)

    with looped() as channel:
        channel.connect(waits, "a")
        channel.connect(lambda e: quick.append(e.payload), "a")
        supplier = channel.supplier("s", "a")
        for number in range(200):
            supplier.push("a", number)
        await wait_until_has(quick, 200)
        assert slow == []
        release.set()
        await wait_until_has(slow, 200)

    assert quick == slow == list(range(200))


async def test_suppliers_may_push_from_other_threads() -> None:
    got: list[object] = []
    with looped() as channel:
        channel.connect(lambda e: got.append(e.payload), "a")
        supplier = channel.supplier("s", "a")

        def push_all() -> None:
            for number in range(300):
                supplier.push("a", number)

        thread = Thread(target=push_all)
        thread.start()
        await wait_until_has(got, 300)
        thread.join(LIMIT_S)

    assert got == list(range(300))


async def test_more_urgent_deliveries_overtake_on_the_loop() -> None:
    got: list[object] = []
    with looped() as channel:
        operation = channel.scheduler.operation
        channel.connect(lambda e: got.append("none"), "a")
        channel.connect(
            lambda e: got.append("fast"), "b", operation=operation("f", period="10ms", cost="1ms")
        )
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a")
        supplier.push("b")
        await wait_until_has(got, 2)

    assert got == ["fast", "none"]


async def test_failing_coroutine_is_reported_and_evicted() -> None:
    reports: list[Report] = []
    got: list[object] = []

    async def bad(event: Event) -> None:
        raise RuntimeError("no")

    with looped(reports) as channel:
        channel.connect(bad, "a", name="bad", evict_after=2)
        channel.connect(lambda e: got.append(e.payload), "a")
        supplier = channel.supplier("s", "a")
        for number in range(5):
            supplier.push("a", number)
        await wait_until_has(got, 5)
        await wait_until_told(reports, Kind.EVICTED)

    # Who is kept from the processor for long may be reported as well.
    kinds = [r.kind for r in reports if r.kind is not Kind.STALLED]
    assert kinds == [Kind.FAILED, Kind.FAILED, Kind.EVICTED]


async def test_filters_and_correlation_work_before_the_loop_is_reached() -> None:
    got: list[object] = []
    with looped() as channel:
        channel.connect(
            lambda e: got.append([p.payload for p in e.parts]),
            all_of("a", "b"),
            where=lambda e: e.payload != 0,
        )
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", 0)
        supplier.push("b", 1)
        supplier.push("a", 2)
        await wait_until_has(got, 1)

    assert got == [[2, 1]]


async def test_timers_come_from_the_loop() -> None:
    got: list[object] = []
    with looped() as channel:
        channel.connect(lambda e: got.append(e.type), every("1ms"))
        await wait_until_has(got, 3)

    assert set(got) == {TIMEOUT}


async def test_full_queue_drops_and_counts() -> None:
    got: list[object] = []
    with looped() as channel:
        channel.connect(lambda e: got.append(e.payload), "a", queue_max=2)
        supplier = channel.supplier("s", "a")
        for number in range(5):
            supplier.push("a", number)
        await wait_until_has(got, 2)
        (consumer,) = channel.statistics().consumers

    assert (got, consumer.dropped, consumer.queued) == ([0, 1], 3, 0)


async def test_modules_serve_only_one_channel() -> None:
    dispatch, timing = AsyncioDispatch(), AsyncioTiming()
    with ChannelBuilder("1").dispatching(dispatch).timers(timing).build():
        with pytest.raises(ChannelError, match="started before"):
            ChannelBuilder("2").dispatching(dispatch).build().start()
        with pytest.raises(ChannelError, match="started before"):
            ChannelBuilder("3").timers(timing).build().start()


async def test_wait_idle_lets_coroutines_under_way_end() -> None:
    dispatch = AsyncioDispatch()
    got: list[object] = []

    async def slow(event: Event) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        got.append(event.payload)

    with ChannelBuilder("c").filtering().dispatching(dispatch).build() as channel:
        channel.connect(slow, "a")
        channel.supplier("s", "a").push("a", 1)
        await asyncio.sleep(0)
    await dispatch.wait_idle(LIMIT_S)

    assert got == [1]


def use_processor(cost_ns: int) -> None:
    """Compute for so long, not counting stretches in which the thread is kept from the processor."""
    until_ns = time.thread_time_ns() + cost_ns
    while time.thread_time_ns() < until_ns:
        pass


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_consumer_that_keeps_the_loop_to_itself_is_reported_and_may_be_evicted(
    is_coroutine: bool,
) -> None:
    reports: list[Report] = []

    def selfish(event: Event) -> None:
        use_processor(STALL_NS + MILLISECOND)

    async def selfish_coroutine(event: Event) -> None:
        await asyncio.sleep(0)
        selfish(event)
        await asyncio.sleep(0)

    with looped(reports) as channel:
        consumer = selfish_coroutine if is_coroutine else selfish
        channel.connect(consumer, "a", name="selfish", evict_slow=True)
        channel.supplier("s", "a").push("a")
        await wait_until_has(reports, 2)

    assert [r.kind for r in reports] == [Kind.STALLED, Kind.EVICTED]
    assert reports[0].message.startswith("has blocked a shared thread for ")


async def test_cost_of_a_coroutine_is_that_of_its_steps_alone() -> None:
    reports: list[Report] = []
    gate, other = asyncio.Event(), asyncio.Event()

    async def waits(event: Event) -> None:
        await gate.wait()
        use_processor(2 * MILLISECOND)

    async def computes(event: Event) -> None:
        use_processor(20 * MILLISECOND)
        other.set()

    with looped(reports) as channel:
        operation = channel.scheduler.operation
        channel.connect(waits, "a", name="waits", operation=operation("w", period="1s", cost="1ms"))
        channel.connect(computes, "a", name="computes")
        channel.supplier("s", "a").push("a")
        await asyncio.wait_for(other.wait(), LIMIT_S)
        gate.set()
        overrun = await wait_until_told(reports, Kind.OVERRUN)
        (report,) = channel.scheduler.report()

    assert overrun.consumer == "waits"
    assert MILLISECOND < report.cost_ns_max < 15 * MILLISECOND
