"""Consumers that ask for their events: the same events, in the same order, through every module."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event as Signal
from threading import Thread

import pytest
from tests.channel.doubles import LIMIT_S, push_all, wait_until

from timebound.channel import (
    TIMEOUT,
    AsyncioDispatch,
    ChannelBuilder,
    ChannelError,
    DiallingGateway,
    Dispatcher,
    Event,
    EventChannel,
    Gateway,
    Kind,
    Lanes,
    ListeningGateway,
    Reactive,
    Report,
    Timing,
    all_of,
    build,
    every,
    watchdog,
)
from timebound.channel.federation.gateway import hub_of
from timebound.channel.pulling import PULL_QUEUE_MAX, PullConsumer
from timebound.units import MILLISECOND, SECOND

LIMIT_NS = int(LIMIT_S * SECOND)


def lanes() -> Lanes:
    return Lanes(real_time=False)


def filtering(dispatcher: Dispatcher | None = None, reports: list[Report] | None = None) -> EventChannel:
    builder = ChannelBuilder("c").filtering().dispatching(dispatcher or Reactive())
    return builder.on_report((reports if reports is not None else []).append).build()


def pull_payloads(puller: PullConsumer, count: int) -> list[object]:
    """Pull a number of events, waiting for each."""
    found: list[object] = []
    for _ in range(count):
        event = puller.pull(LIMIT_NS)
        assert event is not None, "waited too long"
        found.append(event.payload)
    return found


def leave(puller: PullConsumer) -> None:
    puller.disconnect()


# --- one consumer -----------------------------------------------------------------------


@pytest.mark.parametrize("dispatcher", [Reactive, lanes], ids=["reactive", "lanes"])
def test_pull_returns_matching_events_oldest_first(dispatcher: Callable[[], Dispatcher]) -> None:
    with filtering(dispatcher()) as channel:
        puller = channel.pull_consumer("a", where=lambda e: e.payload != 1)
        push_all(channel.supplier("s", "a", "b"), "a", range(4))
        channel.supplier("t", "b").push("b", "other")

        assert pull_payloads(puller, 3) == [0, 2, 3]
        assert puller.pull() is None


def test_pull_without_events_returns_none_after_its_timeout() -> None:
    with filtering() as channel:
        puller = channel.pull_consumer("a")

        assert puller.pull() is None
        assert puller.pull(1) is None
        assert puller.pull("1ms") is None
        with pytest.raises(ValueError, match="negative"):
            puller.pull(-1)


@pytest.mark.parametrize("dispatcher", [Reactive, lanes], ids=["reactive", "lanes"])
def test_pull_waits_until_another_thread_pushes(dispatcher: Callable[[], Dispatcher]) -> None:
    found: list[Event | None] = []
    with filtering(dispatcher()) as channel:
        puller = channel.pull_consumer("a")
        thread = Thread(target=lambda: found.append(puller.pull(LIMIT_NS)))
        thread.start()
        channel.supplier("s", "a").push("a", 7)
        thread.join(LIMIT_S)

    assert [event.payload for event in found if event is not None] == [7]


def test_each_event_goes_to_one_of_several_threads_that_pull() -> None:
    taken: list[list[object]] = [[], [], []]
    with filtering(lanes()) as channel:
        puller = channel.pull_consumer("a")

        def take(number: int) -> None:
            while (event := puller.pull(LIMIT_NS)) is not None and event.payload is not None:
                taken[number].append(event.payload)

        threads = [Thread(target=take, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        push_all(channel.supplier("s", "a"), "a", [*range(300), None, None, None])
        for thread in threads:
            thread.join(LIMIT_S)

    everything = [number for numbers in taken for number in numbers]
    assert sorted(everything, key=str) == sorted(range(300), key=str)


def test_events_beyond_the_limit_are_dropped_counted_and_reported() -> None:
    reports: list[Report] = []
    with filtering(reports=reports) as channel:
        puller = channel.pull_consumer("a", name="p", queue_max=2)
        push_all(channel.supplier("s", "a"), "a", range(5))

        assert (puller.waiting, puller.dropped) == (2, 3)
        assert pull_payloads(puller, 2) == [0, 1]
        assert puller.pull() is None

    assert [(report.kind, report.consumer) for report in reports] == [(Kind.QUEUE_FULL, "p")] * 2
    assert "queue is full (queue_max=2)" in reports[0].message


@pytest.mark.parametrize("dispatcher", [Reactive, lanes], ids=["reactive", "lanes"])
def test_dropped_event_is_not_counted_as_delivered_or_failed(dispatcher: Callable[[], Dispatcher]) -> None:
    with filtering(dispatcher()) as channel:
        puller = channel.pull_consumer("a", queue_max=2)
        supplier = channel.supplier("s", "a")
        for number in range(5):
            supplier.push("a", number)
            # One at a time, so that the queue of a lane is never the one that is full.
            wait_until(lambda: puller.consumer.queued == 0)
        (account,) = channel.statistics().consumers

        assert (account.delivered, account.failures, account.dropped) == (2, 0, 3)
        assert pull_payloads(puller, 2) == [0, 1]
        supplier.push("a", 5)
        assert pull_payloads(puller, 1) == [5]
        wait_until(lambda: puller.consumer.delivered == 3)


def test_limit_without_a_choice_is_the_named_one() -> None:
    with filtering() as channel:
        puller = channel.pull_consumer("a")
        push_all(channel.supplier("s", "a"), "a", range(PULL_QUEUE_MAX + 1))

        assert (puller.waiting, puller.dropped) == (PULL_QUEUE_MAX, 1)
        with pytest.raises(ValueError, match="at least 1"):
            channel.pull_consumer("a", queue_max=-1)


def test_pull_consumer_needs_the_modules_that_connect_needs() -> None:
    with build("broadcast") as channel:
        everything = channel.pull_consumer()
        channel.supplier("s", "a").push("a", 1)

        assert pull_payloads(everything, 1) == [1]
        with pytest.raises(ChannelError, match="has no filtering"):
            channel.pull_consumer("a")
        with pytest.raises(ChannelError, match="no timer module"):
            channel.pull_consumer(every("1ms"))


# --- correlation and timers -------------------------------------------------------------


def test_pull_waits_for_a_conjunction_and_for_silence() -> None:
    now_ns = 0
    channel = ChannelBuilder("c").filtering().timers(Timing()).clock(lambda: now_ns).build()
    with channel:
        both = channel.pull_consumer(all_of("a", "b", within="50ms"))
        silence = channel.pull_consumer(watchdog("a", "100ms"))
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", 1)
        assert both.pull() is None
        supplier.push("b", 2)
        now_ns = 100 * MILLISECOND
        channel.wake(now_ns)

        together = both.pull()
        assert together is not None
        assert [part.payload for part in together.parts] == [1, 2]
        first, second = silence.pull(), silence.pull()
        assert first is not None
        assert second is not None
        assert (first.type, second.type) == ("a", TIMEOUT)


# --- on an event loop -------------------------------------------------------------------


async def test_pull_async_waits_without_keeping_the_loop() -> None:
    with filtering(AsyncioDispatch()) as channel:
        puller = channel.pull_consumer("a")
        waiting = asyncio.create_task(puller.pull_async(LIMIT_NS))
        channel.supplier("s", "a").push("a", 1)
        event = await waiting

        assert event is not None
        assert event.payload == 1
        assert await puller.pull_async() is None
        assert await puller.pull_async("1ms") is None


async def test_pull_async_gets_events_that_other_threads_push_into_lanes() -> None:
    with filtering(lanes()) as channel:
        puller = channel.pull_consumer("a")
        thread = Thread(target=push_all, args=(channel.supplier("s", "a"), "a", range(100)))
        thread.start()
        found = [await puller.pull_async(LIMIT_NS) for _ in range(100)]
        thread.join(LIMIT_S)

    assert [event.payload for event in found if event is not None] == list(range(100))


async def test_tasks_that_wait_for_the_same_consumer_all_get_their_turn() -> None:
    with filtering(AsyncioDispatch()) as channel:
        puller = channel.pull_consumer("a")
        tasks = [asyncio.create_task(puller.pull_async(LIMIT_NS)) for _ in range(5)]
        push_all(channel.supplier("s", "a"), "a", range(5))
        found = await asyncio.gather(*tasks)

    assert {event.payload for event in found if event is not None} == set(range(5))


async def test_cancelled_pull_takes_no_event_with_it() -> None:
    with filtering(AsyncioDispatch()) as channel:
        puller = channel.pull_consumer("a")
        task = asyncio.create_task(puller.pull_async(LIMIT_NS))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        channel.supplier("s", "a").push("a", 1)
        event = await puller.pull_async(LIMIT_NS)

    assert event is not None
    assert event.payload == 1


async def test_pull_that_would_block_its_own_loop_is_refused() -> None:
    with filtering(AsyncioDispatch()) as channel:
        puller = channel.pull_consumer("a")

        with pytest.raises(ChannelError, match="await pull_async"):
            puller.pull("1s")
        assert puller.pull() is None
        thread_found = await asyncio.to_thread(puller.pull, "1ms")
        assert thread_found is None


# --- swaps ------------------------------------------------------------------------------


def test_swapping_modules_keeps_every_event_and_the_order() -> None:
    modules: list[Callable[[], Dispatcher]] = [lanes, Reactive, lanes]
    done = Signal()
    pushed: list[int] = []
    found: list[object] = []
    with filtering(lanes()) as channel:
        puller = channel.pull_consumer("a")
        supplier = channel.supplier("s", "a")

        def push_on() -> None:
            while not done.is_set():
                supplier.push("a", len(pushed))
                pushed.append(len(pushed))
                # Not so far ahead that the queue would overflow, which is allowed to lose events.
                wait_until(lambda: len(pushed) - len(found) < PULL_QUEUE_MAX // 2)

        thread = Thread(target=push_on)
        thread.start()
        for make in modules:
            channel.reconfigure(dispatching=make())
            found += pull_payloads(puller, 50)
        done.set()
        while thread.is_alive() or len(found) < len(pushed):
            event = puller.pull("1ms")
            found += [] if event is None else [event.payload]
        thread.join(LIMIT_S)

    assert found == pushed
    assert puller.dropped == 0


# --- federation -------------------------------------------------------------------------


def test_pull_asks_other_channels_of_the_process_for_its_events() -> None:
    near, far = ChannelBuilder("near").filtering().build(), ChannelBuilder("far").filtering().build()
    with near, far, Gateway(near, far):
        puller = far.pull_consumer("a")
        push_all(near.supplier("s", "a", "b"), "a", [1, 2])

        assert pull_payloads(puller, 2) == [1, 2]
        puller.disconnect()
        advert = hub_of(near).advert_of("far")
        assert advert is not None
        assert advert.wants == ()


def test_pull_asks_channels_behind_a_socket_for_its_events(tmp_path: Path) -> None:
    near, far = ChannelBuilder("near").filtering().build(), ChannelBuilder("far").filtering().build()
    address = str(tmp_path / "gateway")
    with near, far, ListeningGateway(near, address), DiallingGateway(far, address) as gateway:
        assert gateway.wait_joined(LIMIT_S)
        puller = far.pull_consumer(all_of("a", "b"))
        wait_until(lambda: hub_of(near).next_hops("a", "s") == ("far",) and hub_of(near).has_settled())
        supplier = near.supplier("s", "a", "b")
        supplier.push("a", 1)
        supplier.push("b", 2)
        event = puller.pull(LIMIT_NS)

    assert event is not None
    assert [part.payload for part in event.parts] == [1, 2]


# --- leaving ----------------------------------------------------------------------------


def test_consumer_that_left_gives_what_waits_and_then_says_so() -> None:
    with filtering() as channel:
        with channel.pull_consumer("a", name="p") as puller:
            supplier = channel.supplier("s", "a")
            supplier.push("a", 1)
        supplier.push("a", 2)

        assert pull_payloads(puller, 1) == [1]
        with pytest.raises(ChannelError, match="pull consumer 'p' is disconnected"):
            puller.pull()
        assert channel.statistics().consumers == ()


def close_channel(puller: PullConsumer) -> None:
    puller._channel.close()


@pytest.mark.parametrize("end", [leave, close_channel], ids=["disconnect", "close"])
@pytest.mark.parametrize("dispatcher", [Reactive, lanes], ids=["reactive", "lanes"])
def test_pull_that_waits_ends_when_its_consumer_or_the_channel_does(
    dispatcher: Callable[[], Dispatcher], end: Callable[[PullConsumer], None]
) -> None:
    errors: list[str] = []
    waits = Signal()
    with filtering(dispatcher()) as channel:
        puller = channel.pull_consumer("a")

        def pull() -> None:
            waits.set()
            try:
                puller.pull(LIMIT_NS)
            except ChannelError as error:
                errors.append(str(error))

        thread = Thread(target=pull)
        thread.start()
        assert waits.wait(LIMIT_S)
        end(puller)
        thread.join(LIMIT_S)

    assert len(errors) == 1
    assert "is disconnected" in errors[0]


async def test_task_that_waits_ends_when_its_consumer_leaves() -> None:
    with filtering(AsyncioDispatch()) as channel:
        puller = channel.pull_consumer("a")
        task = asyncio.create_task(puller.pull_async(LIMIT_NS))
        await asyncio.sleep(0)
        puller.disconnect()

        with pytest.raises(ChannelError, match="is disconnected"):
            await task


def test_consumer_that_does_not_pull_is_evicted_if_it_agreed_to_that() -> None:
    reports: list[Report] = []
    with filtering(reports=reports) as channel:
        puller = channel.pull_consumer("a", queue_max=1, evict_slow=True)
        push_all(channel.supplier("s", "a"), "a", range(3))

        assert pull_payloads(puller, 1) == [0]
        with pytest.raises(ChannelError, match="is disconnected"):
            puller.pull(LIMIT_NS)
    assert [report.kind for report in reports] == [Kind.QUEUE_FULL, Kind.EVICTED]
