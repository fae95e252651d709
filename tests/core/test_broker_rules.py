"""The rules of MQTT that the broker joins its parts by: matching, retaining, acknowledging, restarting."""

from __future__ import annotations

import time

import pytest

from timebound.core.sessions.session import PUBACK, PUBREL
from timebound.core.values.access import AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message, copy_cost
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms

from .broker_doubles import Node, Packet, Peer

DURABLE = pytest.mark.parametrize("durable", [False, True])


def received(node: Node, peer: Peer) -> list[Packet]:
    node.settle()
    node.check()
    return [packet for packet in peer.take() if packet.kind == "PUBLISH"]


def replies(node: Node, peer: Peer) -> list[tuple[str, int, int]]:
    node.settle()
    return [
        (packet.kind, packet.packet_id, packet.code) for packet in peer.take() if packet.kind[:3] == "PUB"
    ]


# --- subscriptions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "published", "got"), [(0, 2, 0), (1, 2, 1), (2, 1, 1), (2, 2, 2), (1, 0, 0)]
)
def test_the_lower_of_both_qos_counts(asked: int, published: int, got: int) -> None:
    # MQTT 5, 3.8.4-8
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t", asked)

    node.publish(peer, "t", qos=published)

    assert [packet.qos for packet in received(node, peer)] == [got]


def test_overlapping_subscriptions_give_one_copy_with_the_highest_qos_and_all_identifiers() -> None:
    # MQTT 5, 3.3.4-2 to 3.3.4-5
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t", 0, identifier=7)
    node.subscribe(peer, "+", 2, identifier=8)
    node.subscribe(peer, "#", 1)

    node.publish(peer, "t", qos=2)

    [packet] = received(node, peer)
    assert packet.qos == 2
    assert sorted(packet.ids) == [7, 8]


def test_equal_identifiers_of_overlapping_subscriptions_are_all_sent() -> None:
    # MQTT 5, 3.3.4: "the PUBLISH packet will carry multiple identical Subscription Identifiers"
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t", identifier=7)
    node.subscribe(peer, "+", identifier=7)

    node.publish(peer, "t")

    assert [packet.ids for packet in received(node, peer)] == [(7, 7)]


def test_a_subscription_to_the_same_filter_replaces_the_old_one() -> None:
    # MQTT 5, 3.8.4-3
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t", 2, identifier=7)

    node.subscribe(peer, "t", 1, identifier=8)
    node.publish(peer, "t", qos=2)

    assert [(packet.qos, packet.ids) for packet in received(node, peer)] == [(1, (8,))]
    assert node.broker.statistics().subscriptions == 1


def test_no_local_spares_the_publisher_its_own_messages() -> None:
    # MQTT 5, 3.8.3-3
    node = Node(durable=False)
    peer, other = node.connect("c"), node.connect("other")
    node.subscribe(peer, "t", no_local=True)
    node.subscribe(other, "t", no_local=True)

    node.publish(peer, "t")

    assert received(node, peer) == []
    assert len(received(node, other)) == 1


def test_no_local_holds_for_one_of_overlapping_subscriptions() -> None:
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t", 2, no_local=True, identifier=7)
    node.subscribe(peer, "+", 1, identifier=8)

    node.publish(peer, "t", qos=2)

    assert [(packet.qos, packet.ids) for packet in received(node, peer)] == [(1, (8,))]


def test_no_local_holds_for_retained_messages() -> None:
    # MQTT 5, 3.8.3-3: "MUST NOT be forwarded to a connection with a ClientID equal to ..."
    node = Node(durable=False)
    peer, other = node.connect("c"), node.connect("other")
    node.publish(peer, "mine", retain=True)
    node.publish(other, "theirs", retain=True)

    node.subscribe(peer, "+", no_local=True)

    assert [packet.topic for packet in received(node, peer)] == ["theirs"]


def test_unsubscribing_ends_the_matching_and_tells_whether_there_was_one() -> None:
    # MQTT 5, 3.10.4-1 and 3.11.3: 0x11, No subscription existed
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t")

    assert node.unsubscribe(peer, "t") == 0x00
    assert node.unsubscribe(peer, "t") == 0x11
    node.publish(peer, "t")

    assert received(node, peer) == []


