"""Swapping modules while events flow: nothing lost, nothing twice, and order kept."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Signal
from threading import Thread

import pytest
from tests.channel.doubles import LIMIT_S, patient, push_all, reactive, wait_until

from timebound.channel import (
    AsyncioDispatch,
    Broadcast,
    ChannelBuilder,
    ChannelError,
    Dispatcher,
    Event,
    EventChannel,
    Lanes,
    Reactive,
    Subscriptions,
    all_of,
    every,
)
from timebound.channel.exchange import Change, exchange
from timebound.channel.timing import Timing

SUPPLIERS = 3
SWAPS = 8
AHEAD_MAX = 1000


def lanes(threads: int = 1) -> Lanes:
    return Lanes(real_time=False, threads=threads)


class Ledger:
    """A consumer that notes, for each source, the numbers it was given."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[object]] = {f"s{i}": [] for i in range(SUPPLIERS)}

    def __call__(self, event: Event) -> None:
        self.numbers[event.source].append(event.payload)

    def count(self) -> int:
        return sum(len(numbers) for numbers in self.numbers.values())


def flow_while(channel: EventChannel, ledgers: list[Ledger], swap: Callable[[], None]) -> None:
    """Push from several threads while swapping, then check that every ledger is complete and in order."""
    suppliers = [channel.supplier(f"s{i}", "a") for i in range(SUPPLIERS)]
    pushed = [0] * SUPPLIERS
    enough = Signal()

    def push_on(number: int) -> None:
        while not enough.is_set():
            suppliers[number].push("a", pushed[number])
            pushed[number] += 1
            # Not so far ahead that a queue would overflow, which is allowed to lose events.
            wait_until(lambda: sum(pushed) - min(ledger.count() for ledger in ledgers) < AHEAD_MAX)

    threads = [Thread(target=push_on, args=(i,)) for i in range(SUPPLIERS)]
    for thread in threads:
        thread.start()
    for _ in range(SWAPS):
        before = sum(pushed)
        swap()
        wait_until(lambda before=before: sum(pushed) > before + 50)  # type: ignore[misc]  # untyped default
    enough.set()
    for thread in threads:
        thread.join(LIMIT_S)
    wait_until(lambda: all(ledger.count() >= sum(pushed) for ledger in ledgers))
    for ledger in ledgers:
        assert ledger.numbers == {f"s{i}": list(range(pushed[i])) for i in range(SUPPLIERS)}


@pytest.mark.parametrize(
    "modules",
    [
        [lanes, lanes],
        [lambda: lanes(3), lanes],
        [lanes, Reactive],
        [Reactive, lambda: lanes(2), Reactive],
    ],
    ids=["lanes", "threads", "lanes-reactive", "mixed"],
)
def test_swapping_dispatching_loses_and_duplicates_nothing(
    modules: list[Callable[[], Dispatcher]],
) -> None:
    ledgers = [Ledger(), Ledger(), Ledger()]
    channel = ChannelBuilder("c").filtering().dispatching(modules[0]()).build()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        swaps += 1
        channel.reconfigure(dispatching=modules[swaps % len(modules)]())

    with channel:
        operation = channel.scheduler.operation("op", period="10ms", cost="1ms")
        channel.connect(ledgers[0], "a", operation=operation)
        channel.connect(ledgers[1], "a")
        channel.connect(ledgers[2], "a", where=lambda e: True)
        flow_while(channel, ledgers, swap)

    assert swaps == SWAPS


def test_swapping_filtering_loses_and_duplicates_nothing() -> None:
    ledger = Ledger()
    channel = ChannelBuilder("c").filtering().dispatching(lanes()).build()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        swaps += 1
        channel.reconfigure(filtering=Broadcast() if swaps % 2 else Subscriptions())

    with channel:
        channel.connect(ledger, "a")
        flow_while(channel, [ledger], swap)


def test_connecting_and_leaving_disturbs_nobody_else() -> None:
    ledger = Ledger()
    channel = ChannelBuilder("c").filtering().dispatching(lanes()).build()

    def swap() -> None:
        operation = channel.scheduler.operation("guest", period="1ms", cost=10)
        channel.connect(lambda e: None, "a", operation=operation).disconnect()

    with channel:
        channel.connect(ledger, "a")
        flow_while(channel, [ledger], swap)


def test_correlation_goes_on_across_a_swap_of_dispatching() -> None:
    got: list[list[object]] = []
    with ChannelBuilder("c").filtering().build() as channel:
        channel.connect(lambda e: got.append([p.payload for p in e.parts]), all_of("a", "b"))
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", 1)
        channel.reconfigure(dispatching=lanes())
        supplier.push("b", 2)
        wait_until(lambda: len(got) == 1)

    assert got == [[1, 2]]


def test_queued_events_move_to_the_new_lanes_before_later_ones() -> None:
    order: list[object] = []
    entered, release = Signal(), Signal()

    def consumer(event: Event) -> None:
        if event.payload == 0:
            entered.set()
            assert release.wait(LIMIT_S)
        order.append(event.payload)

    with ChannelBuilder("c").filtering().dispatching(lanes()).build() as channel:
        channel.connect(consumer, "a")
        supplier = channel.supplier("s", "a")
        for number in range(5):
            supplier.push("a", number)
        assert entered.wait(LIMIT_S)
        swapping = Thread(target=lambda: channel.reconfigure(dispatching=lanes()))
        swapping.start()
        release.set()
        swapping.join(LIMIT_S)
        supplier.push("a", 5)
        wait_until(lambda: len(order) == 6)

    assert order == list(range(6))


