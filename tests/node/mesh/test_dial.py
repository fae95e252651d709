"""Opening links: what this broker says, whom it accepts as the neighbour, and when it gives a link up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node.doubles import HeldStorage, RecordingTransport
from tests.peer import props

from timebound.config.limits import Limits
from timebound.config.mesh import NeighbourConfig
from timebound.config.tls import NeighbourTlsConfig
from timebound.config.values import Config
from timebound.core.broker import Broker
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.errors import ConfigError
from timebound.linking.codec import BROKER_PROPERTY, HELLO_TOPIC
from timebound.node.driver import Driver
from timebound.node.mesh.dial import Dialled, Dialler, client_context, read_password
from timebound.node.mesh.mesh import Mesh, join_mesh
from timebound.units import SECOND
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Ack, Connack, Connect, Disconnect, Packet, Pingreq, Publish


class ClosingTransport(RecordingTransport):
    """A transport whose other end is a server."""

    def is_closing(self) -> bool:
        return self.is_closed

    def packets(self, version: int = 0) -> list[Packet]:
        decoder = Decoder(version, is_server=True)  # CONNECT tells the version
        found = decoder.feed(bytes(self.written))
        assert decoder.error is None, decoder.error
        return found


class Valley:
    """Broker `valley`, which opens the link to `hill`."""

    def __init__(self) -> None:
        self.neighbour = NeighbourConfig("hill", host="127.0.0.1", user="valley-link", keep_alive_s=4)
        index = WatchedIndex()
        self.storage = HeldStorage()
        broker = Broker(BrokerLimits(), AccessList([]), False, index)
        self.driver = Driver(broker, self.storage, Limits(), asyncio.get_running_loop())
        config = Config(node_name="valley", neighbours=(self.neighbour,))
        self.mesh: Mesh = join_mesh(config, broker, index, self.driver)
        self.driver.mesh = self.mesh

    def dial(self, password: bytes | None = None) -> tuple[Dialled, ClosingTransport]:
        dialled = Dialled(self.mesh, self.neighbour, self.driver, password)
        transport = ClosingTransport()
        dialled.connection_made(transport)
        return dialled, transport


@pytest.fixture
async def valley() -> AsyncIterator[Valley]:
    made = Valley()
    yield made
    made.driver.stop()


def answer(name: str = "hill", reason_code: int = 0, **properties: object) -> bytes:
    packet = Connack(False, reason_code, props(user_properties=[(BROKER_PROPERTY, name)], **properties))
    return encode(packet, 5)


async def test_connect_names_the_broker_and_its_user(valley: Valley) -> None:
    _, transport = valley.dial(b"secret")

    (connect,) = transport.packets()
    assert isinstance(connect, Connect)
    assert (connect.username, connect.password, connect.keep_alive) == ("valley-link", b"secret", 4)
    assert connect.properties.user_properties == [(BROKER_PROPERTY, "valley")]


async def test_a_link_is_open_when_the_expected_broker_answers_and_up_after_its_hello(valley: Valley) -> None:
    dialled, transport = valley.dial()

    dialled.data_received(answer(maximum_packet_size=5_000))
    link = valley.mesh.links["hill"]
    hello = transport.packets()[1]

    assert isinstance(hello, Publish)
    assert (hello.topic, link.is_ready, link.packet_size_max) == (HELLO_TOPIC, False, 5_000)
    dialled.data_received(encode(Ack(4, hello.packet_id), 5))
    assert link.is_ready
    assert valley.mesh.figures()["links_up"] == 1


@pytest.mark.parametrize(
    ("bytes_received", "failure"),
    [
        (answer("swamp"), "expected broker 'hill', but it calls itself 'swamp'"),
        (answer(reason_code=0x87, reason_string="who?"), "'hill' refused the link: who?"),
        (answer(reason_code=0x88), "'hill' refused the link: reason code 0x88"),
        (encode(Publish("t", b"", 0), 5), "'hill' did not answer CONNECT"),
    ],
    ids=["another", "reason", "code", "no-answer"],
)
async def test_any_other_answer_ends_the_connection_with_its_reason(
    valley: Valley, bytes_received: bytes, failure: str
) -> None:
    dialled, transport = valley.dial()

    dialled.data_received(bytes_received)

    assert failure in dialled.failure
    assert transport.is_closed
    assert valley.mesh.links == {}
    last = transport.packets()[-1]
    assert isinstance(last, Disconnect)


async def test_a_link_that_the_neighbour_opened_stays_where_its_name_is_the_lesser(valley: Valley) -> None:
    accepted = valley.mesh.make_link("hill", ClosingCarrier())
    valley.mesh.open(accepted)
    dialled, transport = valley.dial()

    dialled.data_received(answer())

    assert valley.mesh.links["hill"] is accepted
    assert transport.is_closed
    assert dialled.failure == ""


class ClosingCarrier:
    """A connection under a link that the other side opened."""

    def write(self, data: bytes) -> None:
        pass

    def close(self, reason_code: int, reason: str) -> None:
        raise AssertionError(f"closed: {reason}")


async def test_a_lost_connection_takes_its_link_along(valley: Valley) -> None:
    dialled, _ = valley.dial()
    dialled.data_received(answer())

    dialled.connection_lost(OSError("reset"))

    assert valley.mesh.links == {}
    assert valley.driver.connections == {}
    assert dialled.ended.is_set()
    assert dialled.failure == "reset"


async def test_a_silent_neighbour_is_pinged_and_given_up_after_one_and_a_half_times(valley: Valley) -> None:
    dialled, transport = valley.dial()
    dialled.data_received(answer())
    now_ns = valley.driver.now_ns()

    dialled.patrol(now_ns + 3 * SECOND)
    assert isinstance(transport.packets()[-1], Pingreq)
    assert not transport.is_aborted

    dialled.patrol(now_ns + 7 * SECOND)
    assert transport.is_aborted
    assert dialled.failure == "it was silent too long"


async def test_the_keep_alive_of_the_server_counts(valley: Valley) -> None:
    dialled, transport = valley.dial()
    dialled.data_received(answer(server_keep_alive=60))

    dialled.patrol(valley.driver.now_ns() + 7 * SECOND)

    assert not transport.is_aborted


async def test_a_neighbour_is_not_read_while_storage_is_behind(valley: Valley) -> None:
    dialled, transport = valley.dial()
    valley.storage.pending_orders = 1 << 30

    dialled.data_received(answer())
    assert not transport.is_reading

    dialled.read_again()
    assert transport.is_reading


async def test_a_server_that_refuses_is_dialled_again_and_logged_once(
    valley: Valley, caplog: pytest.LogCaptureFixture
) -> None:
    accepted = asyncio.Semaphore(0)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.release()
        await reader.read(1_000)
        writer.write(answer("swamp"))
        await reader.read(1_000)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    neighbour = NeighbourConfig("hill", host="127.0.0.1", port=port)
    task = asyncio.create_task(Dialler(valley.mesh, neighbour, valley.driver).run())
    async with asyncio.timeout(20):
        for _ in range(2):
            await accepted.acquire()
    task.cancel()
    server.close()

    assert caplog.text.count("no link to broker 'hill'") == 1


def test_a_password_is_what_its_file_holds_but_for_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"secret \r\n")

    assert read_password(NeighbourConfig("b", password_file=tmp_path / "p")) == b"secret "
    assert read_password(NeighbourConfig("b")) is None
    with pytest.raises(ConfigError, match=r"neighbours\.password_file: the password for 'b' cannot be read"):
        read_password(NeighbourConfig("b", password_file=tmp_path / "q"))


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")

    with pytest.raises(ConfigError, match="neighbours: certificates for 'b' cannot be used"):
        client_context(NeighbourConfig("b", tls=NeighbourTlsConfig(tmp_path / "ca.pem")))
    assert client_context(NeighbourConfig("b")) is None
