"""Sessions and wills over time: expiry, take-over, clean start, delay and cancellation."""

from __future__ import annotations

import pytest
from tests.core.broker_doubles import NEVER_S, START_NS, Node, Peer, make_will

from timebound.core.sessions.lifecycle import STALE_TIMERS_MAX
from timebound.core.values.access import AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.store_orders import PutSession, PutWill
from timebound.records import Reason
from timebound.units import SECOND


def watched(node: Node) -> Peer:
    """A client that sees every will."""
    peer = node.connect("watcher")
    node.subscribe(peer, "will/#", 2)
    node.settle()
    return peer


@pytest.mark.parametrize("durable", [False, True])
def test_a_session_is_resumed_with_its_subscriptions(durable: bool) -> None:
    # MQTT 5, 3.1.2-5
    node = Node(durable=durable)
    first = node.connect("c")
    node.subscribe(first, "a")
    node.disconnect(first)

    again = node.connect("c")

    assert again.is_present
    assert list(again.session.subscriptions) == ["a"]


def test_a_clean_start_discards_the_session() -> None:
    # MQTT 5, 3.1.2-4
    node = Node()
    first = node.connect("c")
    node.subscribe(first, "a")
    node.disconnect(first)

    again = node.connect("c", clean=True)

    assert not again.is_present
    assert not again.session.subscriptions
    assert len(node.broker._index) == 0


def test_a_session_belongs_to_its_user() -> None:
    node = Node()
    first = node.connect("c", user="alice")
    node.subscribe(first, "a")
    node.disconnect(first)

    stranger = node.connect("c", user="mallory")

    assert not stranger.is_present
    assert not stranger.session.subscriptions


def test_a_session_ends_when_its_expiry_has_passed_and_not_before() -> None:
    # MQTT 5, 3.1.2-23
    node = Node()
    node.disconnect(node.connect("c", expiry_s=10))
    node.advance(9.999)
    assert node.broker.session("c") is not None

    node.advance(0.001)

    assert node.broker.session("c") is None
    assert node.broker.next_wakeup_ns() is None


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    # MQTT 5, 3.1.2.11.2: absent or 0
    node = Node()
    peer = node.connect("c", expiry_s=0)
    node.subscribe(peer, "a")

    node.disconnect(peer)

    assert node.broker.session("c") is None
    node.settle()
    assert not node.storage.sessions


def test_a_session_may_never_expire() -> None:
    # MQTT 5, 3.1.2.11.2: 0xFFFFFFFF
    node = Node(BrokerLimits(session_expiry_max_s=NEVER_S))
    node.disconnect(node.connect("c", expiry_s=NEVER_S))

    assert node.broker.next_wakeup_ns() is None


def test_disconnect_may_change_the_expiry() -> None:
    # MQTT 5, 3.14.2.2.2
    node = Node()
    node.disconnect(node.connect("c", expiry_s=100), expiry_s=1)
    node.disconnect(node.connect("d", expiry_s=100), expiry_s=0)

    node.advance(1)

    assert node.broker.session("c") is None
    assert node.broker.session("d") is None


def test_the_limit_of_the_broker_bounds_the_expiry() -> None:
    node = Node(BrokerLimits(session_expiry_max_s=5))
    node.disconnect(node.connect("c", expiry_s=NEVER_S))

    node.advance(5)

    assert node.broker.session("c") is None


def test_coming_back_stops_the_expiry() -> None:
    node = Node()
    node.disconnect(node.connect("c", expiry_s=10))
    node.advance(5)
    peer = node.connect("c", expiry_s=10)

    node.advance(20)

    assert node.broker.session("c") is peer.session


def test_a_take_over_closes_the_old_connection_with_its_reason() -> None:
    # MQTT 5, 3.1.4-3
    node = Node()
    first = node.connect("c")

    second = node.connect("c")

    assert first.closed_with is not None
    assert first.closed_with.reason_code == 0x8E
    assert second.is_present
    assert node.broker.statistics().connected == 1


