"""Messages whose filters take long are matched in steps; other publishers go on, and nothing else changes."""

from __future__ import annotations

import pytest
from tests.core.broker_doubles import Node, Peer

from timebound.core.matching.gradual import OWN_WAITING_MAX, TESTS_PER_STEP
from timebound.core.sessions.session import PUBREL
from timebound.core.values.message import Message
from timebound.terms import Terms

# Filters of many clients together; each client is within its limit.
READERS = 4
FILTERS = 90
LONG = " AND ".join(f"(a{one} <> 7 OR b{one} IS NULL)" for one in range(49))
STEPS_MIN = READERS * FILTERS * 98 // TESTS_PER_STEP


def crowded(*, durable: bool = False, prefix: str = "") -> tuple[Node, list[Peer]]:
    """Return a broker with readers of `t` whose filters take several steps together."""
    node = Node(durable=durable)
    readers = [node.connect(f"reader-{number}", expiry_s=100) for number in range(READERS)]
    for place, reader in enumerate(readers):
        for number in range(FILTERS):
            terms = Terms(name=str(number), where=f"{LONG} AND x <> {place}.{number:03}")
            assert node.subscribe(reader, f"{prefix}t", terms=terms) == 2
    node.settle()
    for reader in readers:
        reader.take()
    return node, readers


def steps(node: Node) -> int:
    """Wake the broker until nothing is matched any more; return how often."""
    count = 0
    while node.broker.is_matching():
        assert node.broker.next_wakeup_ns() == node.now_ns
        node.broker.wake(node.now_ns)
        count += 1
    node.settle()
    return count


def test_a_message_whose_filters_take_long_is_matched_in_steps() -> None:
    node, readers = crowded()
    publisher = node.connect("publisher")

    node.publish(publisher, "t", b'{"x": 5}')
    node.settle()

    assert [reader.payloads() for reader in readers] == [[]] * READERS
    assert steps(node) >= STEPS_MIN - 1
    assert [reader.payloads() for reader in readers] == [[b'{"x": 5}']] * READERS
    assert node.broker.account.in_time == READERS * FILTERS
    node.check()


def test_other_publishers_go_on_and_later_messages_of_the_same_wait_behind() -> None:
    node, readers = crowded()
    publisher, other = node.connect("publisher"), node.connect("other")
    for topic in ("t", "u"):
        node.subscribe(readers[0], topic, 0, terms=Terms(name="plain"))

    node.publish(publisher, "t", b'{"x": 1}')
    node.publish(publisher, "u", b"later")
    node.publish(other, "u", b"other")
    node.settle()
    assert readers[0].payloads() == [b"other"]

    steps(node)

    assert readers[0].payloads() == [b"other", b'{"x": 1}', b"later"]


def test_publishers_take_turns_so_that_many_messages_of_one_do_not_hold_up_another() -> None:
    node, readers = crowded()
    greedy, modest = node.connect("greedy"), node.connect("modest")
    for number in range(10):
        node.publish(greedy, "t", b'{"x": 0, "n": %d}' % number)
    node.publish(modest, "t", b'{"x": 0, "n": 99}')

    steps(node)

    payloads = readers[0].payloads()
    assert payloads.index(b'{"x": 0, "n": 99}') <= 1
    assert [one for one in payloads if b"99" not in one] == [
        b'{"x": 0, "n": %d}' % number for number in range(10)
    ]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_publisher_is_not_read_and_not_answered_until_its_message_is_matched(qos: int) -> None:
    node, readers = crowded()
    publisher = node.connect("publisher")
    node.settle()
    publisher.take()

    node.publish(publisher, "t", b'{"x": 5}', qos)
    node.settle()

    assert publisher.session.slowed_by
    assert publisher.take() == []

    steps(node)

    assert not publisher.session.is_pressed
    assert [packet.kind for packet in publisher.take()] == [[], ["PUBACK"], ["PUBREC"]][qos]
    assert [reader.payloads() for reader in readers] == [[b'{"x": 5}']] * READERS
    node.check()


@pytest.mark.parametrize("qos", [1, 2])
def test_an_answered_message_is_on_disk(qos: int) -> None:
    node, _ = crowded(durable=True)
    publisher = node.connect("publisher")
    node.settle()
    publisher.take()
    node.publish(publisher, "t", b'{"x": 5}', qos)
    while node.broker.is_matching():
        assert not node.storage.deliveries
        assert not node.storage.inbound
        node.broker.wake(node.now_ns)
        node.flush_all()
        assert publisher.take() == []
    node.settle()

    assert len(publisher.take()) == 1
    assert len(node.storage.deliveries) == READERS
    assert len(node.storage.inbound) == (1 if qos == 2 else 0)


def test_a_qos_2_message_sent_again_while_it_is_matched_arrives_once() -> None:
    node, readers = crowded(durable=True)
    publisher = node.connect("publisher")
    node.publish(publisher, "t", b'{"x": 5}', 2, packet_id=7)
    node.disconnect(publisher)
    again = node.connect("publisher")
    node.publish(again, "t", b'{"x": 5}', 2, packet_id=7)
    node.settle()
    assert "PUBREC" not in again.kinds()

    steps(node)

    assert again.kinds().count("PUBREC") == 1
    assert readers[0].payloads() == [b'{"x": 5}']
    assert node.acknowledge(again, PUBREL, 7)
    node.settle()
    assert not node.storage.inbound


def test_readers_that_leave_meanwhile_get_nothing_and_those_that_come_get_what_is_retained() -> None:
    node, readers = crowded()
    publisher = node.connect("publisher")
    node.publish(publisher, "t", b'{"x": 5}', retain=True)
    node.disconnect(readers[0], expiry_s=0)
    for number in range(FILTERS):
        node.unsubscribe(readers[1], "t", str(number))
    late = node.connect("late")
    assert node.subscribe(late, "t") == 2

    steps(node)

    assert readers[1].payloads() == []
    assert readers[2].payloads() == [b'{"x": 5}']
    assert late.payloads() == [b'{"x": 5}']
    node.check()


def test_shared_groups_are_asked_in_steps_too() -> None:
    node, readers = crowded(prefix="$share/g/")
    publisher = node.connect("publisher")

    node.publish(publisher, "t", b'{"x": 5}')
    node.settle()
    assert steps(node) >= STEPS_MIN - 1

    assert sum([len(reader.payloads()) for reader in readers]) == 1
    node.check()


def test_messages_of_the_broker_itself_that_wait_are_limited() -> None:
    node, readers = crowded()
    for number in range(OWN_WAITING_MAX + 1):
        node.broker.route(Message("t", b'{"x": %d}' % number, 0, False, node.now_ns), node.now_ns)
    node.settle()

    assert readers[0].payloads() == [b'{"x": %d}' % OWN_WAITING_MAX]
    assert node.broker.is_matching()
