"""New access rules: what clients may not read any more is not sent to them, and nothing else is lost."""

from __future__ import annotations

import pytest
from tests.core.broker_doubles import Node, Pair, Peer

from timebound.core.sessions.rights import Rights
from timebound.core.sessions.session import PUBREC
from timebound.core.values.access import ALL, ANYONE, SUBSCRIBE, AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms
from timebound.topics import MISSED_PREFIX
from timebound.units import SECOND

NO_SECRETS = AccessList(
    [AccessRule(ANYONE, SUBSCRIBE, "secret/#", False), AccessRule(ANYONE, ALL, "#", True)]
)


def withdraw(node: Node, access: AccessList = NO_SECRETS) -> None:
    """A reload, and the steps that follow it."""
    node.broker.set_access(access, node.now_ns)
    node.access = access
    while node.broker.is_expiring():
        node.broker.continue_expiry(node.now_ns)
    node.check()


def dropped(node: Node) -> int:
    return node.broker.account.dropped[Reason.NOT_AUTHORIZED.value]


@pytest.mark.parametrize("terms", [Terms(), Terms(deadline_ns=60 * SECOND), Terms(keep_last=True)])
@pytest.mark.parametrize("is_connected", [True, False])
def test_waiting_copies_of_topics_that_may_not_be_read_any_more_are_dropped(
    terms: Terms, is_connected: bool
) -> None:
    node = Node()
    sender, receiver = node.connect("s"), node.connect("r")
    for topic_filter in ("secret/a", "open"):
        node.subscribe(receiver, topic_filter, 1, terms=terms)
    node.settle()
    if not is_connected:
        node.disconnect(receiver)
    for topic in ("secret/a", "open"):
        node.publish(sender, topic, topic.encode(), 1)
    receiver.take()

    withdraw(node)
    if not is_connected:
        receiver = node.connect("r")
    node.settle()

    assert receiver.payloads() == [b"open"]
    assert dropped(node) == 1
    assert node.broker.account.outstanding() == 1
    node.check()


def test_copies_that_are_still_allowed_stay_after_the_subscription_has_ended() -> None:
    # The filter selects what is forbidden among other topics, so it is forbidden as a whole.
    node = Node()
    sender, receiver = node.connect("s"), node.connect("r")
    node.subscribe(receiver, "#", 1)
    node.settle()
    for topic in ("secret/a", "open"):
        node.publish(sender, topic, topic.encode(), 1)
    receiver.take()

    withdraw(node)
    node.publish(sender, "open", b"later", 1)
    node.settle()

    assert not receiver.session.subscriptions
    assert receiver.payloads() == [b"open"]


def test_copies_of_a_shared_subscription_go_to_a_member_that_keeps_its_rights() -> None:
    node = Node()
    for_anna = AccessList([AccessRule("anna", ALL, "t", True), AccessRule("s", ALL, "t", True)])
    sender = node.connect("s", user="s")
    members = [node.connect(name, user=name) for name in ("bert", "anna")]
    node.subscribe(members[0], "$share/g/t", 1)
    node.settle()
    node.publish(sender, "t", b"1", 1)
    node.subscribe(members[1], "$share/g/t", 1)

    withdraw(node, for_anna)
    node.publish(sender, "t", b"2", 1)
    node.settle()

    assert [member.payloads() for member in members] == [[], [b"1", b"2"]]
    assert dropped(node) == 0


def test_copies_of_a_shared_subscription_that_nobody_may_read_are_dropped() -> None:
    node = Node()
    sender, member = node.connect("s"), node.connect("m")
    node.subscribe(member, "$share/g/secret/a", 1)
    node.settle()
    node.publish(sender, "secret/a", b"1", 1)

    withdraw(node)
    node.settle()

    assert (member.payloads(), dropped(node)) == ([], 1)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_and_not_acknowledged_is_not_sent_again(qos: int) -> None:
    pair = Pair(qos, durable=True)
    pair.publish(b"1", qos=qos)
    assert pair.payloads() == [b"1"]
    pair.node.disconnect(pair.receiver)
    forbidding = AccessList([AccessRule(ANYONE, ALL, "other", True)])

    withdraw(pair.node, forbidding)
    peer = pair.reconnect()
    pair.node.settle()

    assert peer.publishes() == []
    # The receiver may know the packet id of QoS 2, which is freed on both sides.
    assert [packet.kind for packet in peer.packets if packet.packet_id] == ["PUBREL"] * (qos - 1)
    assert dropped(pair.node) == 1
    pair.node.check()


