"""Copies are dropped when they are due, in sessions and links alike, whatever happens to one of them."""

from __future__ import annotations

from typing import Any, cast

from tests.core.mesh.doubles import SECOND, Diamond
from tests.core.sessions.alone import NOW_NS, Alone

from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.options import TREE
from timebound.core.wakeups import DUE_COPIES_MAX, Wakeups


def wakeups_of(alone: Alone, forwarder: Forwarder | None = None) -> Wakeups:
    wakeups = Wakeups(alone.due, alone.outbound, alone.faults)
    if forwarder is not None:
        wakeups.forwarder = forwarder
        forwarder.share_due(alone.due)
    return wakeups


def test_one_list_wakes_sessions_and_links() -> None:
    alone = Alone()
    mesh = Diamond(TREE)
    broker = mesh.brokers["a"]
    wakeups = wakeups_of(alone, broker)
    assert wakeups.next_ns() is None
    for _ in range(2):
        broker.publish(mesh.message(), 0)  # the second waits for a link
    alone.offer(b"x", qos=1, expires_ns=NOW_NS + SECOND)

    link_ns = wakeups.next_ns()
    assert link_ns is not None
    assert link_ns < 60 * SECOND
    wakeups.wake(link_ns)
    assert mesh.account.dropped_total() > 0
    while (next_ns := wakeups.next_ns()) is not None and next_ns < NOW_NS:
        wakeups.wake(next_ns)
    assert wakeups.next_ns() == NOW_NS + SECOND
    wakeups.wake(NOW_NS + SECOND)

    assert alone.account.dropped["expired"] == 1
    assert wakeups.next_ns() is None


def test_a_call_drops_some_copies_and_asks_for_the_rest() -> None:
    alone = Alone()
    wakeups = wakeups_of(alone)
    alone.offer(*[b"x"] * (2 * DUE_COPIES_MAX), qos=1, expires_ns=NOW_NS + SECOND)
    wakeups.next_ns()

    wakeups.wake(NOW_NS + SECOND)

    assert 0 < alone.account.dropped["expired"] <= DUE_COPIES_MAX
    assert wakeups.next_ns() == NOW_NS + SECOND
    wakeups.wake(NOW_NS + SECOND)
    wakeups.next_ns()
    wakeups.wake(NOW_NS + SECOND)
    assert alone.account.dropped["expired"] == 2 * DUE_COPIES_MAX
    assert wakeups.next_ns() is None


def test_an_error_with_one_outlet_is_noted_and_the_others_are_looked_up() -> None:
    alone = Alone()
    wakeups = wakeups_of(alone)
    broken = alone.connected("broken", 7)
    broken.limits.append(cast(Any, "no limit"))  # a bug
    alone.due.touch(broken)
    alone.offer(b"x", qos=1, expires_ns=NOW_NS + SECOND)

    assert wakeups.next_ns() == NOW_NS + SECOND

    [fault] = alone.faults.take()
    assert (fault.client_id, fault.connection) == ("broken", 7)


def test_an_error_while_a_link_is_visited_names_the_link() -> None:
    alone = Alone()
    mesh = Diamond(TREE)
    broker = mesh.brokers["a"]
    wakeups = wakeups_of(alone, broker)
    for _ in range(2):
        broker.publish(mesh.message(), 0)
    due_ns = wakeups.next_ns()
    assert due_ns is not None
    wakeups.forwarder = None  # a bug: its links are still in the list

    wakeups.wake(due_ns)

    [fault] = alone.faults.take()
    assert fault.client_id.startswith("the link to broker ")
    assert all(link.due_ns == NEVER_NS or link.due_ns > due_ns for link in broker.links.values())