def test_the_end_of_a_connection_that_was_taken_over_changes_nothing() -> None:
    node = Node()
    first = node.connect("c")
    second = node.connect("c")

    node.broker.disconnect(first.session, first.number, True, node.now_ns)

    assert second.session.connection == second.number


# --- wills: MQTT 5, 3.1.2.5 and 3.1.3.2.2 --------------------------------------------


def test_a_will_is_published_when_the_connection_is_lost() -> None:
    node = Node()
    watcher = watched(node)
    client = node.connect("c", will=make_will("c", "will/c"))

    node.disconnect(client)
    node.settle()

    assert watcher.payloads() == [b"gone"]


def test_a_client_that_says_goodbye_takes_its_will_back() -> None:
    # MQTT 5, 3.1.2-10
    node = Node()
    watcher = watched(node)
    client = node.connect("c", will=make_will("c", "will/c"))

    node.disconnect(client, keep_will=False)
    node.advance(100)
    node.settle()

    assert watcher.payloads() == []
    assert not node.storage.wills


def test_a_will_waits_for_its_delay() -> None:
    # MQTT 5, 3.1.3.2.2
    node = Node()
    watcher = watched(node)
    node.disconnect(node.connect("c", will=make_will("c", "will/c", delay_s=5)))
    node.advance(4.999)
    node.settle()
    assert watcher.payloads() == []

    node.advance(0.001)
    node.settle()

    assert watcher.payloads() == [b"gone"]


def test_a_will_is_published_when_the_session_ends_before_its_delay() -> None:
    # MQTT 5, 3.1.3.2.2: "or the Session ends, whichever happens first"
    node = Node()
    watcher = watched(node)
    node.disconnect(node.connect("c", expiry_s=3, will=make_will("c", "will/c", delay_s=5)))

    node.advance(3)
    node.settle()

    assert watcher.payloads() == [b"gone"]
    node.advance(10)
    node.settle()
    assert watcher.payloads() == [b"gone"]


def test_coming_back_in_time_cancels_the_will() -> None:
    # MQTT 5, 3.1.3-9
    node = Node()
    watcher = watched(node)
    node.disconnect(node.connect("c", will=make_will("c", "will/c", delay_s=5)))
    node.advance(4)

    node.connect("c")
    node.advance(100)
    node.settle()

    assert watcher.payloads() == []


def test_a_new_connection_brings_its_own_will() -> None:
    node = Node()
    watcher = watched(node)
    node.disconnect(node.connect("c", will=make_will("c", "will/c", payload=b"old", delay_s=5)))

    node.disconnect(node.connect("c", will=make_will("c", "will/c", payload=b"new", delay_s=5)))
    node.advance(100)
    node.settle()

    assert watcher.payloads() == [b"new"]


def test_a_clean_start_ends_the_session_and_publishes_the_will_that_waits() -> None:
    # MQTT 5, 3.1.3.2.2: the session ends
    node = Node()
    watcher = watched(node)
    node.disconnect(node.connect("c", will=make_will("c", "will/c", delay_s=5)))

    node.connect("c", clean=True)
    node.settle()

    assert watcher.payloads() == [b"gone"]


@pytest.mark.parametrize(
    ("clean", "delay_s", "count"), [(False, 0, 1), (False, 5, 0), (True, 0, 1), (True, 5, 1)]
)
def test_a_take_over_publishes_or_cancels_the_will(clean: bool, delay_s: int, count: int) -> None:
    # MQTT 5, 3.1.4 (comment): without delay it is sent, with one it is not unless the session ends.
    node = Node()
    watcher = watched(node)
    node.connect("c", will=make_will("c", "will/c", delay_s=delay_s))

    node.connect("c", clean=clean)
    node.advance(100)
    node.settle()

    assert len(watcher.payloads()) == count


