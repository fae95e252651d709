"""An error of a broker's own concerns one message or subscription of the mesh, and nobody else notices.

Two brokers, each with its driver, and a link between them in memory. A client at each, the victims, subscribe
and publish to each other over the link, once for each function of the mesh that is called on the way, which
raises for them alone. Beside them a pair exchanges messages over the same link.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from tests.node import test_isolation
from tests.node.clients_in_memory import PlainClient
from tests.node.doubles import House
from tests.node.test_isolation import Owner, Thrower, owners_in
from tests.node.victim_life import VICTIM, DirectLoop, terms
from tests.peer import props

from timebound.config.limits import Limits
from timebound.config.mesh import NeighbourConfig
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.flooding import LinkStateAdvertisement
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.member import Member, SendAdvertisement
from timebound.core.mesh.message import Copy, InTransit, MeshMessage, Placement
from timebound.core.mesh.options import MeshOptions, Send
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.linking.greeting import Greeting
from timebound.linking.mesh import Mesh
from timebound.node.mesh.connection import Handshake, LinkConnection
from timebound.units import SECOND
from timebound.version import is_compiled
from timebound.wire.codec import Decoder
from timebound.wire.packets import Ack, Connect, Publish, Subscribe, SubscribeEntry, Unsubscribe, make_publish

ROOMS = ("timebound.core.mesh", "timebound.linking", "timebound.node.mesh")
# Functions that hold a guard themselves: what they guard is thrown at instead.
GUARDS = {
    "Mesh._encode",
    "Mesh._learn",
    "Mesh._put",
    "Mesh.on_copy",
    "Mesh.on_fault",
    "NeighbourLink._on_copy",
}
# Serves all subscribers of a message at once, so an error concerns none of them: only the message is lost.
GUARDS |= {"SubscriptionTable._group", "SubscriptionTable._grouped"}
# If these never work, what was advertised cannot be withdrawn.
ENDING = {
    "Forwarder.abandon",
    "Interest._change_group",
    "Member._advertise",
    "Member._flood",
    "Member.receive_advertisement",
    "Replica._apply",
    "Replica._own",
    "Replica._remember_withdrawal",
    "Replica._remove",
    "Replica.receive",
    "Replica.unsubscribe",
    "SubscriptionTable.home_of",
    "SubscriptionTable.remove",
    "WatchedIndex.remove",
}
pytestmark = pytest.mark.skipif(is_compiled(), reason="functions of compiled classes cannot be replaced")


class End:
    """One end of a connection in memory: what it writes waits until the other end reads."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self.unread = bytearray()  # written by the other end
        self.far: End = self
        self.is_closed = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        self.far.unread += data

    def read(self) -> bool:
        """Hand over what came, or the end of it; return whether there was any."""
        if self.protocol is None:
            return False
        if self.unread:
            data = bytes(self.unread)
            self.unread.clear()
            self.protocol.data_received(data)
            return True
        if self.is_closed or self.far.is_closed:
            protocol, self.protocol = self.protocol, None
            self.is_closed = True
            protocol.connection_lost(None)
            return True
        return False

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        """What came waits anyway."""

    resume_reading = pause_reading

    def set_write_buffer_limits(self, high: int, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> object:
        return None


class MeshHouse(House):
    """A broker with its driver, as a member of a mesh of two."""

    def __init__(self, name: str, other: str) -> None:
        index = WatchedIndex()
        super().__init__(Limits(), index=index)
        self.driver._loop = DirectLoop()
        self.broker.identify(name, 1)
        strategy = strategy_named(DEFAULT_STRATEGY)
        options = MeshOptions(strategy, is_lossless=True, keeps_fresh=True, grace_ns=30 * SECOND)
        member = Member(name, options, index, MeshAccount(pairs=self.broker.account), 1)
        neighbours = (NeighbourConfig(name=other),)
        self.mesh = self.driver.mesh = Mesh(member, self.broker, neighbours, self.driver)
        self.driver.doors.append(self.door)


class Two:
    """Two brokers and the link between them, a pair across it, and a victim at each."""

    def __init__(self) -> None:
        self.houses = {"a": MeshHouse("a", "b"), "b": MeshHouse("b", "a")}
        self.ends: list[End] = []
        self.links = 0
        self.published = 0
        self.victims: dict[str, PlainClient] = {}
        self.link()
        self.writer, self.near = self.client("a", "writer"), self.client("a", "near")
        self.far = self.client("b", "far")
        for reader in (self.near, self.far):
            reader.send(Subscribe(1, [SubscribeEntry("pair/#", 1)], props()))
        self.settle()
        for client in (self.writer, self.near, self.far):
            client.packets()

    def link(self) -> None:
        """Open the link, as if a had called."""
        self.links += 1
        self.ends = [End(), End()]
        for end, far, (name, house) in zip(self.ends, self.ends[::-1], self.houses.items(), strict=True):
            end.far = far
            other = "b" if name == "a" else "a"
            handshake = Handshake(
                Greeting(other, 1),
                house.driver.next_number(),
                end,
                Decoder(5, is_server=name == "b"),
                keep_alive_ns=0,
                receive_maximum=100,
                packet_size_max=0,
                is_dialled=name == "a",
            )
            LinkConnection(house.driver, house.mesh, handshake, lambda _: None).start(handshake, [])

    def client(self, house: str, name: str) -> PlainClient:
        made = PlainClient(self.houses[house], name)
        made.send(Connect(name))
        return made

    def settle(self) -> None:
        """Until nothing is left to do; a link that has ended is opened again."""
        quiet = 0
        for _ in range(100):
            has_read = [end.read() for end in self.ends]
            for house in self.houses.values():
                house.storage.finish()
                house.driver.turn()
            if all(end.protocol is None for end in self.ends):
                self.link()
            quiet = 0 if any(has_read) else quiet + 1
            if quiet == 3:
                return
        raise AssertionError("it never comes to rest")

    def send(self, client: PlainClient, *packets: Any) -> None:
        client.send(*packets)
        self.settle()

    def step(self, house: str, *packets: Any) -> None:
        """A victim says something, if it still can; then the pair exchanges a message."""
        victim = self.victims[house]
        if not victim.transport.is_closed:
            self.send(victim, *packets)
            for packet in victim.packets():
                if isinstance(packet, Publish) and packet.qos == 1:
                    self.send(victim, Ack(4, packet.packet_id))
        self.exchange()

    def exchange(self) -> None:
        self.published += 1
        self.send(self.writer, make_publish("pair/a", b"%d" % self.published, 1, False, self.published))
        for reader in (self.near, self.far):
            heard = [one for one in reader.packets() if isinstance(one, Publish) and one.topic == "pair/a"]
            payloads = [one.payload for one in heard]
            assert payloads == [b"%d" % self.published], f"noticed: {payloads}"
            self.send(reader, Ack(4, heard[-1].packet_id))
        answers = [one.packet_id for one in self.writer.packets() if isinstance(one, Ack)]
        assert answers == [self.published], "the writer noticed"

    def live(self) -> None:
        """Everything that clients have the mesh do."""
        for name in self.houses:
            self.victims[name] = self.client(name, f"{VICTIM}-{name}")
        for name in self.houses:
            self.step(name, Subscribe(1, [SubscribeEntry(f"victim/{name}/#", 1)], props()))
            self.step(name, Subscribe(2, [SubscribeEntry("pair/#", 1)], terms(("deadline", "5s"))))
            group = terms(("where", "a > 1"))
            self.step(name, Subscribe(3, [SubscribeEntry(f"$share/{VICTIM}/victim/+/shared", 1)], group))
        for name, other in (("a", "b"), ("b", "a")):
            for qos in (0, 1, 2):
                timeout = terms(("timeout", "5s"))
                topic = f"victim/{other}/x"
                self.step(name, make_publish(topic, b'{"a": 2}', qos, qos == 1, 10 + qos if qos else 0))
                self.step(name, make_publish(topic, b'{"a": 2}', qos, False, 20 + qos if qos else 0, timeout))
            self.step(name, Ack(6, 12), Ack(6, 22))
            self.step(name, make_publish(f"victim/{other}/shared", b'{"a": 2}', 1, False, 30))
        self.patrol()
        for end in self.ends:
            end.close()  # the link fails while something is under way
        self.step("a", make_publish("victim/b/x", b"", 1, False, 40))
        for name in self.houses:
            self.step(name, Unsubscribe(4, [f"$share/{VICTIM}/victim/+/shared", "pair/#"]))
        for victim in self.victims.values():
            victim.lose()
            self.settle()
            self.exchange()
        self.patrol()

    def patrol(self) -> None:
        for house in self.houses.values():
            house.mesh.send_delay_reports()
            house.driver.patrol()
        self.settle()
        self.exchange()

    def check(self) -> None:
        """What has to hold once the victims are gone."""
        self.patrol()
        for house in self.houses.values():
            house.broker._check()
            figures = house.mesh.figures()
            assert (figures["waiting"], figures["parked"], figures["links_up"]) == (0, 0, 1), figures
            assert figures["subscriptions"] == 1, figures  # that of the reader at the other broker

    def faults(self) -> int:
        return sum(house.broker.counters.faults for house in self.houses.values())


def concerns(value: object, depth: int = 0) -> bool:
    """Whether a call with this argument is made for a victim."""
    if isinstance(value, (Copy, InTransit)):
        return concerns(value.what)
    if isinstance(value, MeshMessage):
        return concerns(value.message)
    if isinstance(value, Message):
        return concerns(value.publisher)
    if isinstance(value, Subscription):
        return concerns(value.client_id)
    if isinstance(value, Placement):
        return concerns(value.transit)
    if isinstance(value, Send):
        return concerns(value.copy)
    if isinstance(value, Entry):
        return concerns(value.item)
    if isinstance(value, MeshSubscription):
        return concerns(value.client_id)
    if isinstance(value, LinkStateAdvertisement):
        return concerns(value.key[2])
    if isinstance(value, SendAdvertisement):
        return concerns(value.advertisement)
    if isinstance(value, str):
        return value.startswith((VICTIM, f"$share/{VICTIM}"))
    if isinstance(value, (list, tuple)) and depth < 2:
        return any(concerns(item, depth + 1) for item in value)
    return of_a_client(value, depth)


of_a_client = test_isolation.concerns


@pytest.fixture(autouse=True)
def _concerned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_isolation, "concerns", concerns)


