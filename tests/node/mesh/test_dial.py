"""Connections that this broker opens to neighbours: the handshake, silence, failures, and trying again."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.linking.test_mesh import start
from tests.node.mesh.doubles import NEEDS_PLAIN, SECOND, VirtualNode
from tests.node.mesh.wires import StillDriver, Wire

from timebound.config.values import NeighbourConfig, NeighbourTlsConfig
from timebound.errors import ConfigError
from timebound.linking.codec import BROKER_PROPERTY, HELLO_TOPIC, link_packet_size_max
from timebound.linking.greeting import MESH_VERSION, VERSION_PROPERTY
from timebound.node.mesh.connection import LinkConnection
from timebound.node.mesh.dial import RETRY_S_MAX, RETRY_S_MIN, Dialled, Dialler, client_context, read_password
from timebound.wire.codec import encode
from timebound.wire.packets import Ack, Connack, Connect, Disconnect, Pingresp, Publish, make_publish
from timebound.wire.properties import Properties
from timebound.wire.reasons import ReasonCode


class Call:
    """A connection of broker a to b, that is not linked yet."""

    def __init__(self, **config: Any) -> None:
        nodes = start({("a", "b"): 10_000})
        nodes.cut("a", "b")
        self.node: VirtualNode = nodes.nodes["a"]
        self.mesh = self.node.mesh
        self.driver = StillDriver(self.node.broker)
        self.wire = Wire()
        config = {"name": "b", "host": "h", **config}
        self.dialled = Dialled(self.mesh, NeighbourConfig(**config), self.driver, b"secret")
        self.dialled.connection_made(self.wire)

    def connack(self, code: int = 0, name: str = "b", **granted: int) -> None:
        properties = Properties()
        for key, value in granted.items():
            setattr(properties, key, value)
        if name:
            properties.user_properties.append((BROKER_PROPERTY, name))
        self.dialled.data_received(encode(Connack(False, code, properties), 5))


def test_a_broker_introduces_itself_as_one_and_with_its_limits() -> None:
    call = Call(user="a-user", keep_alive_s=3)

    [connect] = call.wire.packets()

    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.keep_alive) == ("broker-a", 3)
    assert (connect.username, connect.password) == ("a-user", b"secret")
    assert connect.properties.user_properties == [
        (BROKER_PROPERTY, "a"),
        (VERSION_PROPERTY, str(MESH_VERSION)),
    ]
    assert connect.properties.maximum_packet_size == link_packet_size_max(10_000)
    assert call.driver.connections == {7: call.dialled}


def test_the_expected_broker_is_linked_and_sent_a_hello() -> None:
    call = Call()
    call.wire.packets()

    call.connack(receive_maximum=5, maximum_packet_size=70_000)

    [hello] = call.wire.packets()
    assert isinstance(hello, Publish)
    assert hello.topic == HELLO_TOPIC
    link = call.mesh.links["b"]
    assert (link.is_dialled, link.packet_size_max) == (True, 70_000)
    assert call.dialled.failure == ""
    assert call.driver.turns > 0


@pytest.mark.parametrize(
    ("code", "name", "failure"),
    [
        (0, "c", "expected broker 'b', but the peer is 'c'"),
        (0, "", "expected broker 'b', but the peer is ''"),
        (0x87, "b", "'b' refused the link: reason code 0x87"),
    ],
)
def test_any_other_answer_ends_the_connection(code: int, name: str, failure: str) -> None:
    call = Call()
    call.wire.packets()

    call.connack(code, name)

    assert failure in call.dialled.failure
    assert "b" not in call.mesh.links
    [packet] = call.wire.packets()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == ReasonCode.UNSPECIFIED_ERROR  # a client has none that is nearer
    assert call.wire.is_closing()


def test_a_packet_that_is_no_answer_ends_the_connection() -> None:
    call = Call()

    call.dialled.data_received(encode(Pingresp(), 5))

    assert "'b' did not answer CONNECT" in call.dialled.failure


def test_a_connection_gives_way_to_one_that_the_neighbour_of_the_lesser_name_opened() -> None:
    nodes = start({("a", "b"): 10_000})
    mesh = nodes.nodes["b"].mesh
    known = mesh.links["a"]
    driver, wire = StillDriver(nodes.nodes["b"].broker), Wire()
    dialled = Dialled(mesh, NeighbourConfig("a", host="h"), driver, None)
    dialled.connection_made(wire)
    properties = Properties()
    properties.user_properties.append((BROKER_PROPERTY, "a"))

    dialled.data_received(encode(Connack(False, 0, properties), 5))

    assert mesh.links["a"] is known
    assert wire.is_closing()
    assert dialled.failure == ""  # nothing to try again


def test_the_keep_alive_of_the_neighbour_counts() -> None:
    call = Call(keep_alive_s=4)
    call.connack(server_keep_alive=100)

    call.wire.protocol.patrol(100 * SECOND)

    assert not call.wire.is_aborted


def test_a_neighbour_that_does_not_answer_connect_is_given_up() -> None:
    call = Call(keep_alive_s=4)

    call.dialled.patrol(7 * SECOND)
    assert not call.wire.is_aborted
    call.dialled.patrol(7 * SECOND + 1)

    assert call.wire.is_aborted
    assert call.dialled.failure == "CONNECT was not answered in time"


def test_the_dialler_learns_why_a_link_has_ended() -> None:
    call = Call()
    call.connack()

    call.wire.protocol.connection_lost(ConnectionResetError("reset by peer"))

    assert call.dialled.failure == "reset by peer"
    assert call.dialled.ended.is_set()


def test_what_follows_connack_in_one_read_reaches_the_link() -> None:
    call = Call()
    call.wire.packets()
    properties = Properties()
    properties.user_properties.append((BROKER_PROPERTY, "b"))
    data = encode(Connack(False, 0, properties), 5) + encode(
        make_publish(HELLO_TOPIC, b"", 1, packet_id=3), 5
    )

    call.dialled.data_received(data[:-1])
    call.wire.protocol.data_received(data[-1:])

    assert isinstance(call.wire.protocol, LinkConnection)
    ours, answer = call.wire.packets()
    assert isinstance(ours, Publish)
    assert isinstance(answer, Ack)
    assert answer.packet_id == 3


def test_a_client_does_not_say_that_a_server_shuts_down() -> None:
    call = Call()
    call.wire.packets()

    call.dialled.close(ReasonCode.SERVER_SHUTTING_DOWN, "the broker stops")
    call.dialled.close(0, "again")

    [packet] = call.wire.packets()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == ReasonCode.NORMAL_DISCONNECTION
    assert packet.properties.reason_string == "the broker stops"


@NEEDS_PLAIN
def test_an_error_of_this_brokers_own_goes_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call()

    def fail(name: str) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(call.mesh, "gives_way", fail)
    call.connack()

    assert [str(error) for error in call.driver.failures] == ["a bug"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def test_a_neighbour_that_does_not_answer_is_tried_less_and_less_often_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = Call()
    config = NeighbourConfig("b", host="127.0.0.1", port=free_port())
    dialler = Dialler(call.mesh, config, call.driver)

    waits = []
    with caplog.at_level(logging.WARNING):
        for _ in range(8):
            await dialler._dial()
            waits.append(dialler._retry_s)

    assert waits[:3] == [2 * RETRY_S_MIN, 4 * RETRY_S_MIN, 8 * RETRY_S_MIN]
    assert waits[-1] == RETRY_S_MAX
    assert caplog.text.count("no link to broker 'b'") == 1


async def test_a_link_is_opened_and_opened_again_when_it_ends() -> None:
    call = Call()
    accepted: list[asyncio.StreamWriter] = []
    again = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.read(1)
        properties = Properties()
        properties.user_properties.append((BROKER_PROPERTY, "b"))
        writer.write(encode(Connack(False, 0, properties), 5))
        if len(accepted) == 2:
            again.set()
            await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dialler = Dialler(call.mesh, NeighbourConfig("b", host="127.0.0.1", port=port), call.driver)
    running = asyncio.create_task(dialler.run(), name="dialler")
    try:
        await asyncio.wait_for(again.wait(), 10)
    finally:
        running.cancel()
        for connection in list(call.driver.connections.values()):
            connection.abort()
        server.close()
        await asyncio.gather(running, server.wait_closed(), return_exceptions=True)
        await asyncio.gather(*[writer.wait_closed() for writer in accepted], return_exceptions=True)

    assert len(accepted) == 2


def test_what_a_link_needs_is_read_before_it_is_dialled(tmp_path: Path) -> None:
    call = Call()
    (tmp_path / "p").write_bytes(b"secret \r\n")
    (tmp_path / "ca").write_text("no certificate")

    assert read_password(NeighbourConfig("b", password_file=tmp_path / "p")) == b"secret "
    assert client_context(NeighbourConfig("b")) is None
    with pytest.raises(ConfigError, match="password for 'b' cannot be read"):
        Dialler(call.mesh, NeighbourConfig("b", password_file=tmp_path / "q"), call.driver)
    with pytest.raises(ConfigError, match="certificates for 'b' cannot be used"):
        Dialler(call.mesh, NeighbourConfig("b", tls=NeighbourTlsConfig(tmp_path / "ca")), call.driver)
