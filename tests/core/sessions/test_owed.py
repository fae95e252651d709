"""What sessions are owed: limits and sums, the ends of connections and sessions, storage, errors."""

from __future__ import annotations

import tracemalloc

import pytest
from tests.core.broker_doubles import START_NS, Node, Pair

from timebound.core.sessions.owed import SMALL_QUEUE_BYTES, SPARE_PART, STALE_MIN, Owed
from timebound.core.sessions.session import PUBACK
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import ENTRY_COST, SENT, Delivery, Message, copy_cost
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms
from timebound.units import SECOND

from .alone import NOW_NS, Alone

DURABLE = pytest.mark.parametrize("durable", [False, True])


def test_qos_zero_is_not_kept_for_an_absent_receiver() -> None:
    pair = Pair()
    pair.node.disconnect(pair.receiver)

    pair.publish(b"1", qos=0)

    assert pair.dropped(Reason.DISCONNECTED) == 1
    assert pair.receiver.session.queued_messages() == 0


def test_qos_zero_that_was_queued_goes_with_the_connection() -> None:
    pair = Pair()
    pair.publish(b"0", qos=0)
    pair.publish(b"1", qos=1)

    pair.reconnect()

    assert pair.payloads() == [b"1"]
    assert pair.dropped(Reason.DISCONNECTED) == 1


def test_a_full_queue_drops_what_comes_and_keeps_what_it_has() -> None:
    pair = Pair(1, queue_messages_per_client_max=2)
    pair.node.disconnect(pair.receiver)

    pair.publish(b"1", b"2", b"3", qos=1)

    pair.receiver = pair.node.connect("receiver")
    assert pair.payloads() == [b"1", b"2"]
    assert pair.dropped(Reason.QUEUE_FULL) == 1


def test_a_receiver_of_timed_messages_that_never_answers_is_bounded_too() -> None:
    # Messages with a time limit compete for the link; what won waits for the client's answers.
    pair = Pair(1, receive_maximum=1, queue_messages_per_client_max=3)

    for _ in range(10):
        message = Message("t", b"x", 1, False, pair.node.now_ns, timeout_ns=60 * SECOND)
        pair.node.broker.publish(pair.publisher.session, message, 1, pair.node.now_ns)
        pair.node.settle()

    assert pair.receiver.session.queued_messages() <= 3
    assert pair.dropped(Reason.QUEUE_FULL) == 6


def test_a_queue_is_bounded_in_bytes() -> None:
    pair = Pair(1, queue_bytes_per_client_max=copy_cost(100))
    pair.node.disconnect(pair.receiver)

    pair.publish(b"x" * 92, b"y" * 91, b"z", qos=1)  # a copy has 9 bytes more than its payload

    session = pair.receiver.session
    assert (session.queue_bytes, session.cost_bytes) == (100, copy_cost(100))
    assert pair.dropped(Reason.QUEUE_FULL) == 2


def test_what_is_not_acknowledged_counts_as_well() -> None:
    pair = Pair(1, queue_bytes_per_client_max=4 * copy_cost(109), receive_maximum=2)

    pair.publish(*[b"x" * 100] * 5, qos=1)
    pair.node.settle()

    session = pair.receiver.session
    assert (len(session.inflight), session.queued_messages()) == (2, 2)
    assert pair.dropped(Reason.QUEUE_FULL) == 1
    assert pair.node.broker.queued_bytes() == 4 * copy_cost(109)

    for packet in pair.receiver.publishes():
        pair.node.acknowledge(pair.receiver, PUBACK, packet.packet_id)
    assert pair.node.broker.queued_bytes() == 2 * copy_cost(109)
    pair.node.broker._check()


def test_a_copy_counts_what_it_takes_in_memory() -> None:
    # Copies that share nothing, with the packet kept that the shell encodes for them.
    pair = Pair(0, queue_bytes_per_client_max=1 << 30)
    session = pair.receiver.session
    subscription = next(iter(session.subscriptions.values()))
    for deadline_ns in (0, 10**15):
        session.remove_subscription(subscription.topic_filter)
        subscription.deadline_ns = deadline_ns
        session.add_subscription(subscription)
        tracemalloc.start()
        before, counted = tracemalloc.get_traced_memory()[0], pair.node.broker.queued_bytes()
        for number in range(2_000):
            message = Message("t", b"x" * 20 + b"%d" % number, 0, False, START_NS + number, "p")
            message.frame_v5 = b"y" * 30 + b"%d" % number
            pair.node.broker.route(message, START_NS + number)
        pair.node.broker.expire(START_NS + 2_000)  # those with a deadline compete now
        taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()

        assert taken <= 1.3 * (pair.node.broker.queued_bytes() - counted)
        pair.node.broker._check()