def test_a_client_cannot_have_more_subscriptions_than_the_limit() -> None:
    # MQTT 5, 3.9.3: 0x97, Quota exceeded
    node = Node(BrokerLimits(subscriptions_per_client_max=1), durable=False)
    peer = node.connect("c")

    assert node.subscribe(peer, "a", 1) == 1
    assert node.subscribe(peer, "b", 1) == 0x97
    assert node.subscribe(peer, "a", 2) == 2

    assert list(peer.session.subscriptions) == ["a"]


def test_content_filters_select() -> None:
    node = Node(durable=False)
    peer = node.connect("c")
    wanted = Subscription(client_id="c", topic_filter="t", qos=1, terms=Terms(where="value > 90"))
    node.broker.subscribe(peer.session, wanted, node.now_ns)

    for payload in (b'{"value": 91}', b'{"value": 90}', b"no json"):
        node.publish(peer, "t", payload)

    assert [packet.payload for packet in received(node, peer)] == [b'{"value": 91}']


def test_a_content_filter_and_a_plain_subscription_make_one_copy() -> None:
    node = Node(durable=False)
    peer = node.connect("c")
    wanted = Subscription(
        client_id="c", topic_filter="t", qos=1, identifier=7, terms=Terms(where="value > 90")
    )
    node.broker.subscribe(peer.session, wanted, node.now_ns)
    node.subscribe(peer, "#", 0, identifier=8)

    node.publish(peer, "t", b'{"value": 91}', 1)
    node.publish(peer, "t", b'{"value": 9}', 1)

    assert [(packet.qos, sorted(packet.ids)) for packet in received(node, peer)] == [(1, [7, 8]), (0, [8])]


# --- shared subscriptions: MQTT 5, 4.8.2 -----------------------------------------------------


def test_a_shared_message_goes_to_one_member_in_turn() -> None:
    node = Node(durable=False)
    members = [node.connect(name) for name in ("a", "b", "c")]
    for member in members:
        node.subscribe(member, "$share/g/t", 1)

    for number in range(6):
        node.publish(members[0], "t", b"%d" % number)

    assert [len(received(node, member)) for member in members] == [2, 2, 2]


def test_the_turn_skips_members_that_are_away() -> None:
    node = Node(durable=False)
    members = [node.connect(name) for name in ("a", "b", "c")]
    for member in members:
        node.subscribe(member, "$share/g/t", 1)
    node.disconnect(members[1])

    for number in range(6):
        node.publish(members[0], "t", b"%d" % number, 1)

    assert sum(len(received(node, member)) for member in (members[0], members[2])) == 6
    assert members[1].session.queued_messages() == 0


def test_a_group_without_connected_members_keeps_the_message_for_one_of_them() -> None:
    node = Node(durable=False)
    publisher = node.connect("publisher")
    members = [node.connect(name) for name in ("a", "b")]
    for member in members:
        node.subscribe(member, "$share/g/t", 1)
        node.disconnect(member)

    node.publish(publisher, "t", b"x", 1)

    assert sorted(member.session.queued_messages() for member in members) == [0, 1]


def test_the_turn_skips_members_whose_queue_is_full() -> None:
    node = Node(BrokerLimits(queue_messages_per_client_max=2), durable=False)
    publisher = node.connect("publisher")
    members = [node.connect(name) for name in ("a", "b")]
    for member in members:
        node.subscribe(member, "$share/g/t", 1)
    node.disconnect(members[0])
    node.disconnect(members[1])

    for number in range(4):
        node.publish(publisher, "t", b"%d" % number, 1)

    assert [member.session.queued_messages() for member in members] == [2, 2]
    assert not any(node.broker.account.dropped.values())


def test_shared_and_own_subscriptions_are_served_apart() -> None:
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t", 1, identifier=7)
    node.subscribe(peer, "$share/g/t", 1, identifier=8)

    node.publish(peer, "t", b"x", 1)

    assert sorted(packet.ids for packet in received(node, peer)) == [(7,), (8,)]


def test_a_shared_subscription_gets_no_retained_messages() -> None:
    # MQTT 5, 4.8.2: "Retained Messages are not sent to the Session when it first subscribes"
    node = Node(durable=False)
    peer = node.connect("c")
    node.publish(peer, "t", retain=True)

    node.subscribe(peer, "$share/g/t")

    assert received(node, peer) == []