def test_consumer_may_reconfigure_its_own_channel() -> None:
    order: list[object] = []
    with ChannelBuilder("c").filtering().dispatching(lanes()).build() as channel:

        def consumer(event: Event) -> None:
            if event.payload == 1:
                channel.reconfigure(dispatching=lanes(2))
            order.append(event.payload)

        channel.connect(consumer, "a")
        supplier = channel.supplier("s", "a")
        for number in range(20):
            supplier.push("a", number)
        wait_until(lambda: len(order) == 20)

    assert order == list(range(20))


def test_consumer_that_leaves_while_modules_are_swapped_takes_nothing_from_the_next_one() -> None:
    got: list[object] = []
    pushed = Signal()
    with ChannelBuilder("c").filtering().dispatching(lanes()).build() as channel:

        def swap(event: Event) -> None:
            assert pushed.wait(LIMIT_S)
            channel.reconfigure(dispatching=Reactive())

        # Both wait behind the swap, which then calls them itself.
        patient(channel.connect(swap, "swap"))
        leaver = channel.connect(lambda e: leaver.disconnect(), "a")
        channel.connect(lambda e: got.append(e.payload), "a")
        supplier = channel.supplier("s", "swap", "a")
        supplier.push("swap")
        push_all(supplier, "a", range(3))
        pushed.set()
        wait_until(lambda: got == [0, 1, 2])
        supplier.push("a", 3)
        wait_until(lambda: got == [0, 1, 2, 3])

        assert len(channel.statistics().consumers) == 2


def test_channel_that_does_not_run_swaps_nothing() -> None:
    with pytest.raises(ChannelError, match="is not running"):
        exchange(reactive(), dispatching=Reactive())


def test_change_that_does_not_fit_swaps_nothing() -> None:
    filtering, dispatching = Broadcast(), Reactive()
    with reactive(timers_max=1) as carrier:
        selecting = Change(carrier.connect(print, "a"))
        selecting.dependency = all_of("a", "b")
        timed = Change(carrier.connect(print, "b"))
        timed.dependency = all_of(every("1s"), every("2s"))
        before = carrier.dispatcher

        with pytest.raises(ChannelError, match="has no filtering"):
            exchange(carrier, filtering=filtering, dispatching=dispatching, changes=[selecting])
        with pytest.raises(ChannelError, match=r"1 more timer is needed than there are \(timers_max=1\)"):
            exchange(carrier, dispatching=dispatching, changes=[timed])
        assert carrier.dispatcher is before
        assert carrier.wants() == [("a", ""), ("b", "")]


def test_timer_module_goes_only_when_nobody_has_a_timer() -> None:
    with reactive() as carrier:
        ticking = carrier.connect(print, every("1s"))
        with pytest.raises(ChannelError, match="needs a timer module"):
            exchange(carrier, drops_timing=True)
        ticking.disconnect()

        exchange(carrier, drops_timing=True)

        with pytest.raises(ChannelError, match="has no timer module"):
            carrier.connect(print, every("1s"))
        exchange(carrier, timing=Timing())
        carrier.connect(print, every("1s"))


def test_operation_is_replaced_together_with_the_dispatcher() -> None:
    with reactive() as carrier:
        operation = carrier.scheduler.operation
        first = carrier.connect(print, "a", operation=operation("a", period="10ms", cost="1ms"))
        change = Change(first)
        change.has_operation = True
        exchange(carrier, dispatching=Reactive(), changes=[change])
        assert (first.meter, carrier.scheduler.report()) == (None, [])

        change.operation = operation("a", period="20ms", cost="2ms")
        exchange(carrier, dispatching=Reactive(), changes=[change])

        assert first.lane_key == 20_000_000
        assert [report.cost_ns_stated for report in carrier.scheduler.report()] == [2_000_000]


async def test_coroutine_consumers_keep_asyncio_dispatching() -> None:
    async def consumer(event: Event) -> None: ...

    with ChannelBuilder("c").filtering().dispatching(AsyncioDispatch()).build() as channel:
        channel.connect(consumer, "a")

        with pytest.raises(ChannelError, match="needs asyncio"):
            channel.reconfigure(dispatching=Reactive())


def test_setting_consumers_apart_and_taking_them_back_keeps_order() -> None:
    ledgers = [Ledger(), Ledger(), Ledger()]
    channel = ChannelBuilder("c").filtering().dispatching(lanes(2)).on_report(lambda report: None).build()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        swaps += 1
        for consumer in consumers:
            consumer.is_slow = bool(swaps % 2)

    with channel:
        consumers = [
            channel.connect(ledgers[0], "a"),
            channel.connect(ledgers[1], "a", where=lambda e: True),
        ]
        channel.connect(ledgers[2], "a")
        flow_while(channel, ledgers, swap)
