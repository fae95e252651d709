"""One connection against a server that does as it is told."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_server import (
    LIMIT_S,
    RecordingReceiver,
    ScriptedServer,
    bare_connection,
    lone_client,
    wait_until,
)
from timebound import Client
from timebound.client.connection import ClientConnection
from timebound.errors import ConnectError, NotConnected
from timebound.wire import packet_types as types
from timebound.wire.packets import (
    Ack,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
)
from timebound.wire.properties import Properties


async def lost(client: Client) -> NotConnected:
    """Publish until the client has noticed the end of its connection; gives its reason."""

    async def publish() -> None:
        while True:
            await client.publish("until/lost")
            await asyncio.sleep(0.01)

    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(NotConnected) as caught:
            await publish()
    return caught.value


async def test_ping_ends_with_the_answer_to_its_own_question() -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        pings = [asyncio.create_task(client.ping()) for _ in range(2)]
        for _ in pings:
            await peer.expect(Pingreq)
        peer.send(Pingresp())
        first = await pings[0]

        assert first > 0
        assert not pings[1].done()

        peer.send(Pingresp(), Pingresp())  # one more than was asked for
        await pings[1]


async def test_ping_raises_the_reason_for_which_the_server_ended_the_connection() -> None:
    properties = Properties()
    properties.reason_string = "no such topic"
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        await client.publish("a")
        ping = asyncio.create_task(client.ping())
        await peer.expect(Publish)
        await peer.expect(Pingreq)
        peer.send(Disconnect(0x90, properties))

        with pytest.raises(NotConnected, match="0x90 topic name invalid: no such topic") as caught:
            await ping

    assert caught.value.reason_code == 0x90


async def test_ping_without_an_answer_ends_with_the_operation_timeout() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, operation_timeout="20ms")
        await server.connect(client)

        with pytest.raises(NotConnected, match="did not answer PINGREQ within"):
            await client.ping()
        await client.disconnect()


async def test_topic_alias_of_the_server_is_resolved() -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        subscription = client.subscribe("a/+")
        _, _ = await asyncio.gather(peer.grant(), subscription)

        peer.send(Publish("a/1", b"x", topic_alias=3), Publish("", b"y", topic_alias=3))

        messages = [await anext(subscription), await anext(subscription)]
        assert [(one.topic, one.payload) for one in messages] == [("a/1", b"x"), ("a/1", b"y")]


@pytest.mark.parametrize(
    ("packet", "reason_code", "text"),
    [
        (Publish("", b"x", topic_alias=3), 0x94, "topic alias 3 was never given a topic"),
        (Publish("a", b"x", topic_alias=65), 0x94, "topic alias 65 is above the maximum of 64"),
        (Connack(), 0x82, "CONNACK is sent a second time"),
    ],
)
async def test_server_that_breaks_the_protocol_is_told_and_left(
    packet: Packet, reason_code: int, text: str
) -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        peer.send(packet)

        goodbye = await peer.expect(Disconnect)
        failure = await lost(client)

    assert goodbye.reason_code == reason_code
    assert goodbye.properties.reason_string == text
    assert failure.reason_code == reason_code
    assert text in str(failure)


async def test_bytes_that_are_no_mqtt_end_the_connection() -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        peer.send_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        assert "server broke the protocol" in str(await lost(client))


async def test_packet_above_our_maximum_size_ends_the_connection() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, reconnect=False, maximum_packet_size=100)
        peer = await server.connect(client)
        peer.send(Publish("a", b"x" * 100))

        goodbye = await peer.expect(Disconnect)

        assert goodbye.reason_code == 0x95
        await client.disconnect()


async def test_reason_of_a_server_disconnect_is_reported() -> None:
    properties = Properties()
    properties.reason_string = "back at noon"
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        peer.send(Disconnect(0x8B, properties))

        failure = await lost(client)

    assert failure.reason_code == 0x8B
    assert "server ended the connection (0x8b server shutting down: back at noon)" in str(failure)


async def test_silent_connection_is_kept_alive_by_pings() -> None:
    async with ScriptedServer() as server, lone_client(server, keep_alive=1) as (client, peer):
        for _ in range(2):
            await peer.expect(Pingreq)
            peer.send(Pingresp())

        assert client.is_connected


async def test_server_that_does_not_answer_a_ping_is_given_up() -> None:
    async with ScriptedServer() as server, lone_client(server, keep_alive=1) as (client, peer):
        await peer.expect(Pingreq)

        assert "did not answer PINGREQ" in str(await lost(client))


async def test_dead_server_is_found_out_while_publishing_to_it() -> None:
    """Sending counts as activity for the server, but says nothing about whether it lives."""
    async with ScriptedServer() as server, lone_client(server, keep_alive=1) as (client, _):
        assert "did not answer PINGREQ" in str(await lost(client))


async def test_disconnect_says_goodbye_after_what_was_published() -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        for number in range(20):
            await client.publish("a", number)
        await client.disconnect(session_expiry="5s", with_will=True)

        payloads = [(await peer.expect(Publish)).payload for _ in range(20)]
        goodbye = await peer.expect(Disconnect)

    assert payloads == [str(number).encode() for number in range(20)]
    assert goodbye.reason_code == 0x04
    assert goodbye.properties.session_expiry_interval == 5


async def test_packets_of_one_turn_leave_in_order_and_before_the_goodbye() -> None:
    async with ScriptedServer() as server, bare_connection(server) as (connection, peer, _):
        for number in range(5):
            connection.send(Publish("a", str(number).encode()))
        connection.close(Disconnect(), NotConnected("over"))
        connection.send(Publish("a", b"after the end"))

        payloads = [(await peer.expect(Publish)).payload for _ in range(5)]
        await peer.expect(Disconnect)

        assert payloads == [b"0", b"1", b"2", b"3", b"4"]
        assert await peer.receive() is None


async def test_large_batch_of_one_turn_arrives_whole() -> None:
    async with ScriptedServer() as server, bare_connection(server) as (connection, peer, _):
        payload = bytes(50_000)
        for _ in range(4):
            connection.send(Publish("a", payload))

        assert [len((await peer.expect(Publish)).payload) for _ in range(4)] == [50_000] * 4


async def test_end_of_a_connection_is_reported_once_with_its_reason() -> None:
    async with ScriptedServer() as server, bare_connection(server) as (connection, peer, receiver):
        ping = connection.ping()
        peer.cut()

        with pytest.raises(NotConnected, match="connection was closed by the server"):
            await ping
        await connection.wait_closed()

        assert receiver.lost_connections == [connection]
        assert "closed by the server" in str(connection.failure)
        assert not connection.is_open


async def test_first_reason_of_an_end_is_the_one_that_counts() -> None:
    async with ScriptedServer() as server, bare_connection(server) as (connection, _, _):
        connection.abort(NotConnected("first"))
        connection.abort(NotConnected("second"))
        await connection.wait_closed()

        assert str(connection.failure) == "first"


async def test_packet_before_connack_ends_the_connection() -> None:
    async with ScriptedServer() as server:
        loop = asyncio.get_running_loop()
        receiver = RecordingReceiver()
        connection = ClientConnection(receiver, 5, packet_size_max=0, topic_alias_maximum=0, loop=loop)
        await loop.create_connection(lambda: connection, "127.0.0.1", server.port)
        (await server.next_peer()).send(Publish("a", b"early"))

        with pytest.raises(ConnectError, match="PUBLISH before CONNACK") as caught:
            async with asyncio.timeout(LIMIT_S):
                await connection.connack
        await connection.wait_closed()

        assert caught.value.reason_code == 0x82
        assert receiver.packets == []


async def test_received_packets_are_handed_over_in_order() -> None:
    async with ScriptedServer() as server, bare_connection(server) as (_, peer, receiver):
        sent: list[Packet] = [Ack(types.PUBACK, 1), Publish("a", b"x"), Suback(2, [0])]
        peer.send(*sent)

        await wait_until(lambda: len(receiver.packets) == 3)

        assert receiver.packets == sent
