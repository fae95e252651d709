"""Publishers that wait for links: acknowledgements in order, what goes to disk first, QoS 0."""

from __future__ import annotations

from typing import Any

import pytest

from timebound.core.account.account import Missed
from timebound.core.broker import Broker
from timebound.core.distribution import MISSED_MAX
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.member import Member
from timebound.core.mesh.options import MeshOptions
from timebound.core.mesh.table import MeshSubscription
from timebound.core.sessions.durability import Durability
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.pressure import Pressure
from timebound.core.sessions.session import PUBACK, ReadyList, Reply, Session
from timebound.core.values.access import AccessList
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.store_orders import DropWill
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms

FULL_B = {"b": 1}


class World:
    """A session and what it waits for; durable where a test says so."""

    def __init__(self, is_durable: bool = False) -> None:
        self.ready = ReadyList()
        self.durability = Durability(self.ready, is_durable)
        self.pressure = Pressure(self.ready, self.durability, Faults())
        self.session = Session("p", "", AccessList([]).for_client("", "p"))
        self.session.connection = 1

    def acknowledge(self, packet_id: int, *homes: str) -> None:
        mark = self.durability.mark()
        self.pressure.acknowledge(self.session, Reply(PUBACK, packet_id), list(homes), mark)

    def answered(self) -> list[int]:
        return [reply.packet_id for reply in self.session.replies]


def test_acknowledgements_wait_for_room_and_keep_their_order() -> None:
    world = World()
    for packet_id, homes in ((1, []), (2, ["b"]), (3, []), (4, ["c"]), (5, [])):
        world.acknowledge(packet_id, *homes)
    assert world.answered() == [1]

    world.pressure.relieve({"b": 1, "c": 1})
    assert world.answered() == [1]
    world.pressure.relieve({"c": 2})
    assert world.answered() == [1, 2, 3]
    world.pressure.relieve({})
    assert world.answered() == [1, 2, 3, 4, 5]
    assert len(world.pressure) == 0


def test_what_was_ordered_into_storage_is_acknowledged_after_room_and_disk() -> None:
    world = World(is_durable=True)
    mark = world.durability.mark()
    world.durability.add(DropWill("p"))
    world.pressure.acknowledge(world.session, Reply(PUBACK, 1), ["b"], mark)
    first = world.durability.take()
    assert first is not None

    world.pressure.relieve({})
    second = world.durability.take()
    assert second is not None
    assert second.is_journaled  # what a journal keeps of it is on disk first, too
    assert world.answered() == []
    world.durability.committed(first)
    world.durability.committed(second)
    assert world.answered() == [1]


def test_a_session_of_qos_0_is_slowed_until_no_home_of_its_messages_is_full() -> None:
    world = World()
    world.pressure.slow(world.session, ["b", "c"])

    world.pressure.relieve(FULL_B)
    assert list(world.session.slowed_by) == ["b"]
    world.ready.take()
    world.pressure.relieve({})
    assert not world.session.slowed_by
    assert world.ready.take() == [world.session]  # so that its socket is read again


def test_nothing_waits_for_a_client_that_has_gone() -> None:
    world = World()
    world.acknowledge(1, "b")
    world.session.connection = 0
    world.session.awaiting.clear()
    world.session.is_pressed = False

    world.acknowledge(2, "b")
    world.pressure.slow(world.session, ["b"])

    assert not world.session.awaiting
    world.pressure.relieve(FULL_B)
    assert len(world.pressure) == 0


# --- a broker whose link to another one is full -------------------------------------------


class FullLink:
    """Broker a, whose link to b takes nothing more; clients of b want `t` and, by a content filter, `f`."""

    def __init__(self) -> None:
        index = WatchedIndex()
        self.broker = Broker(BrokerLimits(), AccessList([]), index=index)
        account = MeshAccount(pairs=self.broker.account)
        options = MeshOptions(strategy_named(DEFAULT_STRATEGY), messages_max=2, is_lossless=True)
        member = Member("a", options, index, account, 1)
        self.broker.join_mesh(member)
        member.add_neighbour("b", LinkDelay(0.001, 1e-8))
        member.link_up("b", 0)
        member.table.insert(MeshSubscription(client_id="s1@b", home="b", topic_filter="t"))
        member.table.insert(
            MeshSubscription(client_id="s2@b", home="b", topic_filter="f", terms=Terms(where="x > 1"))
        )
        self.member = member
        self.last_number = 0
        first = self.connect("first")
        while not member.forwarder.levels():
            self.publish(first, "t", 0)

    def connect(self, client_id: str, expiry_s: int = 0) -> Session:
        self.last_number += 1
        session, _ = self.broker.connect(client_id, "", True, expiry_s, 10, None, self.last_number, 0)
        return session

    def disconnect(self, session: Session) -> None:
        self.broker.disconnect(session, session.connection, True, 0)

    def publish(self, session: Session, topic: str, qos: int, user_properties: Any = ()) -> None:
        message = Message(topic, b"x", qos, False, 0, session.client_id, user_properties=user_properties)
        self.broker.publish(session, message, qos, 0)

    def drain(self) -> None:
        """Send all that waits, and acknowledge what waited for that."""
        while self.member.forwarder.levels():
            for send in self.member.take_sends():
                self.member.link_free(send.neighbour, 0)
        self.broker.relieve_publishers()

    def waiting(self) -> int:
        return len(self.broker._pressure)


@pytest.mark.parametrize("expiry_s", [0, 60])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publishers_that_leave_while_they_wait_are_forgotten(qos: int, expiry_s: int) -> None:
    link = FullLink()
    before = link.waiting()
    for number in range(10):
        session = link.connect(f"p{number}", expiry_s)
        link.publish(session, "t", qos)
        assert session.is_pressed
        assert link.waiting() == before + 1

        link.disconnect(session)

        assert link.waiting() == before
        assert not session.is_pressed
    link.broker._check()


def test_a_publisher_that_is_taken_over_while_it_waits_begins_anew() -> None:
    link = FullLink()
    before = link.waiting()
    link.publish(link.connect("p", 60), "t", 1)

    again = link.connect("p", 60)

    assert link.waiting() == before
    assert not again.is_pressed
    link.publish(again, "t", 1)
    link.drain()
    assert [reply.packet_id for reply in again.replies] == [1]


def test_notices_of_drops_do_not_change_what_a_publisher_waits_for() -> None:
    link = FullLink()
    watcher = link.connect("watcher")
    link.broker.subscribe(watcher, Subscription(client_id="watcher", topic_filter="$timebound/drops/#"), 0)
    # So many were missed that they are told before the message is through.
    absent = link.connect("absent", 60)
    link.broker.subscribe(absent, Subscription(client_id="absent", topic_filter="u"), 0)
    link.disconnect(absent)
    for _ in range(MISSED_MAX + 1):
        link.broker.account.missed.append(
            Missed("absent", Message("u", b"", 0, False, 0), None, Reason.QUOTA, 0)
        )
    publisher = link.connect("p")

    link.publish(publisher, "t", 1)

    assert not link.broker.account.missed
    assert link.member.pressed == ["b"]
    assert publisher.is_pressed
    assert not publisher.replies


def test_a_message_that_the_mesh_fails_on_does_not_wait_for_what_the_last_one_was_for() -> None:
    link = FullLink()
    link.publish(link.connect("p"), "t", 0)
    innocent = link.connect("innocent")

    link.publish(innocent, "f", 0, user_properties=(("x",),))  # its filter raises

    assert [fault.client_id for fault in link.broker.take_faults()] == ["the mesh"]
    assert not innocent.is_pressed
    assert link.broker.pressed() == []