def test_disconnect_with_expiry_zero_does_not_wait_for_the_delay() -> None:
    node = Node()
    watcher = watched(node)
    client = node.connect("c", will=make_will("c", "will/c", delay_s=5))

    node.disconnect(client, keep_will=True, expiry_s=0)
    node.settle()

    assert watcher.payloads() == [b"gone"]


def test_the_expiry_of_a_will_counts_from_its_publication() -> None:
    # MQTT 5, 3.1.3.2.4
    node = Node()
    watcher = watched(node)
    node.disconnect(watcher)
    client = node.connect("c", will=make_will("c", "will/c", expiry_s=10))
    node.advance(1_000)
    node.disconnect(client)
    node.advance(9)

    watcher = node.connect("watcher")
    node.settle()

    assert watcher.payloads() == [b"gone"]


def test_a_will_that_is_published_leaves_the_stored_one_as_it_was() -> None:
    # Storage writes later, in its thread: what it is given must not change under its hands.
    node = Node()
    will = make_will("c", "will/c", expiry_s=10)
    client = node.connect("c", will=will)
    node.take_batch()

    node.disconnect(client)

    [stored] = [order for order in node.pending[0].orders if isinstance(order, PutWill)]
    assert stored.message.expires_ns == 10 * SECOND
    assert stored.message.sequence == 0


def test_the_limit_of_the_broker_bounds_the_delay_of_a_will() -> None:
    node = Node(BrokerLimits(will_delay_max_s=2))
    watcher = watched(node)
    node.disconnect(node.connect("c", will=make_will("c", "will/c", delay_s=500)))

    node.advance(2)
    node.settle()

    assert watcher.payloads() == [b"gone"]


# --- restarts ------------------------------------------------------------------------


def test_a_restart_counts_the_expiry_from_when_the_client_left() -> None:
    node = Node()
    node.disconnect(node.connect("gone", expiry_s=10))
    node.connect("here", expiry_s=10)
    node.settle()

    node.crash(downtime_s=9)
    node.advance(1)
    assert node.broker.session("gone") is None
    assert node.broker.session("here") is not None  # its connection was lost only now
    node.advance(9)
    assert node.broker.session("here") is None


def test_another_restart_does_not_prolong_the_expiry() -> None:
    node = Node()
    node.connect("c", expiry_s=10)
    node.settle()

    node.crash()
    node.settle()
    node.crash(downtime_s=6)
    node.settle()
    node.crash(downtime_s=4)
    node.advance(0)

    assert node.broker.session("c") is None


def test_a_restart_ends_the_sessions_that_expired_meanwhile() -> None:
    node = Node()
    node.disconnect(node.connect("c", expiry_s=10))
    node.settle()

    node.crash(downtime_s=60)
    node.advance(0)
    node.settle()

    assert node.broker.session("c") is None
    assert not node.storage.sessions


def test_a_restart_publishes_the_will_of_a_client_without_session() -> None:
    node = Node()
    watched(node)
    node.connect("c", expiry_s=0, will=make_will("c", "will/c", delay_s=5))
    node.settle()

    node.crash()
    watcher = node.connect("watcher")
    node.settle()

    assert watcher.payloads() == [b"gone"]
    assert not node.storage.wills


def test_after_a_restart_the_user_of_a_will_still_needs_the_right() -> None:
    allowed = AccessRule("ann", "publish", "will/#", allow=True)
    anyone = AccessRule("*", "subscribe", "#", allow=True)
    node = Node(rules=[allowed, anyone])
    watched(node)
    for user in ("ann", "bob"):
        node.connect(user, user=user, expiry_s=0, will=make_will(user, f"will/{user}", delay_s=5))
    node.settle()

    node.crash()
    watcher = node.connect("watcher")
    node.settle()

    assert [packet.topic for packet in watcher.publishes()] == ["will/ann"]
    assert node.broker.counters.refused[Reason.NOT_AUTHORIZED.value] == 1
    assert "will of client 'bob'" in node.broker.counters.alerts[0]
    assert not node.storage.wills


