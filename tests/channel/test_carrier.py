"""The channel under virtual time, with consumers called in the pushing thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread

import pytest
from tests.channel.doubles import LIMIT_S

from timebound.channel import (
    TIMEOUT,
    TOGETHER,
    Broadcast,
    ChannelBuilder,
    ChannelError,
    Consumer,
    Dispatcher,
    Event,
    EventChannel,
    Filtering,
    Kind,
    Lanes,
    Reactive,
    Report,
    Subscriptions,
    Timeout,
    Timing,
    UndeclaredEvent,
    all_of,
    any_of,
    build,
    event,
    every,
    source,
    watchdog,
)
from timebound.channel.base.consumer import STALL_NS
from timebound.channel.base.dependency import Key
from timebound.units import MILLISECOND


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Recorder:
    """A consumer that keeps what it was given, optionally failing instead."""

    def __init__(self, failing: bool = False) -> None:
        self.events: list[Event] = []
        self.failing = failing

    def __call__(self, event: Event) -> None:
        if self.failing:
            raise RuntimeError("no thanks")
        self.events.append(event)

    @property
    def payloads(self) -> list[object]:
        return [event.payload for event in self.events]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reports() -> list[Report]:
    return []


@pytest.fixture
def channel(clock: Clock, reports: list[Report]) -> EventChannel:
    builder = ChannelBuilder("test").filtering().timers(Timing(), timers_max=4)
    return builder.clock(clock).on_report(reports.append).build()


def test_consumer_receives_only_the_types_it_named(channel: EventChannel) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, any_of("a", "b"))
        supplier = channel.supplier("s", "a", "b", "c")
        for event_type in "abc":
            supplier.push(event_type, event_type.upper())

    assert got.payloads == ["A", "B"]
    assert [(e.type, e.source) for e in got.events] == [("a", "s"), ("b", "s")]


@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        (event("a"), [1, 3]),
        (source("left"), [1, 2]),
        (event("a", source="right"), [3]),
        (event(), [1, 2, 3]),
        (None, [1, 2, 3]),
        ("b", [2]),
    ],
)
def test_dependencies_select_by_type_source_or_both(
    channel: EventChannel, dependency: object, expected: list[int]
) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, dependency)  # type: ignore[arg-type]  # a column of the table
        left = channel.supplier("l", "a", "b", source="left")
        right = channel.supplier("r", "a", source="right")
        left.push("a", 1)
        left.push("b", 2)
        right.push("a", 3)

    assert got.payloads == expected


def test_conjunction_is_delivered_as_one_event_with_its_parts(channel: EventChannel, clock: Clock) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, all_of("a", any_of("b", "c"), within="10ms"), name="pair")
        supplier = channel.supplier("s", "a", "b", "c")
        supplier.push("a", 1)
        clock.now_ns = 11_000_000
        supplier.push("c", 2)
        clock.now_ns = 12_000_000
        supplier.push("a", 3)

    (together,) = got.events
    assert (together.type, together.source, together.time_ns) == (TOGETHER, "pair", 12_000_000)
    assert [part.payload for part in together.events] == [3, 2]


def test_plain_event_is_its_own_only_part(channel: EventChannel) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, "a")
        channel.supplier("s", "a").push("a", 1)

    assert got.events[0].events == (got.events[0],)


def test_where_decides_before_correlation(channel: EventChannel) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, all_of("a", "b"), where=lambda e: e.payload != "bad")
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", "bad")
        supplier.push("b", 1)
        supplier.push("a", 2)

    assert [part.payload for part in got.events[0].parts] == [2, 1]


def test_every_delivers_timeouts_at_each_period(channel: EventChannel, clock: Clock) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, every("10ms"), name="ticker")
        assert channel.next_wakeup_ns() == 10_000_000
        assert channel.wake(9_999_999) == 0
        assert channel.wake(10_000_000) == 1
        assert channel.wake(35_000_000) == 1

    assert [(e.type, e.source) for e in got.events] == [(TIMEOUT, "ticker")] * 2
    timeout = got.events[1].payload
    assert isinstance(timeout, Timeout)
    assert (timeout.count, timeout.missed, timeout.due_ns) == (3, 1, 30_000_000)


def test_watchdog_speaks_up_before_the_first_event_and_after_silence(
    channel: EventChannel, clock: Clock
) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, watchdog("a", "10ms"))
        channel.wake(10_000_000)
        clock.now_ns = 15_000_000
        channel.supplier("s", "a").push("a", "alive")
        channel.wake(24_999_999)
        channel.wake(25_000_000)

    assert [e.type for e in got.events] == [TIMEOUT, "a", TIMEOUT]


def test_disconnecting_gives_timers_back(channel: EventChannel) -> None:
    got = Recorder()
    with channel:
        consumers = [channel.connect(got, every(5)) for _ in range(4)]
        with pytest.raises(ChannelError, match=r"none is left \(timers_max=4\)"):
            channel.connect(got, every(5))
        consumers[0].disconnect()
        channel.connect(got, every(7))

        assert channel.wake(5) == 3
        assert channel.statistics().timers_set == 4


def test_timeouts_due_together_go_to_the_most_urgent_consumer_first(channel: EventChannel) -> None:
    order: list[str] = []

    def note(name: str) -> Callable[[Event], None]:
        return lambda event: order.append(name)

    operation = channel.scheduler.operation
    with channel:
        channel.connect(note("plain"), every(10))
        channel.connect(note("slow"), every(10), operation=operation("slow", period="1s", cost="1ms"))
        channel.connect(note("fast"), every(10), operation=operation("fast", period="20ms", cost="1ms"))
        channel.wake(10)

    assert order == ["fast", "slow", "plain"]


def test_disconnected_consumer_receives_nothing_more(channel: EventChannel) -> None:
    got, other = Recorder(), Recorder()
    with channel:
        supplier = channel.supplier("s", "a")
        consumer = channel.connect(got, "a")
        channel.connect(other, "a")
        supplier.push("a", 1)
        consumer.disconnect()
        consumer.disconnect()
        supplier.push("a", 2)

    assert got.payloads == [1]
    assert other.payloads == [1, 2]


def test_consumer_may_disconnect_itself_and_connect_another_from_its_callback(channel: EventChannel) -> None:
    got = Recorder()
    with channel:

        def once(event: Event) -> None:
            first.disconnect()
            channel.connect(got, "a")

        first = channel.connect(once, "a")
        supplier = channel.supplier("s", "a")
        supplier.push("a", 1)
        supplier.push("a", 2)

    assert got.payloads == [2]


def test_supplier_may_push_only_what_it_declared(channel: EventChannel) -> None:
    with channel:
        supplier = channel.supplier("gps", "position")

        with pytest.raises(UndeclaredEvent, match=r"'gps' has not declared event type 'speed'"):
            supplier.push("speed")
        with pytest.raises(ChannelError, match="declares no event type"):
            channel.supplier("empty")
        supplier.disconnect()
        with pytest.raises(ChannelError, match="is disconnected"):
            supplier.push("position")


def test_pushing_into_a_channel_that_does_not_run_is_refused(channel: EventChannel) -> None:
    supplier = channel.supplier("s", "a")

    with pytest.raises(ChannelError, match="is not started"):
        supplier.push("a")
    with channel, pytest.raises(ChannelError, match="is running already"):
        channel.start()
    with pytest.raises(ChannelError, match="is closed"):
        supplier.push("a")
    channel.close()


def test_failing_consumer_is_reported_by_name_and_harms_nobody(
    channel: EventChannel, reports: list[Report]
) -> None:
    good = Recorder()
    with channel:
        channel.connect(Recorder(failing=True), "a", name="bad one")
        channel.connect(good, "a")
        channel.supplier("s", "a").push("a", 1)
        statistics = channel.statistics()

    assert good.payloads == [1]
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.FAILED, "bad one")]
    assert "RuntimeError" in reports[0].message
    assert isinstance(reports[0].error, RuntimeError)
    assert [(c.delivered, c.failures) for c in statistics.consumers] == [(0, 1), (1, 0)]


def test_failing_filter_counts_as_the_consumers_failure(channel: EventChannel, reports: list[Report]) -> None:
    got = Recorder()
    with channel:
        channel.connect(got, "a", where=lambda e: e.payload["x"] > 1, name="picky")  # type: ignore[index]  # the mistake
        channel.supplier("s", "a").push("a", 1)

    assert got.events == []
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.FAILED, "picky")]


def test_consumer_is_evicted_after_so_many_failures_in_a_row(
    channel: EventChannel, reports: list[Report]
) -> None:
    bad = Recorder(failing=True)
    with channel:
        channel.connect(bad, "a", name="bad", evict_after=2)
        supplier = channel.supplier("s", "a")
        supplier.push("a")
        bad.failing = False
        supplier.push("a")
        bad.failing = True
        for _ in range(5):
            supplier.push("a")

        assert channel.statistics().consumers == ()
    assert [r.kind for r in reports] == [Kind.FAILED] * 3 + [Kind.EVICTED]
    assert reports[-1].message == "evicted after 2 failures in a row"


def test_most_urgent_consumer_is_called_first(channel: EventChannel) -> None:
    order: list[str] = []
    operation = channel.scheduler.operation
    slow = operation("slow", period="1s", cost="1ms")
    critical = operation("critical", period="1s", cost="1ms", criticality=3)
    fast = operation("fast", period="10ms", cost="1ms")
    with channel:
        channel.connect(lambda e: order.append("none"), "a")
        channel.connect(lambda e: order.append("slow"), "a", operation=slow)
        channel.connect(lambda e: order.append("critical"), "a", operation=critical)
        channel.connect(lambda e: order.append("fast"), "a", operation=fast)
        channel.supplier("s", "a").push("a")

    assert order == ["fast", "critical", "slow", "none"]


def test_coroutine_functions_need_asyncio_dispatching(channel: EventChannel) -> None:
    async def consumer(event: Event) -> None: ...

    with channel, pytest.raises(ChannelError, match="needs asyncio dispatching"):
        channel.connect(consumer, "a")


# --- configurations ---------------------------------------------------------------------


def test_broadcast_repeats_everything_and_refuses_what_it_left_out() -> None:
    got = Recorder()
    with build("broadcast") as channel:
        channel.connect(got)
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", 1)
        supplier.push("b", 2)

        with pytest.raises(ChannelError, match="has no filtering"):
            channel.connect(got, "a")
        with pytest.raises(ChannelError, match="has no filtering"):
            channel.connect(got, where=lambda e: True)
        with pytest.raises(ChannelError, match="has no timer module"):
            channel.connect(got, every("1s"))
    assert got.payloads == [1, 2]


def test_timer_only_consumer_of_a_broadcast_channel_gets_no_events(clock: Clock) -> None:
    got = Recorder()
    with ChannelBuilder("b").timers(Timing()).clock(clock).build() as channel:
        channel.connect(got, every(5))
        channel.supplier("s", "a").push("a")
        channel.wake(5)

    assert [e.type for e in got.events] == [TIMEOUT]


def test_modules_are_of_their_own_kind_and_of_no_other() -> None:
    lanes, reactive, broadcast = Lanes(real_time=False), Reactive(), Broadcast()

    assert isinstance(lanes, Dispatcher)
    assert isinstance(reactive, Dispatcher)
    assert not isinstance(reactive, Lanes)
    assert isinstance(broadcast, Filtering)
    assert not isinstance(broadcast, Subscriptions)


def test_unknown_configuration_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ChannelError, match="choose full, dispatching, filtering, broadcast"):
        build("fancy")


def test_leaf_made_by_hand_must_be_a_pair(channel: EventChannel) -> None:
    from timebound.core.correlation.expression import Leaf

    with channel, pytest.raises(TypeError, match="no \\(type, source\\) pair"):
        channel.connect(Recorder(), Leaf("a"))


def test_failed_connection_gives_its_operation_back(channel: EventChannel) -> None:
    operation = channel.scheduler.operation("op", period="1s", cost="1ms")
    with channel:
        channel.connect(Recorder(), any_of(every(1), every(1), every(1)))
        with pytest.raises(ChannelError, match="none is left"):
            channel.connect(Recorder(), any_of(every(1), every(1)), operation=operation)

        assert channel.scheduler.utilisation() == 0.0
        channel.connect(Recorder(), "a", operation=operation)


def test_slow_consumer_of_a_reactive_channel_is_evicted_only_if_that_was_agreed(
    channel: EventChannel, reports: list[Report]
) -> None:
    def slow(event: Event) -> None:
        until_ns = time.monotonic_ns() + STALL_NS + MILLISECOND
        while time.monotonic_ns() < until_ns:
            pass

    with channel:
        channel.connect(slow, "a", name="tolerated")
        channel.connect(slow, "a", name="watched", evict_slow=True)
        channel.supplier("s", "a").push("a")

        assert [c.name for c in channel.statistics().consumers] == ["tolerated"]
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.STALLED, "watched"), (Kind.EVICTED, "watched")]


def test_consumer_that_exits_ends_neither_the_supplier_nor_the_round(
    channel: EventChannel, reports: list[Report]
) -> None:
    got: list[object] = []

    def exits(event: Event) -> None:
        raise SystemExit(3)

    with channel:
        channel.connect(exits, "a", name="exits")
        channel.connect(lambda e: got.append(e.payload), "a")
        channel.supplier("s", "a").push("a", 1)

    assert got == [1]
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.FAILED, "exits")]


class LeavingFilter(Filtering):
    """Lets a consumer leave, in a thread of its own, while the channel is being asked something."""

    def __init__(self) -> None:
        super().__init__()
        self.has_dependencies = True
        self.leaver: Consumer | None = None
        self._subscriptions = Subscriptions()

    def mask(self, consumer: Consumer, event_type: str, source: str) -> int:
        leaver, self.leaver = self.leaver, None
        if leaver is not None:
            thread = Thread(target=leaver.disconnect)
            thread.start()
            thread.join(LIMIT_S)
        return self._subscriptions.mask(consumer, event_type, source)


def test_consumer_that_leaves_while_another_thread_has_the_channel_is_forgotten_right_after() -> None:
    filtering = LeavingFilter()
    wants: list[list[Key]] = []
    with build("filtering") as channel:
        channel.reconfigure(filtering=filtering)
        leaver = channel.connect(print, "a", name="leaver")
        channel.connect(print, "b", name="stays")
        channel.add_listener(lambda: wants.append(channel.wants()))
        filtering.leaver = leaver
        channel.supplier("s", "a")

        assert [consumer.name for consumer in channel.statistics().consumers] == ["stays"]
    assert wants == [[("b", "")]]
