"""A publisher that repeats one topic: whatever changes between two of its messages counts for the second.

The rights and the match of the last topic are remembered by the topic object itself, which a publisher's
packets share. So every message here has the same one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.broker_doubles import Node, Peer

from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms

TOPIC = "plant/pressure"


class House:
    """A publisher that has sent one message, and a reader that got it."""

    def __init__(self, topic_filter: str = TOPIC) -> None:
        self.node = Node(durable=False)
        self.publisher = self.node.connect("publisher")
        self.reader = self.node.connect("reader")
        self.other = self.node.connect("other")
        self.node.subscribe(self.reader, topic_filter)
        assert self.readers() == ["reader"]

    def readers(self, payload: bytes = b'{"v": 1}', *, retain: bool = False) -> list[str]:
        """Publish another message on the topic; return who got it."""
        self.node.publish(self.publisher, TOPIC, payload, retain=retain)
        self.node.settle()
        self.node.check()
        return [peer.client_id for peer in (self.reader, self.other) for _ in taken(peer)]

    def allow(self, *rules: AccessRule) -> None:
        self.node.broker.set_access(AccessList(list(rules)), self.node.now_ns)


def taken(peer: Peer) -> list[bytes]:
    return [packet.payload for packet in peer.take() if packet.kind == "PUBLISH"]


@pytest.mark.parametrize("topic_filter", [TOPIC, "plant/+", "#", f"$share/group/{TOPIC}", "$share/group/#"])
def test_an_unsubscribe_counts_at_once(topic_filter: str) -> None:
    house = House(topic_filter)

    house.node.unsubscribe(house.reader, topic_filter)

    assert house.readers() == []


@pytest.mark.parametrize(
    ("topic_filter", "terms", "readers"),
    [
        (TOPIC, Terms(), ["reader", "other"]),
        ("+/pressure", Terms(), ["reader", "other"]),
        (TOPIC, Terms(where="v = 1"), ["reader", "other"]),
        (TOPIC, Terms(where="v = 2"), ["reader"]),
        (TOPIC, Terms(name="second"), ["reader", "other"]),
        (f"$share/group/{TOPIC}", Terms(), ["reader", "other"]),
    ],
)
def test_a_subscription_counts_at_once(topic_filter: str, terms: Terms, readers: list[str]) -> None:
    house = House()

    house.node.subscribe(house.other, topic_filter, terms=terms)

    assert house.readers() == readers


def test_a_subscription_that_is_replaced_has_its_new_terms_at_once() -> None:
    house = House()

    house.node.subscribe(house.reader, TOPIC, terms=Terms(where="v > 5"))

    assert house.readers(b'{"v": 5}') == []
    assert house.readers(b'{"v": 6}') == ["reader"]


def test_members_of_a_shared_group_take_turns_on_a_repeated_topic() -> None:
    house = House(f"$share/group/{TOPIC}")
    house.node.subscribe(house.other, f"$share/group/{TOPIC}")

    found = [house.readers() for _ in range(4)]

    assert sorted(found) == [["other"]] * 2 + [["reader"]] * 2
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "end",
    [
        lambda house: house.node.disconnect(house.reader, expiry_s=0),
        lambda house: house.node.connect("reader", clean=True),
    ],
    ids=["session ends", "take-over with a clean start"],
)
def test_the_end_of_a_session_counts_at_once(end: Callable[[House], None]) -> None:
    house = House()
    house.reader.session.expiry_interval_s = 0

    end(house)

    assert house.readers() == []


def test_a_take_over_of_the_reader_keeps_its_subscription() -> None:
    house = House()

    house.reader = house.node.connect("reader")

    assert house.readers() == ["reader"]


def test_a_take_over_of_the_publisher_has_the_rights_of_its_new_user() -> None:
    house = House()
    house.allow(AccessRule("*", "subscribe", "#", True), AccessRule("good", "publish", "#", True))
    house.node.access = AccessList([])

    house.publisher = house.node.connect("publisher", user="good")
    assert house.readers() == ["reader"]
    house.publisher = house.node.connect("publisher", user="bad", clean=True)
    assert house.readers() == []


def test_new_access_rules_count_at_once_for_the_publisher() -> None:
    house = House()
    reading = AccessRule("*", "subscribe", "#", True)

    house.allow(reading)
    assert house.readers() == []
    assert house.node.broker.counters.refused[Reason.NOT_AUTHORIZED.value] == 1

    house.allow(reading, AccessRule("*", "publish", TOPIC, True))
    assert house.readers() == ["reader"]


def test_new_access_rules_count_at_once_for_the_reader() -> None:
    house = House()

    house.allow(AccessRule("*", "publish", "#", True))

    assert house.readers() == []


def test_a_message_that_differs_only_in_its_retain_flag_is_retained() -> None:
    house = House()

    assert house.readers(b"kept", retain=True) == ["reader"]
    assert house.readers(b"passing") == ["reader"]
    house.node.subscribe(house.other, TOPIC)
    house.node.settle()
    assert taken(house.other) == [b"kept"]

    assert house.readers(b"", retain=True) == ["reader", "other"]
    house.node.unsubscribe(house.other, TOPIC)
    house.node.subscribe(house.other, TOPIC)
    house.node.settle()
    assert taken(house.other) == []


def test_a_subscription_of_another_broker_is_found_at_once() -> None:
    house = House()
    index = house.node.broker._index
    assert not index.match(TOPIC).has_remote()
    far = Subscription(client_id="far", topic_filter=TOPIC)
    far.home = "elsewhere"

    index.insert(far)
    assert index.match(TOPIC).remote == [far]
    index.remove(far)
    assert not index.match(TOPIC).has_remote()
