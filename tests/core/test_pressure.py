"""Publishers that wait for links: acknowledgements in order, what goes to disk first, QoS 0."""

from __future__ import annotations

from timebound.core.access import AccessList
from timebound.core.durability import Durability
from timebound.core.effects import DropWill
from timebound.core.pressure import Pressure
from timebound.core.session import PUBACK, ReadyList, Reply, Session

FULL_B = {"b": 1}


class World:
    """A session and what it waits for; durable where a test says so."""

    def __init__(self, is_durable: bool = False) -> None:
        self.ready = ReadyList()
        self.durability = Durability(self.ready, is_durable)
        self.pressure = Pressure(self.ready, self.durability)
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
