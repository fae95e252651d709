"""Connections that name themselves a broker: who becomes a link, who is turned away."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, ShareOver, StartBroker
from tests.node.doubles import Build
from tests.peer import TIMEOUT_S, Peer, join, props

from timebound.linking.codec import BROKER_PROPERTY, HELLO_TOPIC, link_packet_size_max
from timebound.node.clients import neighbour
from timebound.node.clients.handshake import Accepted
from timebound.node.clients.output import CLOSED
from timebound.node.login.passwords import PasswordFile
from timebound.wire.codec import encode
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    make_publish,
)

CONFIG = """
node_name = "valley"
[[neighbour]]
name = "hill"
[limits]
packet_size_max = "64KiB"
"""


@pytest.fixture
def valley(share_over: ShareOver) -> BrokerProcess:
    """A broker with a neighbour, over each of the four transports in turn."""
    return share_over(CONFIG)


def greeting(name: str) -> Connect:
    return Connect(f"broker {name}", properties=props(user_properties=[(BROKER_PROPERTY, name)]))


def answer(peer: Peer, name: str) -> Connack:
    peer.send(greeting(name))
    return peer.expect(Connack)


def confirmed(peer: Peer, count: int) -> list[int]:
    """Packet ids of the next confirmations; hellos and advertisements come between."""
    found: list[int] = []
    while len(found) < count:
        packet = peer.receive(TIMEOUT_S)
        assert isinstance(packet, Ack | Publish), packet
        if isinstance(packet, Ack):
            found.append(packet.packet_id)
    return found


def test_a_configured_neighbour_becomes_a_link_and_learns_name_and_packet_size(valley: BrokerProcess) -> None:
    with Peer(valley.port) as peer:
        connack = answer(peer, "hill")

        assert (connack.reason_code, connack.session_present) == (0, False)
        assert dict(connack.properties.user_properties)[BROKER_PROPERTY] == "valley"
        assert connack.properties.maximum_packet_size == link_packet_size_max(64 * 1024)
        assert peer.expect(Publish).topic == "$timebound/mesh/hello"
        valley.wait_logged("broker 'hill' connected as")


@pytest.mark.parametrize("cut", [0, 1, 5, 40])
def test_what_is_sent_with_connect_is_not_lost(valley: BrokerProcess, cut: int) -> None:
    hellos = b"".join(encode(make_publish(HELLO_TOPIC, b"", 1, packet_id=number), 5) for number in (5, 6, 7))
    data = encode(greeting("hill"), 5) + hellos
    with Peer(valley.port) as peer:
        peer.send_bytes(data[: len(data) - cut])
        if cut:
            assert peer.expect(Connack).reason_code == 0
            peer.send_bytes(data[len(data) - cut :])
        else:
            peer.expect(Connack)

        assert confirmed(peer, 3) == [5, 6, 7]


def test_a_large_packet_and_many_small_ones_pass_a_link(valley: BrokerProcess) -> None:
    with Peer(valley.port) as link, join(valley.port) as client:
        client.subscribe("field/#")
        assert answer(link, "hill").reason_code == 0
        frames = []
        for number in range(1, 501):
            size = 60_000 if number == 250 else 10
            mesh = props(
                user_properties=[("mesh", f"hill {int(valley.port)}.{number} 0ns 1 * valley 0 someone")]
            )
            packet = make_publish(f"field/{number}", b"x" * size, 1, packet_id=number, properties=mesh)
            frames.append(encode(packet, 5))

        link.send_bytes(b"".join(frames))

        assert [client.expect(Publish).topic for _ in range(500)] == [f"field/{n}" for n in range(1, 501)]
        assert confirmed(link, 500) == list(range(1, 501))


def test_a_link_that_the_broker_ends_gets_the_reason(valley: BrokerProcess) -> None:
    with Peer(valley.port) as first, Peer(valley.port) as second:
        assert answer(first, "hill").reason_code == 0

        assert answer(second, "hill").reason_code == 0

        last = first.expect_closed()[-1]
        assert isinstance(last, Disconnect)
        assert last.properties.reason_string == "replaced by another connection"


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

    neighbour.accept(connection, accepted, [])

    [connack] = transport.packets()
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0x87
    assert "'hill'" in (connack.properties.reason_string or "")
    assert connection.state == CLOSED
    connection.connection_lost(None)


def test_what_is_sent_before_the_password_is_checked_is_not_lost(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    passwords = PasswordFile(users)
    passwords.set("hill", "secret")
    passwords.save()
    text = f'[security]\npassword_file = "{users}"\n[[listeners]]\nport = 0\n'
    valley = start_broker(f'node_name = "valley"\n{text}[[neighbours]]\nname = "hill"\n')
    packet = greeting("hill")
    packet.username, packet.password = "hill", b"secret"
    with Peer(valley.port) as peer:
        hellos = [encode(make_publish(HELLO_TOPIC, b"", 1, packet_id=number), 5) for number in (5, 6)]

        peer.send_bytes(encode(packet, 5) + hellos[0] + hellos[1][:4])
        assert peer.expect(Connack).reason_code == 0
        peer.send_bytes(hellos[1][4:])

        assert confirmed(peer, 2) == [5, 6]
