"""Copies of a neighbour at the input: weighed with messages of clients, kept in order, and never lost."""

from __future__ import annotations

from tests.node.clients_in_memory import PlainClient
from tests.node.doubles import Build, House
from tests.peer import props

from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.sessions.session import Session
from timebound.core.values.access import ClientAccess
from timebound.core.values.message import Message
from timebound.node.input.reader import InputReader
from timebound.node.mesh.reader import TAKEN_IN_MAX, NeighbourReader
from timebound.wire.packets import Ack, Connect, Publish, Subscribe, SubscribeEntry, make_publish

FLOOD = 3_000


class Link:
    """A link whose copies are published at this broker, and what became of its socket."""

    def __init__(self, house: House, name: str = "b") -> None:
        self.house = house
        self.session = Session(name, "", ClientAccess([], "", name))
        self.taken: list[tuple[str, int]] = []
        self.is_held = False
        self.errors: list[Exception] = []
        self.reader = NeighbourReader(
            name,
            house.broker.entrance,
            house.broker.counters,
            self.session,
            self._take,
            house.driver.now_ns,
            self._hold,
            self.errors.append,
        )

    def _take(self, copy: Copy, packet_id: int, now_ns: int) -> None:
        self.taken.append((copy.what.message.topic, packet_id))
        self.house.broker.route(copy.what.message, now_ns)

    def _hold(self, is_held: bool) -> None:
        self.is_held = is_held

    def read(self, topic: str, count: int, first: int = 1) -> None:
        """Copies come in, as one read of the socket brings them."""
        now_ns = self.house.driver.now_ns()
        for number in range(first, first + count):
            message = Message(topic, b"%d" % number, 0, False, now_ns, "far")
            self.reader.take_copy(Copy(MeshMessage(message, "b", 10), ("b",), 1, None), number)
        self.house.driver.input.begin(now_ns)
        self.house.driver.input.arrive(self.reader)


def finish(house: House) -> int:
    for count in range(20_000):
        if not house.driver.input.has_more():
            return count
        house.driver.turn()
    raise AssertionError("the input never comes to its end")


def client(house: House, name: str) -> PlainClient:
    found = PlainClient(house, "127.0.0.1")
    found.send(Connect(name))
    return found


def payloads(reader: PlainClient, topic: str) -> list[bytes]:
    return [one.payload for one in reader.packets() if isinstance(one, Publish) and one.topic == topic]


async def test_copies_of_a_lone_neighbour_pass_in_order(build: Build) -> None:
    house = build()
    link = Link(house)

    link.read("t", 100)
    house.driver.turn()
    finish(house)

    assert isinstance(link.reader, InputReader)
    assert link.taken == [("t", number) for number in range(1, 101)]
    assert not link.is_held
    assert not link.reader.has_packets()


async def test_a_turn_that_is_over_leaves_the_rest_and_the_socket_unread(build: Build) -> None:
    house = build()
    link = Link(house)
    house.driver.input.turn_ns = 1

    link.read("t", 1_000)
    house.driver.turn()

    assert 0 < len(link.taken) < 1_000
    assert link.is_held
    finish(house)
    assert [number for _, number in link.taken] == list(range(1, 1_001))
    assert not link.is_held


async def test_after_a_copy_that_met_content_filters_the_clock_is_checked(build: Build) -> None:
    house = build()
    client(house, "picky").send(
        Subscribe(1, [SubscribeEntry("t")], props(user_properties=[("where", "a = 1")]))
    )
    link = Link(house)
    link.read("t", 10)
    now_ns = house.driver.now_ns()

    assert link.reader.pass_through(now_ns, now_ns) == 1

    link.read("u", 10)
    finish(house)
    assert len(link.taken) == 20


async def test_a_flood_from_a_neighbour_keeps_the_bound_of_a_local_flow(build: Build) -> None:
    house = build()
    seen = client(house, "seen")
    seen.send(Subscribe(1, [SubscribeEntry("flow")]))
    press = client(house, "press")
    terms = props(user_properties=[("period", "10ms"), ("delay", "1s"), ("size", "100")])
    press.send(make_publish("$timebound/advertise/flow", b"", 1, packet_id=1, properties=terms))
    finish(house)
    assert [one.reason_code for one in press.packets() if isinstance(one, Ack)] == [0]
    link = Link(house)
    house.driver.input.turn_ns = 1
    house.driver.schedule()
    link.read("far", FLOOD)
    press.send(make_publish("flow", b"now"))
    for _ in range(3):
        house.driver.turn()

    # At most a quantum of each other topic, and one that had begun, go before it: not the whole flood.
    assert payloads(seen, "flow") == [b"now"]
    assert len(link.taken) < 2 * TAKEN_IN_MAX
    finish(house)
    assert len(link.taken) == FLOOD


async def test_a_flood_from_a_client_does_not_starve_the_copies_of_a_neighbour(build: Build) -> None:
    house = build()
    seen = client(house, "seen")
    seen.send(Subscribe(1, [SubscribeEntry("near")]))
    flood = client(house, "flood")
    link = Link(house)
    house.driver.schedule()
    house.driver.input.turn_ns = 1
    flood.send(*[make_publish("near", b"x") for _ in range(1_000)])
    link.read("far", 10)
    turns = 0
    while len(link.taken) < 10:
        house.driver.turn()
        turns += 1
        assert turns < 1_000

    # They take turns, one of each.
    assert len(payloads(seen, "near")) < 100
    finish(house)
    assert len(payloads(seen, "near")) > 900


async def test_a_neighbour_with_full_queues_is_not_read_and_loses_nothing(build: Build) -> None:
    house = build()
    link = Link(house)
    other = client(house, "other")
    house.driver.input.turn_ns = 1
    house.driver.schedule()
    other.send(*[make_publish("near", b"x") for _ in range(500)])
    link.read("far", FLOOD)

    for _ in range(20):
        house.driver.turn()

    entrance = house.broker.entrance
    assert 0 < link.reader.client_input.waiting <= entrance.quanta_max
    assert link.is_held
    finish(house)
    assert [number for _, number in link.taken] == list(range(1, FLOOD + 1))
    assert not link.is_held


async def test_what_was_read_before_a_link_ended_is_taken_in_and_the_next_link_is_a_publisher_of_its_own(
    build: Build,
) -> None:
    house = build()
    old = Link(house)
    other = client(house, "other")
    house.driver.input.turn_ns = 1
    house.driver.schedule()
    other.send(*[make_publish("near", b"x") for _ in range(100)])
    old.read("far", 50)
    house.driver.turn()

    old.reader.end()
    new = Link(house)
    new.read("far", 50, first=51)
    finish(house)

    assert [number for _, number in old.taken] == list(range(1, 51))
    assert [number for _, number in new.taken] == list(range(51, 101))
    assert house.broker.entrance.publishers["\0b"] is new.reader
    new.reader.end()
    assert "\0b" not in house.broker.entrance.publishers
    assert new.reader.client_input.queues == {}


async def test_an_internal_error_is_reported_to_the_link(build: Build) -> None:
    link = Link(build())
    error = RuntimeError("of the input")

    link.reader.failed(error)

    assert link.errors == [error]
