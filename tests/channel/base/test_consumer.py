"""One consumer: what it is called with, what becomes of its failures, and the order of its deliveries."""

from __future__ import annotations

import time

import pytest
from tests.channel.doubles import Clock, Recorder, reactive

from timebound.channel.base.consumer import BEST_EFFORT, PATIENCE_NS, PLAIN, STALL_NS, Consumer, Owner, Queue
from timebound.channel.base.dependency import all_of, any_of
from timebound.channel.base.errors import QueueFull
from timebound.channel.base.event import TIMEOUT, TOGETHER, Event
from timebound.channel.base.measure import Meter
from timebound.channel.base.reports import Kind, Report
from timebound.core.correlation.expression import Correlator, Timeout
from timebound.core.input.schedulability import Operation
from timebound.units import MILLISECOND, SECOND


class RecordingOwner(Owner):
    """Stands for a channel, and keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[Report] = []
        self.evicted: list[str] = []

    def report(self, report: Report) -> None:
        self.reports.append(report)

    def evict(self, consumer: Consumer, message: str) -> None:
        self.evicted.append(message)

    def now_ns(self) -> int:
        return 50

    def mask_of(self, consumer: Consumer, event: Event) -> int:
        return 0


class ListQueue(Queue):
    """A dispatcher's queue that only keeps what is called back to it."""

    def __init__(self) -> None:
        super().__init__()
        self.back: list[int] = []

    def end(self, consumer: Consumer) -> None:
        raise AssertionError("nothing is parked from here")

    def unpark(self, consumer: Consumer, arrival: int, event: Event, mask: int) -> None:
        self.back.append(arrival)


EVENT = Event("a", "s", None, 10)


@pytest.fixture
def owner() -> RecordingOwner:
    return RecordingOwner()


@pytest.fixture
def consumer(owner: RecordingOwner) -> Consumer:
    return Consumer(owner, "c", Recorder(), Correlator(any_of("a")))


# --- what is delivered ------------------------------------------------------------------


def test_conjunction_is_delivered_as_one_event_with_its_parts() -> None:
    got, clock = Recorder(), Clock()
    with reactive(clock=clock) as carrier:
        carrier.connect(got, all_of("a", any_of("b", "c"), within="10ms"), name="pair")
        supplier = carrier.supplier("s", "a", "b", "c")
        supplier.push("a", 1)
        clock.now_ns = 11_000_000
        supplier.push("c", 2)
        clock.now_ns = 12_000_000
        supplier.push("a", 3)

    (together,) = got.events
    assert (together.type, together.source, together.time_ns) == (TOGETHER, "pair", 12_000_000)
    assert [part.payload for part in together.events] == [3, 2]


def test_timeout_is_delivered_as_an_event_of_its_consumer(consumer: Consumer) -> None:
    timeout = Timeout("every", 20, 1, 0)

    joined = consumer.join([timeout], 30)

    assert (joined.type, joined.source, joined.payload, joined.time_ns) == (TIMEOUT, "c", timeout, 30)


def test_where_decides_before_correlation() -> None:
    got = Recorder()
    with reactive() as carrier:
        carrier.connect(got, all_of("a", "b"), where=lambda e: e.payload != "bad")
        supplier = carrier.supplier("s", "a", "b")
        supplier.push("a", "bad")
        supplier.push("b", 1)
        supplier.push("a", 2)

    assert [part.payload for part in got.events[0].parts] == [2, 1]


def test_disconnected_consumer_is_not_called(consumer: Consumer) -> None:
    consumer.is_closed = True
    consumer.run(EVENT)

    assert consumer.delivered == 0


# --- failures, drops and overruns -------------------------------------------------------


