"""What sessions are owed: limits and sums, the ends of connections and sessions, storage, errors."""

from __future__ import annotations

import tracemalloc

import pytest
from tests.core.broker_doubles import START_NS, Node, Pair

from timebound.core.sessions.session import PUBACK
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message, copy_cost
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.units import SECOND

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
    broker.subscribe(session, Subscription("receiver", "t", 1, keep_last=True), node.now_ns)
    pair.publish(b"1", b"2", b"3", qos=1)
    # Only the last is wanted. The two before it are dropped at once, and cannot be accounted for.
    del broker.counters.dropped[Reason.REPLACED.value]

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
    broker.counters.dropped[Reason.REPLACED.value] = 0
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