def test_a_restart_goes_on_with_the_delay_of_a_will() -> None:
    node = Node()
    watched(node)
    node.disconnect(node.connect("c", will=make_will("c", "will/c", delay_s=10)))
    node.connect("d", will=make_will("d", "will/d", delay_s=10))
    node.settle()

    node.crash(downtime_s=4)
    watcher = node.connect("watcher")
    node.advance(6)
    node.settle()
    assert [packet.topic for packet in watcher.publishes()] == ["will/c"]
    node.advance(4)
    node.settle()
    assert [packet.topic for packet in watcher.publishes()] == ["will/c", "will/d"]


def test_a_client_that_comes_and_goes_does_not_pile_up_timers() -> None:
    # Expiry in years, connections by the second: without care each would leave a timer behind.
    node = Node(durable=False)

    for _ in range(3 * STALE_TIMERS_MAX):
        node.disconnect(node.connect("c", expiry_s=4_000_000_000, will=make_will("c", "w", delay_s=4_000)))

    assert len(node.broker._lifecycle._timers) <= STALE_TIMERS_MAX + 5
    assert node.broker.next_wakeup_ns() == node.now_ns + 4_000 * SECOND


def test_clearing_out_timers_keeps_the_ones_that_matter() -> None:
    node = Node(durable=False)
    watcher = watched(node)
    node.disconnect(node.connect("first", expiry_s=10))
    node.disconnect(node.connect("second", expiry_s=100, will=make_will("second", "will/s", delay_s=20)))
    for _ in range(2 * STALE_TIMERS_MAX):
        node.disconnect(node.connect("c", expiry_s=1_000_000))

    node.advance(10)
    assert node.broker.session("first") is None
    node.advance(10)
    node.settle()
    assert watcher.payloads() == [b"gone"]
    node.advance(80)
    assert node.broker.session("second") is None


def test_a_connected_session_is_stored_without_an_end() -> None:
    node = Node()
    node.connect("c", expiry_s=10, user="alice")
    node.take_batch()

    [put] = [order for order in node.pending[0].orders if isinstance(order, PutSession)]

    assert (put.client_id, put.expiry_interval_s, put.ended_ns, put.user) == ("c", 10, 0, "alice")
    assert node.now_ns == START_NS


def test_a_second_clean_start_is_confirmed_only_when_the_session_is_gone_from_disk_too() -> None:
    node = Node()
    node.disconnect(node.connect("c"))
    node.settle()

    node.connect("c", clean=True, expiry_s=0)
    node.flush_all()
    node.take_batch()  # on its way to the disk
    second = node.connect("c", clean=True, expiry_s=0)
    node.flush_all()
    assert second.take() == []

    node.crash()
    assert node.broker.session("c") is not None  # so no CONNACK may have said that it is gone


def test_a_clean_start_waits_for_no_more_than_its_own_session() -> None:
    node = Node()
    node.disconnect(node.connect("c"))
    node.settle()
    node.connect("c", clean=True, expiry_s=0)
    node.settle()

    node.connect("other")  # ordered, and not on disk
    node.take_batch()
    third = node.connect("c", clean=True, expiry_s=0)
    node.flush_all()

    assert len(third.take()) == 1


def test_sessions_that_were_dropped_are_forgotten_once_that_is_on_disk() -> None:
    node = Node()
    for number in range(20):
        node.disconnect(node.connect(f"c{number}"))
        node.connect(f"c{number}", clean=True, expiry_s=0)
        node.settle()

    assert len(node.broker._lifecycle._dropping) <= 2


def test_without_storage_no_dropped_session_is_remembered() -> None:
    node = Node(durable=False)
    node.disconnect(node.connect("c"))
    node.connect("c", clean=True)

    assert node.broker._lifecycle._dropping == {}
