"""Sessions that are not served: what waits for them is ranked and dropped in small steps."""

from __future__ import annotations

import json

import pytest
from tests.core.broker_doubles import Node, Peer

from timebound.core.broker import Broker
from timebound.core.sessions.outbound import STUCK_COPIES_MAX
from timebound.core.sessions.ranked import STEP_COPIES_MAX, STUCK_NS
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND

DEADLINE_NS = 2 * SECOND


class Scene:
    """A broker, a publisher, and readers with deadlines that never read."""

    def __init__(self, readers: int) -> None:
        self.now_ns = SECOND
        self.broker = Broker(BrokerLimits(), AccessList([]))
        self.publisher = self._connect("publisher", 1)
        self.readers = [self._connect(f"reader-{number}", 2 + number) for number in range(readers)]
        for reader in self.readers:
            wanted = Subscription(
                client_id=reader.client_id, topic_filter="t", terms=Terms(deadline_ns=DEADLINE_NS, price=1.0)
            )
            self.broker.subscribe(reader, wanted, self.now_ns)

    def _connect(self, name: str, number: int) -> Session:
        session, _ = self.broker.connect(name, "", True, 0, 65_535, None, number, self.now_ns)
        return session

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.broker.publish(
                self.publisher, Message("t", b"1", 0, False, self.now_ns, "publisher"), 0, self.now_ns
            )

    def ranked(self) -> int:
        """How many copies were ever ranked."""
        return sum(reader.scheduled.pushed for reader in self.readers if reader.scheduled is not None)

    def waiting(self) -> int:
        return sum(reader.queued_messages() for reader in self.readers)


def finish(scene: Scene) -> int:
    """Go on until the round is over; the steps it took."""
    steps = 0
    while scene.broker.is_expiring():
        before = scene.ranked() + scene.waiting()
        scene.broker.continue_expiry(scene.now_ns)
        assert abs(scene.ranked() + scene.waiting() - before) <= 2 * STEP_COPIES_MAX
        steps += 1
        assert steps < 1_000
    return steps


@pytest.mark.parametrize(("readers", "messages"), [(1, 3_000), (50, 60), (3_000, 1)])
def test_what_came_since_the_last_round_is_ranked_in_steps(readers: int, messages: int) -> None:
    scene = Scene(readers)
    scene.publish(messages)
    assert scene.ranked() == 0

    scene.broker.expire(scene.now_ns)

    assert scene.ranked() <= STEP_COPIES_MAX
    assert finish(scene) >= 3_000 // STEP_COPIES_MAX
    assert scene.ranked() == 3_000


def test_what_is_late_all_at_once_is_dropped_in_steps() -> None:
    scene = Scene(2)
    scene.publish(1_500)
    scene.broker.expire(scene.now_ns)
    finish(scene)
    waiting = scene.waiting()
    assert waiting > 4 * STEP_COPIES_MAX
    scene.now_ns += DEADLINE_NS

    scene.broker.expire(scene.now_ns)

    assert scene.waiting() >= waiting - STEP_COPIES_MAX
    finish(scene)
    assert scene.waiting() == 0
    assert scene.broker.account.matched == 3_000
    assert sum(reader.queue_bytes + reader.cost_bytes for reader in scene.readers) == 0


def test_a_reader_that_is_stuck_ranks_what_comes_as_it_comes() -> None:
    scene = Scene(1)
    scene.publish(1_000)
    assert scene.ranked() == 0  # it may be about to read
    scene.now_ns += 2 * STUCK_NS

    scene.publish(1)
    assert scene.ranked() == STUCK_COPIES_MAX
    scene.publish(333)
    assert 1_000 <= scene.ranked() <= 1_000 + STUCK_COPIES_MAX * 83


