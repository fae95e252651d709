"""Publishing and reconnecting, against a server that loses and resumes sessions as it is told."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.client.scripted_server import (
    LIMIT_S,
    ScriptedServer,
    durable,
    limits,
    options,
    published,
)
from timebound import Client, Subscription
from timebound.client import SubscribeRefused
from timebound.client.keeper import Keeper
from timebound.client.session import ClientSession
from timebound.errors import NotConnected, PublishError
from timebound.wire.packets import (
    Connack,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from timebound.wire.properties import Properties


async def test_message_without_acknowledgement_is_given_up_after_the_operation_timeout() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, operation_timeout="50ms")
        await server.connect(client)

        with pytest.raises(PublishError, match=r"was not acknowledged within 0\.05s"):
            await client.publish("a", qos=1)
        await client.disconnect()


@pytest.mark.parametrize("qos", [0, 1])
async def test_message_that_times_out_before_it_can_be_sent_is_refused_at_once(qos: int) -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        peer.cut()
        await server.next_peer()  # and its CONNECT is never answered

        with pytest.raises((PublishError, NotConnected), match=r"timed out before|within 0\.02s"):
            await client.publish("a", qos=qos, timeout="20ms")
        await client.disconnect()


async def test_publish_fails_after_disconnect_and_before_connect() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        with pytest.raises(NotConnected, match="call connect"):
            await client.publish("a", qos=1)
        await server.connect(client)
        await client.disconnect()

        for qos in (0, 1, 2):
            with pytest.raises(NotConnected, match="disconnect was called"):
                await client.publish("a", qos=qos)


async def test_disconnect_fails_what_waits_and_ends_iteration() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)
        publishing = asyncio.create_task(client.publish("a", qos=1))
        iterating = asyncio.create_task(_collect(subscription))
        await published(peer)

        await client.disconnect()

        with pytest.raises(NotConnected, match="disconnect was called"):
            await publishing
        assert await iterating == []


async def _collect(subscription: Subscription) -> list[bytes]:
    return [message.payload async for message in subscription]


async def test_lost_connection_without_reconnect_fails_iteration_and_publishing() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, reconnect=False)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)
        publishing = asyncio.create_task(client.publish("a", qos=1))
        await published(peer)
        peer.send(Publish("a", b"last"))
        await asyncio.sleep(0)
        assert (await anext(subscription)).payload == b"last"

        peer.cut()

        with pytest.raises(NotConnected, match="closed by the server"):
            await publishing
        with pytest.raises(NotConnected, match="closed by the server"):
            await anext(subscription)
        await client.disconnect()


async def test_qos_0_publisher_is_held_back_while_the_server_does_not_read() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, operation_timeout="100ms")
        peer = await server.connect(client)
        published = 0

        async def flood() -> None:
            nonlocal published
            while published < 100:
                await client.publish("a", b"x" * 1_000_000)
                published += 1

        with pytest.raises(PublishError, match=r"server read nothing for 0\.1s"):
            await flood()

        assert published < 20
        peer.cut()
        await client.disconnect()


async def test_subscriptions_are_made_again_when_the_session_is_lost_and_iteration_goes_on() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, reconnect_delay_max="10ms")
        peer = await server.connect(client)
        subscription = client.subscribe("a/+", where="value > 1", qos=1)
        first, _ = await asyncio.gather(peer.grant(1), subscription)
        peer.send(Publish("a/1", b"before"))
        assert (await anext(subscription)).payload == b"before"
        peer.cut()

        peer = await server.accept(Connack(session_present=False))
        again = await peer.grant(1)
        peer.send(Publish("a/1", b"after"))

        assert (await anext(subscription)).payload == b"after"
        assert again.entries == first.entries
        assert again.properties == first.properties
        await client.disconnect()


async def test_words_of_the_server_when_connecting_and_unsubscribing_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = Properties()
    words.reason_string = "nothing was sent to it"
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client, limits(reason_string="moving at noon"))
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)

        async def answer() -> None:
            packet = await peer.expect(Unsubscribe)
            peer.send(Unsuback(packet.packet_id, [0], words))

        await asyncio.gather(answer(), subscription.unsubscribe())

        assert caplog.messages == ["connected: moving at noon", "unsubscribing: nothing was sent to it"]
        await client.disconnect()


async def test_subscriptions_are_not_made_again_when_the_session_is_present() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)
        peer.cut()

        peer = await server.accept(Connack(session_present=True))
        peer.send(Publish("a", b"x"))
        assert (await anext(subscription)).payload == b"x"
        await client.publish("b")

        assert (await peer.receive()).__class__ is Publish
        await client.disconnect()


async def test_subscribe_that_lost_its_connection_is_answered_on_the_next() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        subscribing = asyncio.create_task(_begin(client.subscribe("a")))
        await peer.expect(Subscribe)
        peer.cut()

        peer = await server.accept(Connack(session_present=True))
        await peer.grant(0)

        await subscribing
        await client.disconnect()


async def _begin(subscription: Subscription) -> None:
    await subscription


async def test_filters_granted_beside_a_refused_one_are_given_back() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscribing = asyncio.create_task(_begin(client.subscribe("a", "b")))
        packet = await peer.expect(Subscribe)
        peer.send(Suback(packet.packet_id, [0, 0x87]))

        with pytest.raises(SubscribeRefused, match="'b' was refused"):
            await subscribing

        assert (await peer.expect(Unsubscribe)).topic_filters == ["a", "b"]
        await client.disconnect()


async def test_unsubscribing_without_a_connection_is_made_up_for_on_the_next() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)
        peer.cut()
        peer = await server.next_peer()
        await subscription.unsubscribe()

        await peer.accept(Connack(session_present=True))

        assert (await peer.expect(Unsubscribe)).topic_filters == ["a"]
        await client.disconnect()


async def test_operation_waits_for_a_connection_that_is_expected() -> None:
    async with ScriptedServer() as server:
        chosen = options(server.port)
        session = ClientSession(chosen, Random(1))
        with pytest.raises(NotConnected, match="call connect"):
            await session.wait_online(LIMIT_S)
        session.begin()
        waiting = asyncio.create_task(session.wait_online(LIMIT_S))
        keeper = Keeper(chosen, session, Random(1))

        await asyncio.gather(server.accept(), keeper.open())

        assert await waiting is session.connection
        await keeper.close(Disconnect())


async def test_connection_that_does_not_come_in_time_is_reported() -> None:
    session = ClientSession(options(1), Random(1))
    session.begin()

    with pytest.raises(NotConnected, match=r"no connection within 0\.01s"):
        await session.wait_online(0.01)


async def test_suback_with_the_wrong_number_of_reason_codes_ends_the_connection() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, reconnect=False)
        peer = await server.connect(client)
        subscribing = asyncio.create_task(_begin(client.subscribe("a", "b")))
        packet = await peer.expect(Subscribe)
        peer.send(Suback(packet.packet_id, [0]))

        with pytest.raises(NotConnected, match="SUBACK has 1 reason codes for 2 topic filters"):
            await subscribing
        await client.disconnect()
