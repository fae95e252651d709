"""Sessions that are not served: what waits for them is ranked and dropped in small steps."""

from __future__ import annotations

import pytest

from timebound.core.broker import Broker
from timebound.core.sessions.outbound import STEP_COPIES_MAX, STUCK_COPIES_MAX, STUCK_NS
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.units import SECOND

DEADLINE_NS = 2 * SECOND


class Scene:
    """A broker, a publisher, and readers with deadlines that never read."""

    def __init__(self, readers: int) -> None:
        self.now_ns = SECOND
        self.broker = Broker(BrokerLimits(), AccessList([]))
        self.publisher = self._connect("publisher", 1)
        self.readers = [self._connect(f"reader-{number}", 2 + number) for number in range(readers)]
        for reader in self.readers:
            wanted = Subscription(reader.client_id, "t", 0, deadline_ns=DEADLINE_NS, price=1.0)
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
