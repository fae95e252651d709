"""What carries events, under virtual time, with consumers called in the pushing thread."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from tests.channel.doubles import LIMIT_S, Clock, Recorder, reactive

from timebound.channel.base.consumer import Consumer
from timebound.channel.base.dependency import ANYTHING, Key, any_of, every, source, watchdog
from timebound.channel.base.errors import ChannelError, UndeclaredEvent
from timebound.channel.base.event import TIMEOUT, Event
from timebound.channel.base.filtering import Broadcast, Filtering, Subscriptions
from timebound.channel.base.reports import Report
from timebound.channel.carrier import ROUTES_MAX, Carrier
from timebound.core.correlation.expression import SIGNALS_MAX, Timeout


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reports() -> list[Report]:
    return []


@pytest.fixture
def carrier(clock: Clock, reports: list[Report]) -> Carrier:
    return reactive(reports, clock)


def test_consumer_receives_only_the_types_it_named(carrier: Carrier) -> None:
    got = Recorder()
    with carrier:
        carrier.connect(got, any_of("a", "b"))
        supplier = carrier.supplier("s", "a", "b", "c")
        for event_type in "abc":
            supplier.push(event_type, event_type.upper())

    assert got.payloads == ["A", "B"]
    assert [(e.type, e.source) for e in got.events] == [("a", "s"), ("b", "s")]


def test_every_delivers_timeouts_at_each_period(carrier: Carrier, clock: Clock) -> None:
    got = Recorder()
    with carrier:
        carrier.connect(got, every("10ms"), name="ticker")
        assert carrier.next_wakeup_ns() == 10_000_000
        assert carrier.wake(9_999_999) == 0
        assert carrier.wake(10_000_000) == 1
        assert carrier.wake(35_000_000) == 1

    assert [(e.type, e.source) for e in got.events] == [(TIMEOUT, "ticker")] * 2
    timeout = got.events[1].payload
    assert isinstance(timeout, Timeout)
    assert (timeout.count, timeout.missed, timeout.due_ns) == (3, 1, 30_000_000)


def test_watchdog_speaks_up_before_the_first_event_and_after_silence(carrier: Carrier, clock: Clock) -> None:
    got = Recorder()
    with carrier:
        carrier.connect(got, watchdog("a", "10ms"))
        carrier.wake(10_000_000)
        clock.now_ns = 15_000_000
        carrier.supplier("s", "a").push("a", "alive")
        carrier.wake(24_999_999)
        carrier.wake(25_000_000)

    assert [e.type for e in got.events] == [TIMEOUT, "a", TIMEOUT]


def test_disconnecting_gives_timers_back(carrier: Carrier) -> None:
    got = Recorder()
    with carrier:
        consumers = [carrier.connect(got, every(5)) for _ in range(4)]
        with pytest.raises(ChannelError, match=r"none is left \(timers_max=4\)"):
            carrier.connect(got, every(5))
        consumers[0].disconnect()
        carrier.connect(got, every(7))

        assert carrier.wake(5) == 3
        assert carrier.statistics().timers_set == 4


def test_timeouts_due_together_go_to_the_most_urgent_consumer_first(carrier: Carrier) -> None:
    order: list[str] = []

    def note(name: str) -> Callable[[Event], None]:
        return lambda event: order.append(name)

    operation = carrier.scheduler.operation
    with carrier:
        carrier.connect(note("plain"), every(10))
        carrier.connect(note("slow"), every(10), operation=operation("slow", period="1s", cost="1ms"))
        carrier.connect(note("fast"), every(10), operation=operation("fast", period="20ms", cost="1ms"))
        carrier.wake(10)

    assert order == ["fast", "slow", "plain"]


def test_disconnected_consumer_receives_nothing_more(carrier: Carrier) -> None:
    got, other = Recorder(), Recorder()
    with carrier:
        supplier = carrier.supplier("s", "a")
        consumer = carrier.connect(got, "a")
        carrier.connect(other, "a")
        supplier.push("a", 1)
        consumer.disconnect()
        consumer.disconnect()
        supplier.push("a", 2)

    assert got.payloads == [1]
    assert other.payloads == [1, 2]


def test_consumer_may_disconnect_itself_and_connect_another_from_its_callback(carrier: Carrier) -> None:
    got = Recorder()
    with carrier:

        def once(event: Event) -> None:
            first.disconnect()
            carrier.connect(got, "a")

        first = carrier.connect(once, "a")
        supplier = carrier.supplier("s", "a")
        supplier.push("a", 1)
        supplier.push("a", 2)

    assert got.payloads == [2]


def test_supplier_may_push_only_what_it_declared(carrier: Carrier) -> None:
    with carrier:
        supplier = carrier.supplier("gps", "position")

        with pytest.raises(UndeclaredEvent, match=r"'gps' has not declared event type 'speed'"):
            supplier.push("speed")
        with pytest.raises(ChannelError, match="declares no event type"):
            carrier.supplier("empty")
        supplier.disconnect()
        with pytest.raises(ChannelError, match="is disconnected"):
            supplier.push("position")


def test_pushing_into_a_channel_that_does_not_run_is_refused(carrier: Carrier) -> None:
    supplier = carrier.supplier("s", "a")

    with pytest.raises(ChannelError, match="is not started"):
        supplier.push("a")
    with carrier, pytest.raises(ChannelError, match="is already running"):
        carrier.start()
    with pytest.raises(ChannelError, match="is closed"):
        supplier.push("a")
    carrier.close()


def test_failed_connection_gives_its_operation_back(carrier: Carrier) -> None:
    operation = carrier.scheduler.operation("op", period="1s", cost="1ms")
    with carrier:
        carrier.connect(Recorder(), any_of(every(1), every(1), every(1)))
        with pytest.raises(ChannelError, match="none is left"):
            carrier.connect(Recorder(), any_of(every(1), every(1)), operation=operation)

        assert carrier.scheduler.utilisation() == 0.0
        carrier.connect(Recorder(), "a", operation=operation)


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
    with reactive(filtering=filtering) as carrier:
        leaver = carrier.connect(print, "a", name="leaver")
        carrier.connect(print, "b", name="stays")
        carrier.add_listener(lambda: wants.append(carrier.wants()))
        filtering.leaver = leaver
        carrier.supplier("s", "a")

        assert [consumer.name for consumer in carrier.statistics().consumers] == ["stays"]
    assert wants == [[("b", "")]]


# --- what gateways use ------------------------------------------------------------------


def arrived(event_type: str, payload: object) -> Event:
    """An event that was pushed into another channel."""
    return Event(event_type, "far", payload, 0, "elsewhere", 1)


def test_gateway_receives_nothing_until_it_is_redirected(carrier: Carrier) -> None:
    got = Recorder()
    with carrier:
        gateway = carrier.connect_gateway(got, "gateway")
        supplier = carrier.supplier("s", "a", "b")
        supplier.push("a", 1)
        carrier.redirect(gateway, [("a", "")])
        supplier.push("a", 2)
        supplier.push("b", 3)
        carrier.redirect(gateway, [])
        supplier.push("a", 4)

    assert got.payloads == [2]


def test_gateway_with_more_keys_than_a_mask_has_bits_receives_everything(carrier: Carrier) -> None:
    got = Recorder()
    with carrier:
        gateway = carrier.connect_gateway(got, "gateway")
        carrier.redirect(gateway, [(str(number), "") for number in range(SIGNALS_MAX + 1)])
        carrier.supplier("s", "a").push("a", 1)

    assert got.payloads == [1]


def test_wants_are_those_of_consumers_but_not_of_gateways(carrier: Carrier) -> None:
    carrier.connect(print, any_of("b", source("s"), "b"))
    carrier.connect(print, "a")
    carrier.redirect(carrier.connect_gateway(print, "gateway"), [("c", "")])

    assert carrier.wants() == [("", "s"), ("a", ""), ("b", "")]


def test_carrier_without_filtering_wants_everything() -> None:
    carrier = reactive(filtering=Broadcast())
    assert carrier.wants() == []
    carrier.connect(print)

    assert carrier.wants() == [ANYTHING]


def test_listener_hears_of_every_change(carrier: Carrier) -> None:
    wants: list[list[Key]] = []

    def listen() -> None:
        wants.append(carrier.wants())

    carrier.add_listener(listen)
    consumer = carrier.connect(print, "a")
    consumer.disconnect()

    assert wants == [[("a", "")], []]


def test_injected_event_reaches_consumers_as_it_came(carrier: Carrier) -> None:
    got = Recorder()
    with carrier:
        carrier.connect(got, "a")
        carrier.inject(arrived("a", 1))
        carrier.inject(arrived("b", 2))
        carrier.connect(got, "b")
        carrier.inject(arrived("b", 3))

    assert [(e.payload, e.source, e.origin, e.sequence) for e in got.events] == [
        (1, "far", "elsewhere", 1),
        (3, "far", "elsewhere", 1),
    ]


def test_routes_of_injected_events_are_bounded(carrier: Carrier) -> None:
    with carrier:
        for number in range(ROUTES_MAX + 1):
            carrier.inject(arrived(str(number), None))

        assert len(carrier._routes) == 1


def test_redeclared_supplier_pushes_the_new_types_from_the_new_source(carrier: Carrier) -> None:
    got = Recorder()
    with carrier:
        carrier.connect(got)
        supplier = carrier.supplier("s", "a")
        carrier.redeclare(supplier, ["b"], "x")
        supplier.push("b", 1)
        with pytest.raises(UndeclaredEvent):
            supplier.push("a")
        carrier.redeclare(supplier, ["a"], "")
        supplier.push("a", 2)

    assert [(e.type, e.source) for e in got.events] == [("b", "x"), ("a", "s")]
