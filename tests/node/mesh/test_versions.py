"""A broker and hand-made neighbours: of version 0, which greets without one, and of version 99."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.peer import TIMEOUT_S, Peer, join, props

from timebound.linking.codec import ADVERTISEMENTS_TOPIC, BROKER_PROPERTY, HELLO_TOPIC, LEVELS_TOPIC
from timebound.linking.greeting import MESH_VERSION, VERSION_PROPERTY
from timebound.wire.packets import Ack, Connack, Connect, Publish, make_publish

CONFIG = """
node_name = "valley"
[[listeners]]
port = 0
[[neighbours]]
name = "hill"
"""
VERSIONS = pytest.mark.parametrize("version", [None, "0", "1", "99"])


@pytest.fixture
def valley(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    process = start_broker(CONFIG)
    yield process
    process.check()


class Hill:
    """A neighbour whose every packet the test writes; it confirms what it gets."""

    def __init__(self, port: int, version: str | None, *more: tuple[str, str]) -> None:
        self.peer = Peer(port)
        greeting = [(BROKER_PROPERTY, "hill"), *more]
        if version is not None:
            greeting.append((VERSION_PROPERTY, version))
        self.peer.send(Connect("broker-hill", properties=props(user_properties=greeting)))
        self.connack = self.peer.expect(Connack)

    def ask(self, topic: str, payload: bytes = b"", **values: object) -> Ack:
        """Send a QoS 1 packet; gives its confirmation. Hellos that come before it are confirmed."""
        packet_id = self.peer.publish(topic, payload, 1, **values)
        while True:
            packet = self.peer.receive(TIMEOUT_S)
            if isinstance(packet, Ack):
                assert packet.packet_id == packet_id
                return packet
            assert isinstance(packet, Publish), packet
            if packet.qos:
                self.peer.send(Ack(4, packet.packet_id))


@VERSIONS
def test_a_neighbour_of_any_version_is_linked_and_its_copies_arrive(
    valley: BrokerProcess, version: str | None
) -> None:
    hill = Hill(valley.port, version)
    with hill.peer, join(valley.port) as client:
        client.subscribe("t")
        greeting = dict(hill.connack.properties.user_properties)
        assert hill.connack.reason_code == 0
        assert greeting == {BROKER_PROPERTY: "valley", VERSION_PROPERTY: str(MESH_VERSION)}

        assert hill.ask(HELLO_TOPIC).reason_code == 0
        copy = [("mesh", "hill 5.1 0ns 1 * valley 0 someone")]
        assert hill.ask("t", b"over the hill", user_properties=copy).reason_code == 0

        assert client.expect(Publish).payload == b"over the hill"
        valley.wait_logged(f"(mesh protocol {version or 0})")


def test_what_version_99_sends_is_answered_logged_once_and_does_not_end_the_link(
    valley: BrokerProcess,
) -> None:
    unknown = (
        "control topic '$timebound/mesh/packs'",
        "further fields in an advertisement of kind 0",
        "advertisements of kind 7",
        "level 9",
        "property 'colour' on topic '$timebound/mesh/hello'",
        "property 'timebound-packs' of the greeting",
    )
    for _ in range(2):  # once, also if the link is opened again
        hill = Hill(valley.port, "99", ("timebound-packs", "yes"))
        with hill.peer:
            for _ in range(3):
                answer = hill.ask("$timebound/mesh/packs", b"??")
                assert answer.reason_code == 0x83
                assert answer.reason_string == "unknown control topic '$timebound/mesh/packs'"
                hill.peer.send(make_publish("$timebound/mesh/packs", b"QoS 0 has no answer"))
                facts = b'[[0,"hill","swamp","",1,1,[0.1,0.0,0.0],null,"more"],[7,"hill","x","",1,1]]'
                assert hill.ask(ADVERTISEMENTS_TOPIC, facts).reason_code == 0
                assert hill.ask(LEVELS_TOPIC, b'{"swamp": 9}').reason_code == 0
                assert hill.ask(HELLO_TOPIC, user_properties=[("colour", "red")]).reason_code == 0

    for what in unknown:
        text = f"broker 'hill' (mesh protocol 99) sent what this broker cannot use: {what}"
        valley.wait_logged(text)
        assert valley.log().count(text) == 1


def test_a_refusal_by_the_neighbour_is_logged(valley: BrokerProcess) -> None:
    hill = Hill(valley.port, "99")
    with hill.peer:
        hello = hill.peer.expect(Publish)

        hill.peer.send(Ack(4, hello.packet_id, 0x83, "no hellos any more"))

        valley.wait_logged("refusal of a packet: 'no hellos any more' (0x83)")
        assert hill.ask(HELLO_TOPIC).reason_code == 0


def test_a_version_that_is_no_number_is_refused_with_the_reason(valley: BrokerProcess) -> None:
    hill = Hill(valley.port, "new")
    with hill.peer:
        assert hill.connack.reason_code == 0x83
        assert "property 'timebound-mesh' is 'new'" in (hill.connack.properties.reason_string or "")
