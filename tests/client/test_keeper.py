"""Connecting and staying connected, against a server that refuses, vanishes and comes back."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.client.scripted_server import (
    LIMIT_S,
    ScriptedServer,
    durable,
    limits,
    lone_client,
    options,
    published,
    wait_until,
)
from timebound import Client
from timebound.client.keeper import Keeper
from timebound.client.session import ClientSession
from timebound.errors import ConnectError, NotConnected
from timebound.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
)
from timebound.wire.properties import Properties


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
        with pytest.raises(ConnectError, match="already connected"):
            await client.connect()


async def test_keep_alive_of_the_server_wins() -> None:
    properties = Properties()
    properties.server_keep_alive = 1
    async with ScriptedServer() as server:
        client = Client(port=server.port, keep_alive=0)
        peer = await server.connect(client, Connack(False, 0, properties))

        await peer.expect(Pingreq)
        await client.disconnect()


@pytest.mark.parametrize("reason_code", [0x86, 0x87, 0x8A])
async def test_reconnecting_ends_when_the_reason_of_the_server_rules_it_out(reason_code: int) -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", qos=1))
        await published(peer)
        peer.cut()
        await server.accept(Connack(False, reason_code))

        with pytest.raises(NotConnected, match="refused") as caught:
            await publishing

        assert caught.value.reason_code == reason_code
        await client.disconnect()


async def test_session_taken_over_is_not_taken_back() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)

        peer.send(Disconnect(0x8E))

        with pytest.raises(NotConnected, match="session taken over"):
            await anext(subscription)
        await client.disconnect()


async def test_reconnect_resumes_the_session_under_the_assigned_client_id() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, session_expiry="1h", reconnect_delay_max="10ms")
        peer = await server.connect(client, limits(assigned_client_identifier="auto-1"))
        peer.cut()

        again = await (await server.next_peer()).expect(Connect)

        assert client.client_id == "auto-1"
        assert (again.client_id, again.clean_start) == ("auto-1", False)
        await client.disconnect()


def keeper_of(server: ScriptedServer, **changes: Any) -> tuple[Keeper, ClientSession]:
    chosen = options(server.port, **changes)
    session = ClientSession(chosen, Random(1))
    return Keeper(chosen, session, Random(1)), session


async def test_open_attaches_the_session_and_close_says_goodbye() -> None:
    async with ScriptedServer() as server:
        keeper, session = keeper_of(server)
        peer, _ = await asyncio.gather(server.accept(), keeper.open())
        assert session.connection is not None

        _, goodbye = await asyncio.gather(keeper.close(Disconnect(0x04)), peer.expect(Disconnect))

        assert goodbye.reason_code == 0x04
        assert session.connection is None
        assert await peer.receive() is None


async def test_lost_connections_are_counted_and_replaced_under_the_same_identity() -> None:
    async with ScriptedServer() as server:
        keeper, _ = keeper_of(server, session_expiry_s=60)
        peer, _ = await asyncio.gather(server.accept(), keeper.open())
        connects = []
        for _ in range(2):
            peer.cut()
            peer = await server.next_peer()
            connects.append(await peer.accept(Connack(session_present=True)))
        await wait_until(lambda: keeper.reconnects == 2)

        assert [(one.client_id, one.clean_start) for one in connects] == [("c", False)] * 2
        assert keeper.last_failure is not None
        await keeper.close(Disconnect())


async def test_temporary_refusal_is_tried_again_and_remembered() -> None:
    async with ScriptedServer() as server:
        keeper, session = keeper_of(server)
        peer, _ = await asyncio.gather(server.accept(), keeper.open())
        peer.cut()
        await server.accept(Connack(False, 0x89))

        await server.accept()
        await session.wait_online(LIMIT_S)

        assert keeper.reconnects == 1
        assert keeper.last_failure is not None
        assert keeper.last_failure.reason_code == 0x89
        await keeper.close(Disconnect())


async def test_keeper_that_must_not_reconnect_ends_the_session() -> None:
    async with ScriptedServer() as server:
        keeper, session = keeper_of(server, reconnect=False)
        peer, _ = await asyncio.gather(server.accept(), keeper.open())

        peer.cut()
        await wait_until(lambda: session.failure is not None)

        with pytest.raises(NotConnected, match="closed by the server"):
            await session.wait_online(LIMIT_S)
        await keeper.close(Disconnect())