def test_a_client_that_keeps_up_is_served_while_others_have_filled_everything() -> None:
    node = Node(BrokerLimits(queue_bytes_total_max=32 * copy_cost(10)), durable=False)
    publisher = node.connect("publisher")
    absent, reader = node.connect("absent"), node.connect("reader")
    node.subscribe(absent, "t", 1)
    node.subscribe(reader, "own", 1)
    node.disconnect(absent)
    for number in range(40):
        node.publish(publisher, "t", b"x", 1, packet_id=number + 1)

    node.publish(publisher, "own", b"", 1)
    node.settle()

    assert absent.session.queued_messages() == 32
    assert reader.payloads() == [b""]


def test_the_queues_of_all_together_are_bounded() -> None:
    each = copy_cost(65_536 + 9)
    node = Node(BrokerLimits(queue_bytes_total_max=2 * each), durable=False)
    publisher = node.connect("publisher")
    for name in ("a", "b", "c"):
        peer = node.connect(name)
        node.subscribe(peer, "t", 1)
        node.disconnect(peer)

    node.publish(publisher, "t", b"x" * 65_536, 1)

    assert node.broker.statistics().queued_bytes == 2 * each
    assert node.broker.statistics().dropped["queue_full"] == 1


def test_the_end_of_a_session_drops_all_it_is_owed() -> None:
    pair = Pair(1, receive_maximum=1, durable=True)
    pair.publish(b"1", b"2", b"3", qos=1)
    pair.received()

    pair.node.disconnect(pair.receiver, expiry_s=0)
    pair.node.settle()

    assert pair.dropped(Reason.SESSION_EXPIRED) == 3
    assert not pair.node.storage.messages
    assert pair.node.broker.statistics().queued_bytes == 0


def test_a_message_stays_stored_while_anybody_is_owed_a_copy() -> None:
    node = Node()
    publisher = node.connect("publisher")
    peers = [node.connect(name) for name in ("a", "b")]
    for peer in peers:
        node.subscribe(peer, "t", 1)
    node.publish(publisher, "t", b"x", 1)
    node.settle()

    node.acknowledge(peers[0], PUBACK, 1)
    node.settle()
    assert len(node.storage.messages) == 1
    node.acknowledge(peers[1], PUBACK, 1)
    node.settle()

    assert not node.storage.messages


@DURABLE
@pytest.mark.parametrize("way", ["take", "expire", "offer"])
def test_an_error_between_a_drop_and_its_account_leaves_nothing_in_storage(way: str, durable: bool) -> None:
    pair = Pair(durable=durable, queue_messages_per_client_max=3)
    node, session = pair.node, pair.receiver.session
    broker = node.broker
    broker.subscribe(
        session,
        Subscription(client_id="receiver", topic_filter="t", qos=1, terms=Terms(keep_last=True)),
        node.now_ns,
    )
    pair.publish(b"1", b"2", b"3", qos=1)
    # Only the last is wanted. The two before it are dropped at once, and cannot be accounted for.
    del broker.account.dropped[Reason.REPLACED.value]

    if way == "take":
        with pytest.raises(KeyError):
            broker.take_deliveries(session, 1, node.now_ns)
        pair.reconnect()
    else:
        if way == "expire":
            broker.expire(node.now_ns)
        else:
            pair.publish(b"4", qos=1)  # there is room only for three
        assert [fault.client_id for fault in broker.take_faults()] == ["receiver"]
    broker.account.dropped[Reason.REPLACED.value] = 0
    node.take_batch()
    while node.pending:
        node.commit()  # which checks that every message in storage is owed to somebody

    assert len(node.storage.deliveries) == (1 if durable else 0)
    broker.counters.faults += 1  # as the shell does
    broker.reconcile()
    node.check()
    [last] = pair.received()[-1:]
    assert last.payload == b"3"
    node.acknowledge(pair.receiver, PUBACK, last.packet_id)
    node.settle()
    assert not node.storage.deliveries
    assert session.cost_bytes == broker.queued_bytes() == 0
    account = broker.account
    assert (account.in_time, account.outstanding()) == (1, 0)


