"""Connections that name themselves a broker: who becomes a link, who is turned away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess
from tests.node.doubles import Build
from tests.peer import Peer, join, props

from timebound.linking.codec import BROKER_PROPERTY, link_packet_size_max
from timebound.node.clients import neighbour
from timebound.node.clients.handshake import Accepted
from timebound.node.clients.output import CLOSED
from timebound.wire.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Publish

CONFIG = """
node_name = "valley"
[[listeners]]
port = 0
[[neighbour]]
name = "hill"
[limits]
packet_size_max = "64KiB"
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("neighbour"), CONFIG)
    yield process
    process.check()
    assert process.stop() == 0


@pytest.fixture
def valley(process: BrokerProcess) -> Iterator[BrokerProcess]:
    yield process
    process.check()


def greeting(name: str) -> Connect:
    return Connect(f"broker {name}", properties=props(user_properties=[(BROKER_PROPERTY, name)]))


def answer(peer: Peer, name: str) -> Connack:
    peer.send(greeting(name))
    return peer.expect(Connack)


def test_a_configured_neighbour_becomes_a_link_and_learns_name_and_packet_size(valley: BrokerProcess) -> None:
    with Peer(valley.port) as peer:
        connack = answer(peer, "hill")

        assert (connack.reason_code, connack.session_present) == (0, False)
        assert dict(connack.properties.user_properties)[BROKER_PROPERTY] == "valley"
        assert connack.properties.maximum_packet_size == link_packet_size_max(64 * 1024)
        assert peer.expect(Publish).topic == "$timebound/mesh/hello"
        valley.wait_logged("broker 'hill' connected as")


def test_a_broker_that_is_no_neighbour_is_refused_by_name(valley: BrokerProcess) -> None:
    with Peer(valley.port) as peer:
        connack = answer(peer, "swamp")

        assert connack.reason_code == 0x87
        assert "'swamp'" in (connack.properties.reason_string or "")
        assert peer.expect_closed() == []


def test_a_mistake_on_a_link_ends_the_link_and_no_other_connection(valley: BrokerProcess) -> None:
    with Peer(valley.port) as link, join(valley.port) as client:
        assert answer(link, "hill").reason_code == 0

        link.send_bytes(b"\x00\x00")
        last = link.expect_closed()[-1]

        assert isinstance(last, Disconnect)
        assert last.reason_code == 0x81

        client.send(Pingreq())
        assert isinstance(client.expect(Pingresp), Pingresp)


async def test_without_a_mesh_every_broker_is_turned_away(build: Build) -> None:
    house = build()
    connection, transport = house.open()
    packet = greeting("hill")
    accepted = Accepted(packet, packet.client_id, "", house.driver.limits, 0)

    neighbour.accept(connection, accepted, house.driver.now_ns())

    [connack] = transport.packets()
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0x87
    assert "'hill'" in (connack.properties.reason_string or "")
    assert connection.state == CLOSED
    assert connection.neighbour is None
    connection.connection_lost(None)
