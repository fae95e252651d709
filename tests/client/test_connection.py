"""One connection against a server that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.client.scripted_server import LIMIT_S, ScriptedPeer, ScriptedServer
from timebound import Client
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
    Unsuback,
)
from timebound.wire.properties import Properties


@asynccontextmanager
async def lone_client(
    server: ScriptedServer, *, keep_alive: int = 60
) -> AsyncIterator[tuple[Client, ScriptedPeer]]:
    """A connected client that does not reconnect, and the server's end."""
    client = Client(port=server.port, reconnect=False, keep_alive=keep_alive)
    peer = await server.connect(client)
    try:
        yield client, peer
    finally:
        await client.disconnect()


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


async def test_server_of_mqtt_311_alone_is_named_as_such() -> None:
    """[MQTT-3.1.2-2] of 3.1.1: such a server answers MQTT 5 in the form of 3.1.1."""
    async with ScriptedServer() as server:
        client = Client(port=server.port)

        async def refuse() -> None:
            (await server.next_peer()).send_bytes(b"\x20\x02\x00\x01")

        with pytest.raises(ConnectError, match="0x84 unsupported protocol version") as refused:
            await asyncio.gather(client.connect(), refuse())

    assert refused.value.reason_code == 0x84


async def test_refused_connect_carries_reason_code_and_string() -> None:
    properties = Properties()
    properties.reason_string = "who are you"
    async with ScriptedServer() as server:
        client = Client(port=server.port)

        with pytest.raises(ConnectError, match=r"0x86 bad user name or password: who are you") as caught:
            await server.connect(client, Connack(False, 0x86, properties))

    assert caught.value.reason_code == 0x86
    assert not client.is_connected


async def test_connect_to_a_closed_port_says_where() -> None:
    async with ScriptedServer() as server:
        port = server.port

    with pytest.raises(ConnectError, match=f"127.0.0.1:{port} cannot be reached"):
        await Client(port=port).connect()


async def test_server_that_never_answers_connect_is_given_up_in_time() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, connect_timeout="50ms")

        with pytest.raises(ConnectError, match=r"did not answer within 0\.05s"):
            await client.connect()


async def test_server_that_closes_before_connack_is_reported() -> None:
    async with ScriptedServer() as server:
        connecting = asyncio.create_task(Client(port=server.port).connect())
        peer = await server.next_peer()
        await peer.receive()
        peer.cut()

        with pytest.raises(ConnectError, match="connection was closed by the server"):
            await connecting


async def test_failed_connect_can_be_tried_again() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        with pytest.raises(ConnectError):
            await server.connect(client, Connack(False, 0x88))

        await server.connect(client)

        assert client.is_connected
        await client.disconnect()


async def test_second_connect_without_disconnect_is_refused() -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, _):
        with pytest.raises(ConnectError, match="connected already"):
            await client.connect()


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


async def test_more_messages_than_our_receive_maximum_end_the_connection() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, reconnect=False, receive_maximum=2)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(1), subscription)
        peer.send(*(Publish("a", b"x", qos=1, packet_id=number) for number in (1, 2, 3)))

        goodbye = await peer.expect(Disconnect)

        assert goodbye.reason_code == 0x93
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


async def test_keep_alive_of_the_server_wins() -> None:
    properties = Properties()
    properties.server_keep_alive = 1
    async with ScriptedServer() as server:
        client = Client(port=server.port, keep_alive=0)
        peer = await server.connect(client, Connack(False, 0, properties))

        await peer.expect(Pingreq)
        await client.disconnect()


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


async def test_unknown_answers_are_harmless() -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        peer.send(Ack(types.PUBACK, 9), Suback(9, [0]), Unsuback(9, [0]), Ack(types.PUBCOMP, 9))
        peer.send(Ack(types.PUBREC, 9), Ack(types.PUBREL, 9))

        release = await peer.expect(Ack)
        complete = await peer.expect(Ack)

        assert (release.kind, release.reason_code) == (types.PUBREL, 0x92)
        assert (complete.kind, complete.reason_code) == (types.PUBCOMP, 0x92)
        assert client.is_connected
