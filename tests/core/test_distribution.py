"""What members of a shared subscription leave behind goes to another member (MQTT 5, 4.8.2), and drops."""

from __future__ import annotations

import pytest

from timebound.core.distribution import MISSED_MAX
from timebound.core.sessions.session import PUBACK, PUBREC, PUBREL
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms

from .broker_doubles import Node, Peer

GROUP = "$share/g/t"


def publish(node: Node, peer: Peer, *payloads: bytes, qos: int) -> None:
    for payload in payloads:
        node.publish(peer, "t", payload, qos)
        if qos == 2:
            node.acknowledge(peer, PUBREL, 1)


def answer_all(node: Node, peer: Peer) -> None:
    """Acknowledge what has come, and what comes for that, until nothing is left."""
    while publishes := [packet for packet in peer.take() if packet.kind == "PUBLISH"]:
        for packet in publishes:
            assert node.acknowledge(peer, PUBACK if packet.qos == 1 else PUBREC, packet.packet_id)
        node.settle()


def dropped(node: Node) -> dict[str, int]:
    return {reason: count for reason, count in node.broker.account.dropped.items() if count}


def assert_account_is_even(node: Node) -> None:
    account = node.broker.account
    assert account.matched == account.in_time + account.late + sum(account.dropped.values())
    node.broker._check()


@pytest.mark.parametrize("deadline_ns", [0, 10**15])
@pytest.mark.parametrize("durable", [False, True])
def test_a_member_that_leaves_hands_on_what_it_did_not_acknowledge(durable: bool, deadline_ns: int) -> None:
    node = Node(durable=durable)
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", expiry_s=0, receive_maximum=2)
    wanted = Subscription(
        client_id="leaving", topic_filter=GROUP, qos=2, terms=Terms(deadline_ns=deadline_ns)
    )
    node.broker.subscribe(leaving.session, wanted, node.now_ns)
    publish(node, publisher, b"sent 1", qos=1)
    publish(node, publisher, b"sent 2", qos=2)
    publish(node, publisher, b"waits 1", qos=1)
    publish(node, publisher, b"waits 2", qos=2)
    node.settle()
    assert leaving.payloads() == [b"sent 1", b"sent 2"]
    staying = node.connect("staying", receive_maximum=1)
    node.subscribe(staying, GROUP, 2)

    node.disconnect(leaving)
    node.settle()

    assert node.broker.session("leaving") is None
    assert staying.payloads() == [b"sent 1"]  # its own Receive Maximum counts
    packet = staying.publishes()[0]
    assert not packet.dup
    answer_all(node, staying)
    assert dropped(node) == {Reason.SESSION_EXPIRED.value: 1}  # QoS 2 that was sent may not move
    assert node.broker.account.matched == 4
    node.disconnect(staying)
    node.disconnect(publisher)
    node.broker._check()


def test_handed_on_copies_come_in_order_and_with_all_their_qualities() -> None:
    node = Node()
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", expiry_s=0, receive_maximum=1)
    node.subscribe(leaving, GROUP, 1)
    publish(node, publisher, b"1", b"2", b"3", qos=1)
    node.settle()
    staying = node.connect("staying")
    node.subscribe(staying, GROUP, 1, identifier=7)

    node.disconnect(leaving)
    node.settle()

    assert staying.payloads() == [b"1", b"2", b"3"]
    assert {packet.ids for packet in staying.publishes()} == {(7,)}
    answer_all(node, staying)
    assert node.broker.account.in_time == 3
    assert_account_is_even(node)


def test_stored_copies_move_in_storage_when_a_session_expires() -> None:
    node = Node()
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", expiry_s=10, receive_maximum=1)
    node.subscribe(leaving, GROUP, 1)
    publish(node, publisher, b"1", b"2", qos=1)
    node.settle()
    node.disconnect(leaving)
    staying = node.connect("staying")
    node.subscribe(staying, GROUP, 1)
    node.disconnect(staying)

    node.advance(11)
    node.settle()
    node.crash()
    back = node.connect("staying")
    node.settle()

    assert {client_id for client_id, _ in node.storage.deliveries} == {"staying"}
    assert back.payloads() == [b"1", b"2"]
    answer_all(node, back)
    node.settle()
    assert not node.storage.deliveries
    assert not node.storage.messages


def test_a_message_without_acknowledgement_that_was_not_sent_goes_to_another() -> None:
    node = Node(durable=False)
    publisher = node.connect("publisher")
    leaving = node.connect("leaving")
    node.subscribe(leaving, GROUP, 0)
    publish(node, publisher, b"1", b"2", qos=0)
    staying = node.connect("staying")
    node.subscribe(staying, GROUP, 0)

    node.disconnect(leaving)
    node.settle()

    assert staying.payloads() == [b"1", b"2"]
    assert_account_is_even(node)


def test_what_no_other_member_wants_is_dropped_with_the_session() -> None:
    node = Node(durable=False)
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", expiry_s=0)
    node.subscribe(leaving, GROUP, 1)
    publish(node, publisher, b"1", qos=1)
    picky = node.connect("picky")
    node.broker.subscribe(
        picky.session,
        Subscription(client_id="picky", topic_filter=GROUP, qos=1, terms=Terms(where="a > 1")),
        node.now_ns,
    )

    node.disconnect(leaving)
    node.settle()

    assert picky.payloads() == []
    assert dropped(node) == {Reason.SESSION_EXPIRED.value: 1}
    assert_account_is_even(node)