# --- retained messages: MQTT 5, 3.3.1.3 and 3.8.3.1 ---------------------------------------------


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling(handling: int, first: int, second: int) -> None:
    # MQTT 5, 3.3.1-9 to 3.3.1-11
    node = Node(durable=False)
    peer = node.connect("c")
    node.publish(peer, "t", retain=True)

    node.subscribe(peer, "t", retain_handling=handling)
    assert len(received(node, peer)) == first
    node.subscribe(peer, "t", retain_handling=handling)
    assert len(received(node, peer)) == second


@pytest.mark.parametrize(("as_published", "expected"), [(False, [False, False]), (True, [True, False])])
def test_retain_as_published(as_published: bool, expected: list[bool]) -> None:
    # MQTT 5, 3.3.1-12 and 3.3.1-13
    node = Node(durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "t", retain_as_published=as_published)

    node.publish(peer, "t", b"1", retain=True)
    node.publish(peer, "t", b"2")

    assert [packet.retain for packet in received(node, peer)] == expected


def test_a_message_sent_for_a_new_subscription_is_marked_as_retained() -> None:
    # MQTT 5, 3.3.1-8
    node = Node(durable=False)
    peer = node.connect("c")
    node.publish(peer, "t", b"x", 2, retain=True)

    node.subscribe(peer, "t", 1, identifier=7)

    assert [(packet.retain, packet.qos, packet.ids) for packet in received(node, peer)] == [(True, 1, (7,))]


def test_an_empty_retained_message_removes_the_old_one_and_is_delivered() -> None:
    # MQTT 5, 3.3.1-6 and 3.3.1-7
    node = Node()
    peer = node.connect("c")
    node.publish(peer, "t", b"x", retain=True)
    node.subscribe(peer, "t", retain_handling=2)

    node.publish(peer, "t", b"", retain=True)

    assert [packet.payload for packet in received(node, peer)] == [b""]
    node.subscribe(peer, "t")
    assert received(node, peer) == []
    assert not node.storage.retained


def test_a_message_that_is_not_retained_leaves_the_retained_one() -> None:
    # MQTT 5, 3.3.1-8
    node = Node(durable=False)
    peer = node.connect("c")
    node.publish(peer, "t", b"kept", retain=True)
    node.publish(peer, "t", b"passing")

    node.subscribe(peer, "t")

    assert [packet.payload for packet in received(node, peer)] == [b"kept"]


def test_an_expired_retained_message_is_forgotten() -> None:
    # MQTT 5, 3.3.2.3.3
    node = Node()
    peer = node.connect("c")
    node.publish(peer, "t", retain=True, expiry_s=5)
    node.settle()
    node.advance(5)

    node.subscribe(peer, "t")

    assert received(node, peer) == []
    assert not node.storage.retained


def test_a_retained_message_beyond_the_limit_is_delivered_but_not_kept() -> None:
    node = Node(BrokerLimits(retained_messages_max=1), durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "#", retain_handling=2)
    node.publish(peer, "a", retain=True)

    node.publish(peer, "b", retain=True)

    assert [packet.topic for packet in received(node, peer)] == ["a", "b"]
    assert node.broker.statistics().retained_messages == 1
    assert node.broker.statistics().retained_refused == 1


def test_a_retained_message_that_does_not_fit_ends_the_older_one() -> None:
    """[MQTT-3.3.1-5]"""
    node = Node(BrokerLimits(retained_bytes_max=1_000))
    peer = node.connect("c")
    node.publish(peer, "a", b"old", qos=1, retain=True)
    node.settle()
    assert node.storage.retained

    node.publish(peer, "a", b"x" * 100, qos=1, retain=True)
    node.settle()

    assert node.broker.statistics().retained_messages == 0
    assert not node.storage.retained


def test_system_topics_are_retained_but_not_stored() -> None:
    node = Node()
    peer = node.connect("c")
    node.broker.route(Message("$SYS/load", b"1", 0, True, node.now_ns), node.now_ns)
    node.subscribe(peer, "$SYS/#")

    assert [packet.topic for packet in received(node, peer)] == ["$SYS/load"]
    assert not node.storage.retained