def test_failing_consumer_is_reported_by_name_and_harms_nobody() -> None:
    reports: list[Report] = []
    good = Recorder()
    with reactive(reports) as carrier:
        carrier.connect(Recorder(failing=True), "a", name="bad one")
        carrier.connect(good, "a")
        carrier.supplier("s", "a").push("a", 1)
        statistics = carrier.statistics()

    assert good.payloads == [1]
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.FAILED, "bad one")]
    assert reports[0].message == "raised RuntimeError on event 'a': no thanks"
    assert isinstance(reports[0].error, RuntimeError)
    assert [(c.delivered, c.failures) for c in statistics.consumers] == [(0, 1), (1, 0)]


def test_failing_filter_counts_as_the_consumers_failure() -> None:
    reports: list[Report] = []
    got = Recorder()
    with reactive(reports) as carrier:
        carrier.connect(got, "a", where=lambda e: e.payload["x"] > 1, name="picky")  # type: ignore[index]  # the mistake
        carrier.supplier("s", "a").push("a", 1)

    assert got.events == []
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.FAILED, "picky")]


def test_consumer_that_exits_ends_neither_the_supplier_nor_the_round() -> None:
    reports: list[Report] = []
    got = Recorder()

    def exits(event: Event) -> None:
        raise SystemExit(3)

    with reactive(reports) as carrier:
        carrier.connect(exits, "a", name="exits")
        carrier.connect(got, "a")
        carrier.supplier("s", "a").push("a", 1)

    assert got.payloads == [1]
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.FAILED, "exits")]


def test_consumer_is_evicted_after_a_number_of_failures_in_a_row() -> None:
    reports: list[Report] = []
    bad = Recorder(failing=True)
    with reactive(reports) as carrier:
        carrier.connect(bad, "a", name="bad", evict_after=2)
        supplier = carrier.supplier("s", "a")
        supplier.push("a")
        bad.failing = False
        supplier.push("a")
        bad.failing = True
        for _ in range(5):
            supplier.push("a")

        assert carrier.statistics().consumers == ()
    assert [r.kind for r in reports] == [Kind.FAILED] * 3 + [Kind.EVICTED]
    assert reports[-1].message == "evicted after 2 failures in a row"


def test_event_without_room_is_dropped_and_neither_delivered_nor_a_failure(owner: RecordingOwner) -> None:
    def full(event: Event) -> None:
        raise QueueFull(7)

    consumer = Consumer(owner, "c", full, Correlator(any_of("a")))
    consumer.evict_after = 1
    for _ in range(5):
        consumer.run(EVENT)

    assert (consumer.delivered, consumer.failures, consumer.dropped) == (0, 0, 5)
    # The 1st, the 2nd and the 4th.
    assert [r.kind for r in owner.reports] == [Kind.QUEUE_FULL] * 3
    assert owner.reports[-1].message == "queue is full (queue_max=7); 4 events dropped so far"
    assert owner.evicted == []


def test_slow_consumer_of_a_reactive_channel_is_evicted_only_if_that_was_agreed() -> None:
    reports: list[Report] = []

    def slow(event: Event) -> None:
        until_ns = time.monotonic_ns() + STALL_NS + MILLISECOND
        while time.monotonic_ns() < until_ns:
            pass

    with reactive(reports) as carrier:
        carrier.connect(slow, "a", name="tolerated")
        carrier.connect(slow, "a", name="watched", evict_slow=True)
        carrier.supplier("s", "a").push("a")

        assert [c.name for c in carrier.statistics().consumers] == ["tolerated"]
    assert [(r.kind, r.consumer) for r in reports] == [(Kind.STALLED, "watched"), (Kind.EVICTED, "watched")]


def test_overrun_is_measured_and_reported(owner: RecordingOwner) -> None:
    def burn(event: Event) -> None:
        until_ns = time.thread_time_ns() + 1000
        while time.thread_time_ns() < until_ns:
            pass

    meter = Meter(Operation("op", period_ns=1000, cost_ns=1))
    consumer = Consumer(owner, "c", burn, Correlator(any_of("a")), meter=meter)
    consumer.run(EVENT)

    assert consumer.delivered == 1
    assert (meter.overruns, meter.response.max_ns) == (1, 40)
    assert [r.kind for r in owner.reports] == [Kind.OVERRUN]
    assert owner.reports[0].message.endswith(" ns of a stated 1 ns")