# --- expired copies -----------------------------------------------------------------------


def expiring_pair(**limits: int) -> Pair:
    pair = Pair(1, durable=True, queue_messages_per_client_max=3, **limits)
    pair.node.disconnect(pair.receiver)
    pair.node.settle()
    return pair


def test_expired_copies_make_room_for_fresh_ones() -> None:
    pair = expiring_pair()
    pair.publish(b"1", b"2", b"3", qos=1, expiry_s=10)
    pair.node.settle()
    assert len(pair.node.storage.deliveries) == 3

    pair.node.advance(10)
    pair.node.check()
    assert pair.receiver.session.queued_messages() == 0
    pair.publish(b"4", qos=1)
    pair.node.settle()

    assert (pair.dropped(Reason.EXPIRED), pair.dropped(Reason.QUEUE_FULL)) == (3, 0)
    assert len(pair.node.storage.deliveries) == 1
    pair.reconnect()
    assert pair.payloads() == [b"4"]


def test_a_full_queue_lets_go_of_what_expired_since_the_last_wake_up() -> None:
    pair = expiring_pair()
    pair.publish(b"1", b"2", b"3", qos=1, expiry_s=10)

    pair.node.now_ns += 10 * SECOND
    pair.publish(b"4", qos=1)

    pair.node.check()
    assert (pair.dropped(Reason.EXPIRED), pair.dropped(Reason.QUEUE_FULL)) == (3, 0)


def test_copies_expire_in_the_middle_of_a_queue_at_their_own_times() -> None:
    pair = Pair(1, durable=True)
    pair.node.disconnect(pair.receiver)
    expiries = [0, 9, 3, 0, 1, 5, 5, 2, 0, 4]
    for number in range(200):  # long enough for places to stay
        pair.publish(b"%d" % number, qos=1, expiry_s=expiries[number % 10] or None)
    session = pair.receiver.session

    for seconds in range(1, 10):
        pair.node.advance(1)
        pair.node.check()
        left = [one for one in expiries if not one or one > seconds]
        assert session.queued_messages() == 20 * len(left)

    pair.reconnect()
    assert pair.payloads() == [b"%d" % number for number in range(200) if not expiries[number % 10]]
    pair.node.check()
    assert (session.gone, session.limits) == (0, [])


def test_copies_expire_that_wait_for_acknowledgements() -> None:
    pair = Pair(1, receive_maximum=1, queue_messages_per_client_max=3)
    pair.publish(b"0", qos=1)
    assert pair.payloads() == [b"0"]
    pair.publish(b"1", b"2", qos=1, expiry_s=2)
    pair.publish(b"3", qos=1)
    assert pair.payloads() == []
    assert len(pair.receiver.session.blocked) == 3

    pair.node.advance(2)
    pair.node.check()
    pair.publish(b"4", qos=1)

    assert (pair.dropped(Reason.EXPIRED), pair.dropped(Reason.QUEUE_FULL)) == (2, 0)
    pair.node.acknowledge(pair.receiver, PUBACK, 1)
    assert pair.payloads() == [b"3"]


def test_copies_expire_after_a_restart() -> None:
    pair = expiring_pair()
    pair.publish(b"1", b"2", qos=1, expiry_s=10)
    pair.publish(b"3", qos=1)
    pair.node.settle()

    pair.node.crash(5)
    pair.node.check()
    pair.node.advance(5)
    pair.node.check()
    pair.node.settle()

    assert pair.dropped(Reason.EXPIRED) == 2
    assert len(pair.node.storage.deliveries) == 1


def test_a_copy_with_a_deadline_ends_on_time_after_its_reader_has_gone() -> None:
    pair = Pair(1)
    timed = Subscription(client_id="receiver", topic_filter="t", qos=1, terms=Terms(deadline_ns=5 * SECOND))
    pair.node.broker.subscribe(pair.receiver.session, timed, pair.node.now_ns)
    pair.publish(b"1", qos=1)
    pair.node.disconnect(pair.receiver)

    pair.node.advance(5)

    pair.node.check()
    assert pair.dropped(Reason.TIMED_OUT) == 1


