"""What is retained goes to a new subscription a part at a time, while messages come and go."""

from __future__ import annotations

from typing import Any

from timebound.core.broker import Broker
from timebound.core.distribution import RetainedReplay
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms

from .broker_doubles import Node, Peer

# User properties that nobody can publish: a content filter that asks for one raises.
BROKEN: Any = (("a",),)


def retain(node: Node, *topics: str) -> None:
    publisher = node.connect("publisher")
    for topic in topics:
        node.publish(publisher, topic, f"old {topic}".encode(), retain=True)


def begin(node: Node, peer: Peer, topic_filter: str = "#", **options: object) -> RetainedReplay:
    wanted = Subscription(client_id=peer.client_id, topic_filter=topic_filter, **options)  # type: ignore[arg-type]  # as they are
    code, replay = node.broker.begin_subscribe(peer.session, wanted, node.now_ns)
    assert code == 0
    assert replay is not None
    return replay


def finish(node: Node, replay: RetainedReplay) -> None:
    for _ in range(1_000):
        if node.broker.continue_replay(replay, 1, node.now_ns):
            break
    else:
        raise AssertionError("the walk does not end")
    assert under_way(node.broker) == 0


def under_way(broker: Broker) -> int:
    return len(broker._distribution._replays)


def payloads(node: Node, peer: Peer) -> list[str]:
    node.settle()
    node.check()
    return [packet.payload.decode() for packet in peer.take() if packet.kind == "PUBLISH"]


def test_all_is_given_once_in_parts() -> None:
    node = Node(durable=False)
    retain(node, "a", "b", "c/d")
    peer = node.connect("c")
    replay = begin(node, peer)

    assert not node.broker.continue_replay(replay, 2, node.now_ns)
    assert payloads(node, peer) == ["old a"]
    finish(node, replay)

    assert payloads(node, peer) == ["old b", "old c/d"]


def test_a_new_message_comes_after_what_was_retained_on_its_topic() -> None:
    # [MQTT-4.6.0-5]: in the order in which they were published, although the walk is not there yet.
    node = Node(durable=False)
    retain(node, "a", "b")
    peer = node.connect("c")
    replay = begin(node, peer)

    node.publish(node.connect("other"), "b", b"new b")
    finish(node, replay)

    assert payloads(node, peer) == ["old b", "new b", "old a"]


def test_what_is_retained_meanwhile_comes_once_and_replaces_the_older() -> None:
    node = Node(durable=False)
    retain(node, "a", "b")
    peer = node.connect("c")
    replay = begin(node, peer)

    other = node.connect("other")
    node.publish(other, "b", b"new b", retain=True)
    node.publish(other, "c", b"new c", retain=True)
    finish(node, replay)

    assert payloads(node, peer) == ["new b", "new c", "old a"]


def test_what_was_given_is_not_given_again_before_a_new_message() -> None:
    node = Node(durable=False)
    retain(node, "a", "b")
    peer = node.connect("c")
    replay = begin(node, peer)
    assert not node.broker.continue_replay(replay, 2, node.now_ns)

    node.publish(node.connect("other"), "a", b"new a")
    finish(node, replay)

    assert payloads(node, peer) == ["old a", "new a", "old b"]


def test_what_is_forgotten_meanwhile_is_not_given() -> None:
    node = Node(durable=False)
    retain(node, "a", "b", "b/c", "d")
    peer = node.connect("c")
    replay = begin(node, peer)
    assert not node.broker.continue_replay(replay, 2, node.now_ns)

    for topic in ("b", "b/c"):
        node.publish(node.connect("other"), topic, b"", retain=True)
    finish(node, replay)

    assert [payload for payload in payloads(node, peer) if payload] == ["old a", "old d"]


def test_unsubscribing_ends_it() -> None:
    node = Node(durable=False)
    retain(node, "a", "b")
    peer = node.connect("c")
    replay = begin(node, peer)

    node.unsubscribe(peer, "#")

    assert node.broker.continue_replay(replay, 1, node.now_ns)
    assert under_way(node.broker) == 0
    assert payloads(node, peer) == []


def test_subscribing_again_begins_anew() -> None:
    node = Node(durable=False)
    retain(node, "a", "b")
    peer = node.connect("c")
    first = begin(node, peer)
    assert not node.broker.continue_replay(first, 2, node.now_ns)

    second = begin(node, peer)
    assert node.broker.continue_replay(first, 1, node.now_ns)
    finish(node, second)

    assert payloads(node, peer) == ["old a", "old a", "old b"]


def test_a_session_that_ends_ends_it() -> None:
    node = Node(durable=False)
    retain(node, "a")
    peer = node.connect("c", expiry_s=0)
    replay = begin(node, peer)

    node.disconnect(peer)

    assert node.broker.continue_replay(replay, 1, node.now_ns)
    assert under_way(node.broker) == 0
    node.check()


def test_an_ended_subscription_is_given_nothing_before_a_new_message() -> None:
    node = Node(durable=False)
    retain(node, "a")
    unsubscribed, gone, back = node.connect("u"), node.connect("g", expiry_s=0), node.connect("b")
    for peer in (unsubscribed, gone, back):
        begin(node, peer)
    node.unsubscribe(unsubscribed, "#")
    node.disconnect(gone)
    assert node.broker.continue_replay(begin(node, back), 100, node.now_ns)

    node.publish(node.connect("other"), "a", b"new a")

    assert under_way(node.broker) == 0
    assert payloads(node, unsubscribed) == []
    assert payloads(node, back) == ["old a", "new a"]
    assert node.broker.account.matched == 2


def test_a_filter_that_fails_before_a_new_message_harms_only_its_client() -> None:
    node = Node(durable=False)
    publisher = node.connect("publisher")
    failing = Message("a", b"old a", 0, True, node.now_ns, user_properties=BROKEN)
    node.broker.route(failing, node.now_ns)
    picky, plain = node.connect("picky"), node.connect("plain")
    begin(node, picky, terms=Terms(where="b > 1"))
    begin(node, plain)

    node.publish(publisher, "a", b"new a", qos=1)

    [fault] = node.broker.take_faults()
    assert (fault.client_id, fault.connection) == ("picky", picky.number)
    assert under_way(node.broker) == 1
    assert payloads(node, plain) == ["old a", "new a"]
    assert [packet.kind for packet in publisher.packets] == ["CONNACK", "PUBACK"]


def test_what_is_given_keeps_to_the_terms_of_the_subscription() -> None:
    node = Node(durable=False)
    peer = node.connect("c")
    node.publish(peer, "mine", b"mine", retain=True)
    retain(node, "other")
    replay = begin(node, peer, no_local=True)

    node.publish(peer, "mine", b"again")
    finish(node, replay)

    assert payloads(node, peer) == ["old other"]