# --- its place in line ------------------------------------------------------------------


def test_place_in_line_follows_the_operation(consumer: Consumer) -> None:
    operation = Operation("op", period_ns=2 * SECOND, cost_ns=8 * MILLISECOND, criticality=3)
    consumer.restate(Meter(operation))

    assert (consumer.lane_key, consumer.sub_priority) == (2 * SECOND, -3)
    assert consumer.budget_ns == PATIENCE_NS + 8 * MILLISECOND
    assert consumer.patience_ns == PATIENCE_NS + 9 * MILLISECOND
    assert consumer.stall_ns == 2 * SECOND

    consumer.restate(None)

    assert (consumer.lane_key, consumer.sub_priority) == (BEST_EFFORT, 0)
    assert consumer.budget_ns == consumer.patience_ns == PATIENCE_NS
    assert consumer.stall_ns == STALL_NS


# --- the order of its deliveries --------------------------------------------------------


def test_deliveries_that_come_while_it_runs_are_parked_and_called_back_one_by_one(
    consumer: Consumer,
) -> None:
    queue = ListQueue()
    assert consumer.begin(queue, 1, EVENT, PLAIN)
    assert not consumer.begin(queue, 2, EVENT, PLAIN)
    assert not consumer.begin(queue, 3, EVENT, PLAIN)

    assert consumer.finish(queue) is None
    assert queue.back == [2]
    # A later one that finds the consumer free does not overtake.
    assert not consumer.begin(queue, 4, EVENT, PLAIN)
    assert consumer.begin(queue, 2, EVENT, PLAIN)
    assert consumer.finish(queue) is None
    assert queue.back == [2, 3]


def test_called_back_delivery_that_must_wait_again_keeps_its_place(consumer: Consumer) -> None:
    queue = ListQueue()
    consumer.begin(queue, 1, EVENT, PLAIN)
    consumer.begin(queue, 3, EVENT, PLAIN)
    consumer.begin(queue, 4, EVENT, PLAIN)
    consumer.begin(queue, 2, EVENT, PLAIN)

    assert [arrival for arrival, _, _ in consumer.take_parked(queue)] == [2, 3, 4]


def test_next_parked_goes_on_unless_an_older_one_waits_in_the_queue(consumer: Consumer) -> None:
    queue, other = ListQueue(), ListQueue()
    consumer.begin(queue, 1, EVENT, PLAIN)
    consumer.begin(queue, 3, EVENT, 5)
    consumer.park_first(queue, 2, EVENT, PLAIN)

    assert consumer.next_parked(other) is None
    assert consumer.next_parked(queue) == (2, EVENT, PLAIN)
    consumer.call_back(1)
    assert consumer.next_parked(queue) is None
    assert consumer.take_parked(other) == []
    assert consumer.next_parked(queue) == (3, EVENT, 5)


def test_queue_of_the_next_dispatcher_is_asked_for_what_it_parked(consumer: Consumer) -> None:
    before, after = ListQueue(), ListQueue()
    consumer.begin(before, 1, EVENT, PLAIN)
    consumer.begin(after, 1, EVENT, PLAIN)

    assert consumer.finish(before) is after
    assert consumer.finish(after) is None
    assert (before.back, after.back) == ([], [1])


def test_held_deliveries_come_after_those_that_waited_in_the_old_dispatcher(consumer: Consumer) -> None:
    assert not consumer.keep_if_held(EVENT, 1)
    consumer.hold()
    assert consumer.keep_if_held(EVENT, 3)
    consumer.prepend_held([(EVENT, 1), (EVENT, 2)])

    masks = []
    while (held := consumer.take_held()) is not None:
        masks.append(held[1])
    assert masks == [1, 2, 3]
    assert not consumer.keep_if_held(EVENT, 4)