def test_what_was_sent_is_not_watched_for_long() -> None:
    alone = Alone()
    alone.offer(b"stays" * 100, qos=1, expires_ns=NOW_NS + 9 * SECOND)
    for _ in range(1_000):
        alone.offer(b"1", expires_ns=NOW_NS + 9 * SECOND)
        alone.session.queue.rotate(1)
        alone.take(bytes_max=1)

    assert len(alone.session.limits) <= 2 + STALE_MIN
    alone.check()


def test_an_expired_copy_keeps_no_message_alive() -> None:
    alone = Alone()
    alone.offer(*[b"1"] * 200, qos=1)
    alone.offer(b"large" * 1_000, qos=1, expires_ns=NOW_NS + SECOND)

    alone.outbound.drop_due(alone.session, 256, NOW_NS + SECOND)

    alone.check()
    assert alone.session.gone == 1
    assert len(alone.session.queue[-1].message.payload) == 0
    assert len(alone.take()) == 200
    assert alone.session.gone == 0


# --- the class by itself -----------------------------------------------------------------


def copy(payload: bytes, sequence: int, *, packet_id: int = 0) -> Delivery:
    message = Message("t", payload, 1, False, NOW_NS, sequence=sequence)
    delivery = Delivery(message, 1, False, (), sequence, packet_id, SENT if packet_id else 0)
    delivery.subscription = Subscription(client_id="c", topic_filter="t", qos=1, terms=Terms(penalty=0.5))
    return delivery


def test_restored_copies_wait_or_are_in_flight_and_are_counted() -> None:
    alone = Alone()
    owed: Owed = alone.outbound

    owed.restore(alone.session, copy(b"1", 5, packet_id=9))
    owed.restore(alone.session, copy(b"22", 4))

    session = alone.session
    assert [delivery.sequence for delivery in session.queue] == [4]
    assert list(session.inflight) == [9]
    assert session.last_sequence == 5
    assert session.queue_bytes == 1 + 2 + 8
    assert owed.queued_bytes == copy_cost(10) + copy_cost(11)
    alone.check()


def test_a_session_is_full_in_bytes_or_in_messages() -> None:
    alone = Alone(queue_bytes_per_client_max=2 * copy_cost(10), queue_messages_per_client_max=3)
    message = alone.message(b"1")
    assert alone.outbound.has_room_for(alone.session, message)

    alone.offer(b"1", qos=1)
    assert alone.outbound.has_room_for(alone.session, message)
    assert not alone.outbound.is_full(alone.session, copy_cost(10))
    assert alone.outbound.is_full(alone.session, copy_cost(10) + 1)
    alone.offer(b"1", qos=1)
    assert not alone.outbound.has_room_for(alone.session, message)


def test_messages_that_wait_fill_a_session_whatever_their_size() -> None:
    alone = Alone(queue_messages_per_client_max=2)
    alone.offer(b"", b"")

    assert alone.outbound.is_full(alone.session, 0)


def test_what_competes_needs_room_for_its_entry_too() -> None:
    cost = copy_cost(10) + ENTRY_COST
    fitting, short = Alone(queue_bytes_per_client_max=cost), Alone(queue_bytes_per_client_max=cost - 1)
    for alone in (fitting, short):
        timed = Subscription(client_id="c", topic_filter="t", terms=Terms(deadline_ns=SECOND))
        alone.outbound.prepare(alone.session, timed, NOW_NS)

    assert fitting.outbound.has_room_for(fitting.session, fitting.message(b"1"))
    assert not short.outbound.has_room_for(short.session, short.message(b"1"))


def test_a_lost_connection_drops_qos_zero_and_puts_what_was_blocked_first() -> None:
    alone = Alone()
    alone.session.send_quota = 0
    alone.offer(b"1", b"2", qos=1)
    alone.take()  # which puts them apart: the client owes answers
    alone.offer(b"0")
    alone.offer(b"3", qos=1)
    assert len(alone.session.blocked) == 2

    alone.outbound.suspend(alone.session, NOW_NS)

    assert [delivery.message.payload for delivery in alone.session.queue] == [b"1", b"2", b"3"]
    assert alone.account.dropped[Reason.DISCONNECTED.value] == 1
    assert alone.account.paid_micro == 500_000
    alone.session.connection = 0
    alone.check()