@pytest.mark.parametrize("deadline_ns", [0, 10**15])
def test_unsubscribing_hands_on_what_was_not_sent(deadline_ns: int) -> None:
    node = Node()
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", receive_maximum=1)
    wanted = Subscription(
        client_id="leaving", topic_filter=GROUP, qos=1, terms=Terms(deadline_ns=deadline_ns)
    )
    node.broker.subscribe(leaving.session, wanted, node.now_ns)
    node.subscribe(leaving, "own", 1)
    publish(node, publisher, b"1", b"2", b"3", qos=1)
    node.publish(publisher, "own", b"mine", 1)
    node.settle()
    staying = node.connect("staying")
    node.subscribe(staying, GROUP, 1)

    node.unsubscribe(leaving, GROUP)
    node.settle()

    assert staying.payloads() == [b"2", b"3"]
    answer_all(node, staying)
    assert leaving.payloads() == [b"1"]
    answer_all(node, leaving)
    node.settle()
    assert_account_is_even(node)
    assert not node.storage.deliveries


def test_unsubscribing_alone_leaves_what_was_not_sent_owed() -> None:
    node = Node(durable=False)
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", receive_maximum=1)
    node.subscribe(leaving, GROUP, 1)
    publish(node, publisher, b"1", b"2", qos=1)
    node.settle()

    node.unsubscribe(leaving, GROUP)
    answer_all(node, leaving)

    assert node.broker.account.in_time == 2
    assert_account_is_even(node)


@pytest.mark.parametrize("durable", [False, True])
def test_an_error_with_one_copy_that_is_left_keeps_no_other_from_being_handed_on(durable: bool) -> None:
    node = Node(durable=durable)
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", expiry_s=60)
    for topic_filter in (GROUP, "$share/g/u"):
        node.subscribe(leaving, topic_filter, 1)
    for topic in ("t", "u", "t", "u"):
        node.publish(publisher, topic, topic.encode(), 1)
    node.settle()
    staying = node.connect("staying", expiry_s=60)
    node.subscribe(staying, "$share/g/u", 1)
    stranger = Subscription(client_id="stranger", topic_filter=GROUP, qos=1)
    node.broker._index.insert(stranger)  # of no session: whoever chooses it raises

    node.disconnect(leaving, expiry_s=0)
    node.broker._index.remove(stranger)
    node.settle()

    faults = [fault.client_id for fault in node.broker.take_faults()]
    assert faults == ["stranger"] * len(faults), "it is not the leaving one that they concern"
    assert len(faults) >= 2
    assert staying.payloads() == [b"u", b"u"]
    assert {client_id for client_id, _ in node.storage.deliveries} <= {"staying"}
    answer_all(node, staying)
    node.settle()
    assert not node.storage.messages
    node.broker.counters.faults += 2  # as the shell counts them
    node.broker.reconcile()
    assert dropped(node) == {Reason.FAULT.value: 2}
    assert_account_is_even(node)


@pytest.mark.parametrize("durable", [False, True])
def test_what_was_left_before_an_error_is_handed_on_after_it(durable: bool) -> None:
    node = Node(durable=durable)
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", expiry_s=60)
    node.subscribe(leaving, GROUP, 2)
    publish(node, publisher, b"1", qos=1)
    publish(node, publisher, b"2", qos=2)
    node.settle()
    staying = node.connect("staying", expiry_s=60)
    node.subscribe(staying, GROUP, 1)
    # The session cannot end in order: what it was sent with QoS 2 has no place in the account.
    counts = node.broker.account.dropped
    del counts[Reason.SESSION_EXPIRED.value]

    node.disconnect(leaving, expiry_s=0)
    counts[Reason.SESSION_EXPIRED.value] = 0
    node.settle()

    assert [fault.client_id for fault in node.broker.take_faults()] == ["leaving"]
    assert staying.payloads() == [b"1"]
    answer_all(node, staying)
    node.settle()
    assert not node.storage.deliveries
    assert not node.storage.messages
    node.broker.counters.faults += 1
    node.broker.reconcile()
    assert dropped(node) == {Reason.FAULT.value: 1}
    assert_account_is_even(node)


def test_what_was_acknowledged_before_an_error_is_not_handed_on() -> None:
    node = Node(durable=False)
    publisher = node.connect("publisher")
    leaving = node.connect("leaving", expiry_s=0)
    node.subscribe(leaving, GROUP, 1)
    publish(node, publisher, b"1", qos=1)
    node.settle()
    staying = node.connect("staying")
    node.subscribe(staying, GROUP, 1)
    # Between the two steps of an acknowledgement: it is accounted for, and not yet taken out.
    node.broker._outbound._settle(leaving.session, leaving.session.inflight[1], None, node.now_ns)

    node.disconnect(leaving)
    node.settle()

    assert staying.payloads() == []
    assert node.broker.account.in_time == 1
    assert_account_is_even(node)


def test_drops_that_nobody_watches_leave_no_matches_behind() -> None:
    node = Node(durable=False)
    publisher, absent = node.connect("publisher"), node.connect("absent")
    node.subscribe(absent, "#", 0)
    node.disconnect(absent)

    for number in range(2_000):
        node.publish(publisher, f"t/{number}")

    # As many wait for the end of the turn at most; their messages would stay as long.
    assert len(node.broker.account.missed) <= MISSED_MAX + 1
    node.broker.expire(node.now_ns)
    assert not [topic for topic in node.broker._index._matches if topic.startswith("$")]
