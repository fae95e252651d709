"""Connections that this broker opens to neighbours: the handshake, silence, failures, and trying again."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.node.mesh.doubles import SECOND, VirtualNode
from tests.node.mesh.test_mesh import start

from timebound.config.values import Limits, NeighbourConfig, NeighbourTlsConfig
from timebound.core.broker import Broker
from timebound.errors import ConfigError
from timebound.linking.codec import BROKER_PROPERTY, HELLO_TOPIC, link_packet_size_max
from timebound.node.mesh.dial import RETRY_S_MAX, RETRY_S_MIN, Dialled, Dialler, client_context, read_password
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Disconnect, Packet, Pingreq, Pingresp, Publish
from timebound.wire.properties import Properties
from timebound.wire.reasons import ReasonCode

MILLISECOND = 1_000_000


class StillDriver:
    """A driver whose time is the test's own."""

    def __init__(self, broker: Broker) -> None:
        self.limits = Limits(packet_size_max=10_000)
        self.broker = broker
        self.connections: dict[int, Any] = {}
        self.throttled: list[Any] = []
        self.time_ns = SECOND
        self.is_behind = False
        self.failures: list[Exception] = []
        self.turns = 0

    def next_number(self) -> int:
        return 7

    def now_ns(self) -> int:
        return self.time_ns

    def schedule(self) -> None:
        self.turns += 1

    def is_storage_behind(self) -> bool:
        return self.is_behind

    def remove(self, number: int) -> None:
        self.connections.pop(number, None)

    def failed(self, client: Any, error: Exception) -> None:
        self.failures.append(error)


class Wire:
    """A transport that records; `packets` is what a server would read."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_reading = True
        self.is_aborted = False
        self._is_closed = False
        self._decoder = Decoder(is_server=True)

    def write(self, data: bytes) -> None:
        self.written += data

    def packets(self) -> list[Packet]:
        data = bytes(self.written)
        self.written.clear()
        return self._decoder.feed(data)

    def close(self) -> None:
        self._is_closed = True

    def is_closing(self) -> bool:
        return self._is_closed

    def abort(self) -> None:
        self.is_aborted = True
        self._is_closed = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def get_extra_info(self, name: str) -> object:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


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
    assert connect.properties.user_properties == [(BROKER_PROPERTY, "a")]
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
    assert call.driver.turns == 1


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


def test_the_link_ends_with_its_connection() -> None:
    call = Call()
    call.connack()

    call.dialled.connection_lost(ConnectionResetError("reset by peer"))

    assert "b" not in call.mesh.links
    assert call.driver.connections == {}
    assert call.dialled.failure == "reset by peer"
    assert call.dialled.ended.is_set()


def test_a_silent_neighbour_is_pinged_and_then_given_up() -> None:
    call = Call(keep_alive_s=4)
    call.connack()
    call.wire.packets()

    call.dialled.patrol(2 * SECOND)
    assert call.wire.packets() == []
    call.dialled.patrol(3 * SECOND)
    call.dialled.patrol(3 * SECOND + 1)
    assert [type(packet) for packet in call.wire.packets()] == [Pingreq]
    call.dialled.patrol(7 * SECOND)
    assert not call.wire.is_aborted
    call.dialled.patrol(7 * SECOND + 1)

    assert call.wire.is_aborted
    assert call.dialled.failure == "silent for longer than the keep-alive allows"


def test_the_keep_alive_of_the_neighbour_counts() -> None:
    call = Call(keep_alive_s=4)
    call.connack(server_keep_alive=100)

    call.dialled.patrol(100 * SECOND)

    assert not call.wire.is_aborted


def test_nothing_is_read_while_storage_is_behind() -> None:
    call = Call()
    call.driver.is_behind = True

    call.connack()

    assert call.driver.throttled == [call.dialled]
    assert not call.wire.is_reading
    call.dialled.read_again()
    assert call.wire.is_reading


def test_a_full_transport_pauses_the_link() -> None:
    call = Call()
    call.connack()
    link = call.mesh.links["b"]

    call.dialled.pause_writing()
    assert not link.has_room(SECOND)
    call.dialled.resume_writing()

    assert link.has_room(SECOND)


def test_a_client_does_not_say_that_a_server_shuts_down() -> None:
    call = Call()
    call.wire.packets()

    call.dialled.close(ReasonCode.SERVER_SHUTTING_DOWN, "the broker stops")
    call.dialled.close(0, "again")

    [packet] = call.wire.packets()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == ReasonCode.NORMAL_DISCONNECTION
    assert packet.properties.reason_string == "the broker stops"


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