def test_the_end_of_a_session_leaves_shared_copies_to_others_but_not_qos_two_that_was_sent() -> None:
    # MQTT 5, 4.8.2
    alone = Alone()
    for qos in (1, 2):
        alone.offer(b"sent", qos=qos, topic_filter="$share/g/t")
    alone.offer(b"own", qos=1)
    alone.take()
    alone.offer(b"waits", qos=2, topic_filter="$share/g/t")

    alone.outbound.discard(alone.session, Reason.SESSION_EXPIRED, NOW_NS)

    orphans = alone.outbound.orphans
    assert [(one.delivery.message.payload, one.delivery.qos) for one in orphans] == [
        (b"sent", 1),
        (b"waits", 2),
    ]
    assert {one.reason for one in orphans} == {Reason.SESSION_EXPIRED}
    assert alone.account.dropped[Reason.SESSION_EXPIRED.value] == 2
    assert (len(alone.session.inflight), alone.outbound.queued_bytes) == (0, 0)
    alone.check()


@pytest.mark.parametrize(("is_taken", "matched", "dropped"), [(True, 0, 0), (False, 1, 1)])
def test_an_orphan_ends_where_it_is_taken_or_is_dropped_for_its_reason(
    is_taken: bool, matched: int, dropped: int
) -> None:
    alone = Alone(durable=True)
    alone.offer(b"1", qos=1, topic_filter="$share/g/t")
    alone.outbound.discard(alone.session, Reason.SESSION_EXPIRED, NOW_NS)
    assert alone.orders() == ["PutMessage", "PutDelivery"]
    orphan = alone.outbound.orphans.pop()

    alone.outbound.end_orphan(orphan, is_taken, NOW_NS)

    assert alone.orders() == ["DropDelivery", "DropMessage"]
    assert alone.account.matched == matched
    assert alone.account.dropped[Reason.SESSION_EXPIRED.value] == dropped
    assert alone.account.outstanding() == 0


def test_what_is_forgotten_leaves_storage_and_no_account() -> None:
    alone = Alone(durable=True)
    alone.offer(b"1", b"2", qos=1, deadline_ns=SECOND)
    alone.take(bytes_max=1)
    assert alone.session.scheduled is not None
    alone.orders()

    alone.outbound.forget(alone.session)

    assert sorted(alone.orders()) == ["DropDelivery", "DropDelivery", "DropMessage", "DropMessage"]
    assert alone.session.scheduled is None
    assert (alone.session.cost_bytes, alone.outbound.queued_bytes) == (0, 0)
    assert alone.account.outstanding() == 2  # for `reconcile`


def test_mending_takes_the_sums_from_what_is_there() -> None:
    alone = Alone()
    alone.offer(b"1", b"2", deadline_ns=SECOND)
    session = alone.session
    session.queue_bytes, session.is_relaxing = 12_345, True

    alone.outbound.mend(session)

    assert (session.queue_bytes, session.cost_bytes) == (2 * 10, 2 * copy_cost(10))
    assert (session.scheduled, session.is_relaxing) == (None, False)
    alone.check()


def test_a_small_queue_may_exceed_the_limit_of_all_by_a_part() -> None:
    total = 64 * copy_cost(10)
    alone = Alone(queue_bytes_total_max=total)
    alone.outbound.queued_bytes = total  # others have filled it

    taken = alone.offer(*[b"1"] * 6)

    assert taken == [True] * (64 // SPARE_PART) + [False] * 2
    assert alone.session.cost_bytes < SMALL_QUEUE_BYTES


def test_a_session_that_is_away_may_not() -> None:
    alone = Alone(queue_bytes_total_max=copy_cost(10))
    alone.outbound.queued_bytes = copy_cost(10)
    alone.session.connection = 0

    assert alone.offer(b"1", qos=1) == [False]
    assert alone.account.dropped[Reason.QUEUE_FULL.value] == 1


def test_qos_zero_has_spare_room_beside_what_waits_for_answers() -> None:
    alone = Alone(queue_messages_per_client_max=32)
    alone.session.send_quota = 0
    alone.offer(*[b"1"] * 33, qos=1)
    alone.take()
    assert len(alone.session.blocked) == 32

    assert alone.offer(*[b"0"] * 3) == [True, True, False]
    assert alone.offer(b"1", qos=1) == [False]
    alone.check()