def test_a_session_that_ends_during_a_round_is_left_out() -> None:
    scene = Scene(10)
    scene.publish(100)
    scene.broker.expire(scene.now_ns)
    assert scene.broker.is_expiring()

    for reader in scene.readers:
        scene.broker.disconnect(reader, reader.connection, False, scene.now_ns)
    finish(scene)

    assert not scene.broker.is_expiring()
    assert scene.broker.queued_bytes() == 0


def test_idle_readers_count_as_well() -> None:
    scene = Scene(1_000)

    scene.broker.expire(scene.now_ns)

    assert finish(scene) >= 1_000 // STEP_COPIES_MAX


def test_an_error_with_one_reader_does_not_keep_the_others_waiting() -> None:
    scene = Scene(3)
    scene.publish(10)
    struck = scene.readers[0]
    assert struck.scheduled is not None
    struck.scheduled.lanes.clear()  # so that the second copy finds no place

    scene.broker.expire(scene.now_ns)
    finish(scene)

    assert [fault.client_id for fault in scene.broker.take_faults()] == [struck.client_id]
    assert [reader.scheduled is None or reader.scheduled.pushed == 10 for reader in scene.readers] == [
        True
    ] * 3


def test_a_new_round_waits_for_the_last_one() -> None:
    scene = Scene(1)
    scene.publish(3 * STEP_COPIES_MAX)
    scene.broker.expire(scene.now_ns)
    scene.broker.expire(scene.now_ns)

    assert scene.ranked() <= 2 * STEP_COPIES_MAX
    finish(scene)
    assert scene.ranked() == 3 * STEP_COPIES_MAX


# --- when they are late --------------------------------------------------------------------


class Late:
    """A reader with a deadline and notices that takes nothing, and a watcher of drops."""

    def __init__(
        self, qos: int = 0, *, deadline_ns: int = DEADLINE_NS, receive_maximum: int = 65_535
    ) -> None:
        self.node = Node(durable=False)
        self.broker = self.node.broker
        self.broker.account.is_tracing = True
        self.publisher = self.node.connect("publisher")
        self.watcher = self.node.connect("watcher")
        self.reader = self.node.connect("reader", receive_maximum=receive_maximum)
        self.node.subscribe(self.watcher, "$timebound/drops/#", 0)
        wanted = Subscription(
            client_id="reader", topic_filter="t", qos=qos, terms=Terms(deadline_ns=deadline_ns)
        )
        self.broker.subscribe(self.reader.session, wanted, self.node.now_ns)
        self.node.settle()
        self.watcher.take()

    def wake(self) -> int:
        """Go to where the broker wants to be woken, and wake it."""
        wakeup_ns = self.broker.next_wakeup_ns()
        assert wakeup_ns is not None
        self.node.now_ns = max(self.node.now_ns, wakeup_ns)
        self.broker.wake(self.node.now_ns)
        self.node.check()
        return self.node.now_ns

    def wake_until(self, dropped: int) -> int:
        for _ in range(10):
            time_ns = self.wake()
            if sum(self.broker.account.dropped.values()) >= dropped:
                return time_ns
        raise AssertionError("nothing was dropped")

    def drops(self) -> list[tuple[str, int]]:
        """The drops in the trace: reason and time."""
        records = list(self.broker.account.trace.take().records())
        return [(one.receiver.reason, one.time_ns) for one in records if one.receiver.reason]

    def notices(self, peer: Peer) -> list[dict[str, object]]:
        self.node.flush(peer.client_id)
        return [json.loads(packet.payload) for packet in peer.publishes()]


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("is_ranked", [False, True])
def test_a_copy_is_dropped_when_it_is_late_and_not_at_the_next_patrol(copies: int, is_ranked: bool) -> None:
    late = Late()
    published_ns = late.node.now_ns
    for _ in range(copies):
        late.node.publish(late.publisher, "t")
    if is_ranked:
        late.broker.expire(late.node.now_ns)

    time_ns = late.wake_until(copies)

    assert time_ns == published_ns + DEADLINE_NS
    assert late.drops() == [(Reason.TIMED_OUT.value, time_ns)] * copies
    ages = [notice["age_ms"] for notice in late.notices(late.watcher)]
    assert ages == [DEADLINE_NS / MILLISECOND] * copies
    assert late.reader.session.queued_messages() == 0