def test_message_that_was_received_is_completed() -> None:
    pair = Pair(2, durable=True)
    pair.publish(b"1")
    [packet] = [one for one in pair.received() if one.kind == "PUBLISH"]
    pair.node.acknowledge(pair.receiver, PUBREC, packet.packet_id)

    withdraw(pair.node, AccessList([AccessRule(ANYONE, ALL, "other", True)]))

    assert dropped(pair.node) == 0
    assert [one.kind for one in pair.received()] == ["PUBREL"]


def test_a_restart_applies_rules_that_were_changed_before_it() -> None:
    pair = Pair(1, durable=True)
    pair.node.disconnect(pair.receiver)
    pair.publish(b"1", qos=1)
    pair.node.settle()
    pair.node.access = AccessList([AccessRule(ANYONE, ALL, "other", True)])

    pair.node.crash()
    pair.node.broker.expire(pair.node.now_ns)
    peer = pair.node.connect("receiver")
    pair.node.settle()

    assert peer.publishes() == []
    assert not peer.session.subscriptions
    assert not pair.node.storage.subscriptions
    assert dropped(pair.node) == 1
    pair.node.check()


def test_the_last_tick_of_an_absent_client_goes_with_its_subscription() -> None:
    node = Node()
    receiver = node.connect("r")
    node.subscribe(receiver, "secret/a", 1, terms=Terms(every_ns=SECOND))
    node.settle()
    node.disconnect(receiver)
    node.advance(3)
    assert receiver.session.ticks

    withdraw(node)

    assert not receiver.session.ticks


def test_many_copies_are_dropped_in_steps() -> None:
    node = Node(BrokerLimits(), durable=False)
    sender = node.connect("s")
    receivers = [node.connect(f"r{number}") for number in range(20)]
    for receiver in receivers:
        node.subscribe(receiver, "secret/a", 1)
        node.settle()
        node.disconnect(receiver)
    for number in range(50):
        node.publish(sender, "secret/a", b"%d" % number, 1)

    node.broker.set_access(NO_SECRETS, node.now_ns)

    assert 0 < dropped(node) < 1_000
    assert node.broker.is_expiring()
    withdraw(node)
    assert dropped(node) == 1_000


def rights_of(peer: Peer) -> Rights:
    peer.session.access = NO_SECRETS.for_client("", peer.client_id)
    return Rights(peer.session)


def copy_of(topic: str, *subscriptions: Subscription) -> Delivery:
    delivery = Delivery(Message(topic, b"", 1, False, 0), 1, False)
    if subscriptions:
        delivery.subscription = subscriptions[0]
        delivery.others = subscriptions[1:]
    return delivery


def test_one_of_its_subscriptions_is_enough() -> None:
    node = Node()
    peer = node.connect("r")
    node.subscribe(peer, "secret/b")
    held = peer.session.subscriptions["secret/b"]
    ended = Subscription(client_id="r", topic_filter="secret/#")
    rights = rights_of(peer)

    assert rights.may_have(copy_of("secret/b", held))
    assert rights.may_have(copy_of("secret/b", ended, held))
    assert not rights.may_have(copy_of("secret/b", ended))


@pytest.mark.parametrize(
    ("topic", "is_allowed"),
    [
        ("secret/a", False),
        ("open", True),
        (MISSED_PREFIX + "secret/a", False),
        (MISSED_PREFIX + "open", True),
        ("$timebound/watchdog", True),
        ("$timebound/every", True),
        ("$SYS/broker/version", True),
        ("$timebound/alarm/x", False),
    ],
)
def test_without_a_subscription_the_topic_decides(topic: str, is_allowed: bool) -> None:
    peer = Node().connect("r")

    assert rights_of(peer).may_have(copy_of(topic)) == is_allowed