# --- acknowledgements of what clients publish ------------------------------------------------------


@DURABLE
def test_publications_are_acknowledged_by_their_qos_and_in_order(durable: bool) -> None:
    # MQTT 5, 4.3.2, 4.3.3 and 4.6.0-2; 0x10 is No matching subscribers (3.4.2.1)
    node = Node(durable=durable)
    peer, subscriber = node.connect("c"), node.connect("s")
    node.subscribe(subscriber, "t")

    node.publish(peer, "t", qos=1, packet_id=5)
    node.publish(peer, "nobody", qos=1, packet_id=6)
    node.publish(peer, "t", qos=2, packet_id=7)
    node.acknowledge(peer, PUBREL, 7)

    assert replies(node, peer) == [
        ("PUBACK", 5, 0),
        ("PUBACK", 6, 0x10),
        ("PUBREC", 7, 0),
        ("PUBCOMP", 7, 0),
    ]


@DURABLE
def test_a_qos_two_message_sent_again_before_its_release_is_routed_once(durable: bool) -> None:
    # MQTT 5, 4.3.3-10
    node = Node(durable=durable)
    peer = node.connect("c")
    node.subscribe(peer, "t", 1)

    node.publish(peer, "t", b"x", 2, packet_id=7)
    node.publish(peer, "t", b"x", 2, packet_id=7)

    assert len(received(node, peer)) == 1


def test_a_released_packet_id_is_free_for_a_new_message() -> None:
    # MQTT 5, 4.3.3-12
    node = Node()
    peer = node.connect("c")
    node.subscribe(peer, "t", 1)
    node.publish(peer, "t", b"1", 2, packet_id=7)
    node.acknowledge(peer, PUBREL, 7)

    node.publish(peer, "t", b"2", 2, packet_id=7)

    assert [packet.payload for packet in received(node, peer)] == [b"1", b"2"]


def test_pubrel_for_an_unknown_packet_id_is_answered() -> None:
    # MQTT 5, 3.7.2.1: PUBCOMP with 0x92, Packet Identifier not found
    node = Node()
    peer = node.connect("c")

    assert node.acknowledge(peer, PUBREL, 9)

    assert replies(node, peer) == [("PUBCOMP", 9, 0x92)]


@pytest.mark.parametrize(("qos", "answer"), [(0, []), (1, [("PUBACK", 5, 0x87)]), (2, [("PUBREC", 5, 0x87)])])
def test_a_publication_that_is_not_allowed_goes_nowhere(qos: int, answer: list[tuple[str, int, int]]) -> None:
    # MQTT 5, 3.4.2.1: 0x87, Not authorized
    node = Node(rules=[AccessRule("*", "subscribe", "#", True)], durable=False)
    peer = node.connect("c")
    node.subscribe(peer, "#")

    node.publish(peer, "t", b"x", qos, packet_id=5, retain=True)

    assert replies(node, peer) == answer
    assert node.broker.statistics().retained_messages == 0
    assert node.broker.statistics().refused == 1
    assert not peer.session.inbound


def test_a_subscription_that_is_not_allowed_is_refused() -> None:
    # MQTT 5, 3.9.3: 0x87, Not authorized
    node = Node(rules=[AccessRule("*", "publish", "#", True)], durable=False)
    peer = node.connect("c")

    assert node.subscribe(peer, "t") == 0x87

    assert node.broker.statistics().subscriptions == 0


def test_an_acknowledgement_leaves_only_when_the_copies_are_on_disk() -> None:
    node = Node()
    peer, subscriber = node.connect("c"), node.connect("s")
    node.subscribe(subscriber, "t", 1)
    node.settle()
    peer.take()

    node.publish(peer, "t", b"x", 1)
    node.flush_all()
    node.take_batch()
    assert peer.kinds() == []
    node.commit()
    node.flush_all()

    assert peer.kinds() == ["PUBACK"]


def test_answers_of_an_old_connection_do_not_reach_the_new_one() -> None:
    node = Node()
    peer = node.connect("c")
    node.subscribe(peer, "t", 1)
    node.settle()
    node.publish(peer, "t", b"x", 1, packet_id=5)
    node.take_batch()

    node.disconnect(peer)
    again = node.connect("c")
    node.settle()

    assert [packet.kind for packet in again.packets] == ["CONNACK", "PUBLISH"]