def test_a_copy_with_little_time_is_ranked_half_way() -> None:
    late = Late(deadline_ns=20 * MILLISECOND)
    published_ns = late.node.now_ns
    late.node.publish(late.publisher, "t")

    assert late.broker.next_wakeup_ns() == published_ns + 10 * MILLISECOND
    assert late.wake_until(1) <= published_ns + 20 * MILLISECOND


def test_a_copy_with_much_time_is_ranked_when_its_reader_is_stuck() -> None:
    late = Late()
    published_ns = late.node.now_ns
    late.node.publish(late.publisher, "t")

    assert late.wake() == published_ns + STUCK_NS
    assert late.reader.session.scheduled is not None
    assert len(late.reader.session.scheduled) == 1


def test_a_copy_that_waits_for_acknowledgements_is_dropped_when_it_is_late() -> None:
    late = Late(1, receive_maximum=1)
    session = late.reader.session
    late.node.publish(late.publisher, "t", b"0", 1)
    late.node.settle()
    published_ns = late.node.now_ns
    late.node.publish(late.publisher, "t", b"1", 1)
    late.node.publish(late.publisher, "t", b"2", 1)
    late.broker.route(Message("t", b"plain", 0, False, published_ns, "p"), published_ns)
    late.broker.route(Message("t", b"plain", 0, False, published_ns, "p"), published_ns)
    late.broker.take_deliveries(
        session, 10, published_ns
    )  # two that need answers give way to one that does not
    assert len(session.blocked) == 2

    time_ns = late.wake_until(2)

    assert published_ns + DEADLINE_NS - 100 * MILLISECOND < time_ns <= published_ns + DEADLINE_NS
    assert not session.blocked


def test_a_wake_up_that_comes_late_dates_drops_by_when_they_were_due() -> None:
    late = Late()
    published_ns = late.node.now_ns
    late.node.publish(late.publisher, "t")
    late.wake()
    due_ns = late.broker.next_wakeup_ns()
    assert due_ns is not None

    late.node.now_ns = published_ns + 10 * DEADLINE_NS
    late.broker.wake(late.node.now_ns)

    assert late.drops() == [(Reason.TIMED_OUT.value, due_ns)]
    assert [notice["age_ms"] for notice in late.notices(late.watcher)] == [
        (due_ns - published_ns) / MILLISECOND
    ]


def test_what_was_taken_in_the_same_turn_asks_for_no_wake_up() -> None:
    late = Late()
    late.node.publish(late.publisher, "t")
    late.node.settle()

    assert late.broker.next_wakeup_ns() is None


def test_what_is_late_all_at_once_is_dropped_by_several_wake_ups() -> None:
    scene = Scene(3)
    scene.publish(500)
    scene.now_ns += DEADLINE_NS
    steps = 0

    while (wakeup_ns := scene.broker.next_wakeup_ns()) is not None:
        assert wakeup_ns <= scene.now_ns
        before = scene.waiting()
        scene.broker.wake(scene.now_ns)
        assert before - scene.waiting() <= STEP_COPIES_MAX
        steps += 1

    assert scene.waiting() == 0
    assert steps >= 1_500 // STEP_COPIES_MAX


def test_an_error_with_one_reader_does_not_stop_a_wake_up() -> None:
    scene = Scene(3)
    scene.publish(10)
    struck = scene.readers[0]
    assert struck.scheduled is not None
    struck.scheduled.lanes.clear()
    scene.now_ns += STUCK_NS
    assert scene.broker.next_wakeup_ns() == scene.now_ns

    scene.broker.wake(scene.now_ns)

    assert [fault.client_id for fault in scene.broker.take_faults()] == [struck.client_id]
    assert scene.ranked() == 20