def modules() -> Iterator[ModuleType]:
    for room in ROOMS:
        module = importlib.import_module(room)
        for one in pkgutil.walk_packages(module.__path__, f"{room}."):
            yield importlib.import_module(one.name)


def targets() -> list[tuple[Owner, str]]:
    """The functions of the mesh that are called for a victim."""
    owners = [owner for module in modules() for owner in owners_in(module)]
    throwers = [
        Thrower(owner, name, after=False, times=0)
        for owner in owners
        for name in test_isolation.functions_of(owner)
        if f"{owner.__name__}.{name}" not in GUARDS
    ]
    with contextlib.ExitStack() as stack:
        for thrower in throwers:
            stack.enter_context(thrower)
        Two().live()
    return [(thrower.owner, thrower.name) for thrower in throwers if thrower.hits]


async def test_life_without_an_error_goes_well() -> None:
    two = Two()
    two.live()
    two.check()

    assert two.faults() == 0
    assert two.links == 2, "it was cut once"


async def test_error_in_any_function_of_the_mesh_concerns_the_victims_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "timebound.node")
    found = targets()
    noticed = []
    for owner, name in found:
        for after, times in ((False, 1), (True, 1), (False, -1)):
            if times < 0 and f"{owner.__name__}.{name}" in ENDING:
                continue
            with Thrower(owner, name, after=after, times=times) as thrower:
                try:
                    two = Two()
                    two.live()
                    two.check()
                    assert two.faults() or not thrower.hits, "it was not counted"
                except Exception as error:
                    noticed.append(f"{owner.__name__}.{name} (after={after}, times={times}): {error!r}"[:300])

    assert len(found) > 50
    assert not noticed, "\n".join(noticed)