# --- restarts ----------------------------------------------------------------------------------------


def test_a_restart_keeps_subscriptions_copies_packet_ids_and_retained_messages() -> None:
    node = Node()
    peer, publisher = node.connect("c"), node.connect("p")
    node.subscribe(peer, "t", 2, identifier=7)
    node.publish(publisher, "t", b"1", 2, packet_id=5, retain=True)
    node.settle()
    [sent] = peer.publishes()

    node.crash()
    peer, publisher = node.connect("c"), node.connect("p")
    node.publish(publisher, "t", b"1", 2, packet_id=5, retain=True)  # sent again: it had no PUBCOMP
    [again] = received(node, peer)

    assert (again.packet_id, again.dup, again.ids) == (sent.packet_id, True, (7,))
    node.subscribe(peer, "t", 0)
    assert [packet.retain for packet in received(node, peer)] == [True]


def test_new_messages_after_a_restart_do_not_take_the_place_of_stored_ones() -> None:
    node = Node()
    peer = node.connect("c")
    node.subscribe(peer, "t", 1)
    node.disconnect(peer)
    publisher = node.connect("p")
    node.publish(publisher, "t", b"1", 1)
    node.settle()

    node.crash()
    node.publish(node.connect("p"), "t", b"2", 1)
    node.settle()
    node.crash()

    assert [packet.payload for packet in received(node, node.connect("c"))] == [b"1", b"2"]


def test_a_retained_message_that_is_also_owed_survives_another_restart() -> None:
    # After a restart the retained message and the owed one must be one: else the last copy of
    # the one would remove the other from storage.
    node = Node()
    absent = node.connect("absent")
    node.subscribe(absent, "t", 1)
    node.disconnect(absent)
    node.publish(node.connect("p"), "t", b"x", 1, retain=True)
    node.settle()

    node.crash()
    other = node.connect("other")
    node.subscribe(other, "t", 1)
    [packet] = received(node, other)
    node.acknowledge(other, PUBACK, packet.packet_id)
    node.settle()
    node.crash()

    assert [packet.payload for packet in received(node, node.connect("absent"))] == [b"x"]


def test_a_restart_clears_expired_retained_messages_out_of_storage() -> None:
    node = Node()
    node.publish(node.connect("c"), "t", retain=True, expiry_s=5)
    node.settle()

    node.crash(downtime_s=5)
    node.settle()

    assert not node.storage.retained
    assert node.broker.statistics().retained_messages == 0


def test_statistics_count_what_there_is() -> None:
    node = Node(durable=False)
    peer = node.connect("c", receive_maximum=1)
    node.subscribe(peer, "t", 1)
    for number in range(3):
        node.publish(peer, "t", b"x", 1, packet_id=number + 1)
    node.settle()

    found = node.broker.statistics()

    assert (found.sessions, found.connected, found.subscriptions) == (1, 1, 1)
    assert (found.messages_received, found.messages_sent) == (3, 1)
    assert (found.inflight, found.queued_messages, found.queued_bytes) == (1, 2, 3 * copy_cost(10))


def test_unsubscribing_one_by_one_does_not_look_at_the_subscriptions_that_stay() -> None:
    def seconds(deadline_ns: int) -> float:
        node = Node(BrokerLimits(subscriptions_per_client_max=10_000), durable=False)
        peer = node.connect("c")
        subscriptions = [Subscription(client_id="c", topic_filter=f"t/{number}") for number in range(4_000)]
        subscriptions.append(
            Subscription(client_id="c", topic_filter="last", terms=Terms(deadline_ns=deadline_ns))
        )
        for subscription in subscriptions:
            assert node.broker.subscribe(peer.session, subscription, node.now_ns) == 0
        assert peer.session.timed_subscriptions == (1 if deadline_ns else 0)
        began = time.process_time()
        for number in range(4_000):
            node.broker.unsubscribe(peer.session, f"t/{number}", node.now_ns)
        return time.process_time() - began

    plain, timed = seconds(0), seconds(1_000_000_000)

    # Looking at all of them each time takes 25 times as long.
    assert timed < 10 * plain
