"""The simulated disk: late, in order, and without what was not committed before a crash."""

from __future__ import annotations

from random import Random

from timebound.core.sessions.durability import Batch
from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import (
    DropRetained,
    DropSession,
    PutDelivery,
    PutMessage,
    PutRetained,
    PutSession,
    PutSubscription,
    StoreOrder,
)
from timebound.core.values.subscription import Subscription
from timebound.sim.deployment.storage import LateDisk, Tables
from timebound.sim.deployment.timers import VirtualClock
from timebound.sim.kernel.kernel import Kernel
from timebound.terms import Terms


def retained(topic: str, sequence: int) -> PutRetained:
    return PutRetained(Message(topic, b"x", 1, True, 5, "p", sequence=sequence))


class Disk:
    """A late disk with its clock, and what it has committed."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.clock = VirtualClock(self.kernel, lambda: None)
        self.disk = LateDisk(Random(1), 1_000)
        self.done: list[str] = []

    def submit(self, *orders: StoreOrder) -> None:
        name = f"batch {len(orders)}"
        self.disk.submit(Batch(list(orders), []), self.clock, lambda _: self.done.append(name))


def test_batches_are_committed_in_order_and_late() -> None:
    disk = Disk()

    disk.submit(retained("a", 1))
    disk.submit(retained("a", 2), DropRetained("b"))
    assert disk.done == []
    assert disk.disk.pending_orders == 3
    disk.kernel.run(5_000)

    assert disk.done == ["batch 1", "batch 2"]
    assert disk.disk.pending_orders == 0
    assert disk.disk.tables.retained["a"].sequence == 2


def test_crash_loses_what_was_not_committed() -> None:
    disk = Disk()

    disk.submit(retained("a", 1))
    assert disk.disk.crash()
    disk.kernel.run(5_000)

    assert disk.done == []
    assert disk.disk.tables.retained == {}
    assert not disk.disk.crash()


def test_failing_disk_commits_nothing_until_it_works_again() -> None:
    disk = Disk()

    disk.disk.fail()
    disk.submit(retained("a", 1))
    disk.kernel.run(5_000)
    assert disk.done == []
    assert disk.disk.work(disk.clock)
    disk.kernel.run(10_000)

    assert disk.done == ["batch 1"]
    assert not disk.disk.work(disk.clock)


def test_snapshot_shares_nothing_with_what_was_stored() -> None:
    tables = Tables()
    tables.started_ns = 77
    message = Message("a/x", b"m", 1, False, 5, "p", sequence=9)
    subscription = Subscription(client_id="s", topic_filter="a/#", qos=1, terms=Terms(name="hot"))
    delivery = Delivery(message, 1, False, (3,), sequence=4)
    tables.apply(
        [
            PutSession("s", 60, 0, "user"),
            PutSubscription(subscription),
            PutMessage(message),
            PutDelivery("s", delivery),
        ]
    )
    tables.check()

    [session] = tables.snapshot().sessions

    [kept], [owed] = session.subscriptions, session.deliveries
    assert kept is not subscription
    assert kept.key == subscription.key
    assert owed.message is not message
    assert (owed.message.payload, owed.sequence, owed.subscription_ids) == (b"m", 4, (3,))
    assert owed.message.name is not None
    assert (owed.message.name.started_ns, owed.message.name.number) == (77, 9)
    assert tables.snapshot().sequence_max == 9


def test_dropped_session_takes_its_rows_along() -> None:
    tables = Tables()
    tables.apply(
        [
            PutSession("s", 60, 0, ""),
            PutSubscription(Subscription(client_id="s", topic_filter="a")),
            DropSession("s"),
        ]
    )

    tables.check()
    assert not tables.snapshot().sessions
    assert not tables.subscriptions
