"""Subscriptions and incoming messages, against a server that does as it is told."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_server import (
    ScriptedServer,
    durable,
    limits,
    published,
    wait_until,
)
from timebound import Client, Subscription
from timebound.client import SubscribeRefused
from timebound.errors import SubscribeError
from timebound.wire import packet_types as types
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from timebound.wire.properties import Properties


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


async def test_words_of_the_server_about_a_granted_subscription_are_kept_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = Properties()
    words.reason_string = "did you mean 'deadline'?"
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscription = client.subscribe("a", "b")

        async def grant() -> None:
            packet = await peer.expect(Subscribe)
            peer.send(Suback(packet.packet_id, [0, 0], words))

        await asyncio.gather(grant(), subscription)

        assert subscription.reason_string == "did you mean 'deadline'?"
        assert caplog.messages == ["subscription to a, b: did you mean 'deadline'?"]
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


async def test_refused_subscription_carries_reason_and_position() -> None:
    properties = Properties()
    properties.reason_string = "property 'where': expected a value at character 8: 'value >> 90'"
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscription = client.subscribe("a", where="value >> 90")
        subscribing = asyncio.create_task(_begin(subscription))
        packet = await peer.expect(Subscribe)
        peer.send(Suback(packet.packet_id, [0x83], properties))

        with pytest.raises(SubscribeRefused, match="expected a value at character 8") as caught:
            await subscribing

        assert caught.value.reason_code == 0x83
        assert caught.value.position == 7
        assert caught.value.reason_string == properties.reason_string
        with pytest.raises(SubscribeError):
            await anext(subscription)
        await client.disconnect()


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


async def test_second_subscription_to_a_filter_is_refused() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        await asyncio.gather(peer.grant(), client.subscribe("a"))

        with pytest.raises(SubscribeError, match="already subscribed to 'a'"):
            await client.subscribe("a", where="x = 1")
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


async def test_leaving_the_context_unsubscribes() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)

        async def answer() -> list[str]:
            await peer.grant()
            packet = await peer.expect(Unsubscribe)
            peer.send(Unsuback(packet.packet_id, [0]))
            return packet.topic_filters

        answering = asyncio.create_task(answer())
        async with client.subscribe("a") as subscription:
            assert subscription.granted_qos == (0,)

        assert await answering == ["a"]
        await client.disconnect()


async def test_message_is_acknowledged_only_when_it_is_read() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(2), subscription)
        peer.send(Publish("a", b"1", 1, packet_id=5), Publish("a", b"2", 2, packet_id=6))
        await client.publish("marker")
        await wait_until(lambda: subscription.waiting == 2)
        await published(peer)  # and no acknowledgement before it

        await anext(subscription)
        first = await peer.expect(Ack)
        await anext(subscription)
        second = await peer.expect(Ack)

        assert (first.kind, first.packet_id) == (types.PUBACK, 5)
        assert (second.kind, second.packet_id) == (types.PUBREC, 6)
        await client.disconnect()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_read_between", [False, True])
async def test_message_sent_again_by_the_server_is_delivered_once(qos: int, is_read_between: bool) -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(qos), subscription)
        peer.send(Publish("a", b"once", qos, packet_id=5))
        await wait_until(lambda: subscription.waiting == 1)
        peer.cut()
        peer = await server.next_peer()  # the client has no connection now
        read = [await anext(subscription)] if is_read_between else []

        await peer.accept(Connack(session_present=True))
        peer.send(Publish("a", b"once", qos, dup=True, packet_id=5), Publish("a", b"end"))
        while not read or read[-1].payload != b"end":
            read.append(await anext(subscription))
        answer = await peer.expect(Ack)

        assert [message.payload for message in read] == [b"once", b"end"]
        assert (answer.kind, answer.packet_id) == (types.PUBACK if qos == 1 else types.PUBREC, 5)
        await client.disconnect()


async def test_duplicate_of_a_recorded_qos_2_message_is_answered_and_not_delivered() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(2), subscription)
        peer.send(Publish("a", b"once", 2, packet_id=5))
        await anext(subscription)
        await peer.expect(Ack)

        peer.send(Publish("a", b"once", 2, dup=True, packet_id=5), Ack(types.PUBREL, 5), Publish("a", b"end"))

        assert (await anext(subscription)).payload == b"end"
        assert [(await peer.expect(Ack)).kind for _ in range(2)] == [types.PUBREC, types.PUBCOMP]
        await client.disconnect()


async def test_slow_reader_loses_the_oldest_qos_0_messages_and_no_others() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscription = client.subscribe("a", queue_size=2)
        await asyncio.gather(peer.grant(1), subscription)

        peer.send(Publish("a", b"kept", 1, packet_id=1), *(Publish("a", str(n).encode()) for n in range(5)))
        peer.send(Publish("a", b"kept too", 1, packet_id=2))
        await wait_until(lambda: subscription.waiting == 4)
        read = [(await anext(subscription)).payload for _ in range(4)]

        assert read == [b"kept", b"3", b"4", b"kept too"]
        assert subscription.dropped == 3
        assert subscription.get_nowait() is None
        await client.disconnect()


async def test_messages_find_their_subscription_by_identifier() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        wide, narrow = client.subscribe("a/#"), client.subscribe("a/b")
        first, _ = await asyncio.gather(peer.grant(), wide)
        second, _ = await asyncio.gather(peer.grant(), narrow)
        of_wide = tuple(first.properties.subscription_identifiers)
        of_narrow = tuple(second.properties.subscription_identifiers)

        peer.send(
            Publish("a/b", b"narrow", subscription_identifiers=of_narrow),
            Publish("a/b", b"wide", subscription_identifiers=of_wide),
            Publish("a/b", b"both", subscription_identifiers=of_wide + of_narrow),
        )

        assert [(await anext(wide)).payload for _ in range(2)] == [b"wide", b"both"]
        assert [(await anext(narrow)).payload for _ in range(2)] == [b"narrow", b"both"]
        await client.disconnect()


async def test_message_for_two_subscriptions_is_acknowledged_when_both_have_read_it() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, version=4)
        peer = await server.connect(client)
        wide, narrow = client.subscribe("a/#", qos=1), client.subscribe("a/b", qos=1)
        await asyncio.gather(peer.grant(1), wide)
        await asyncio.gather(peer.grant(1), narrow)
        peer.send(Publish("a/b", b"x", 1, packet_id=5))

        await anext(wide)
        await client.publish("marker")
        await published(peer)  # no acknowledgement came before it
        await anext(narrow)

        assert (await peer.expect(Ack)).packet_id == 5
        await client.disconnect()


async def test_server_without_subscription_identifiers_is_not_sent_any() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client, limits(subscription_identifier_available=False))
        subscription = client.subscribe("a/+")
        packet, _ = await asyncio.gather(peer.grant(), subscription)

        peer.send(Publish("a/1", b"x"))

        assert (await anext(subscription)).payload == b"x"
        assert packet.properties.subscription_identifiers == []
        await client.disconnect()


async def test_messages_of_a_resumed_session_wait_for_the_subscription_of_the_new_process() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, client_id="c", clean_start=False, session_expiry="1h")
        connecting = asyncio.create_task(client.connect())
        peer = await server.next_peer()
        await peer.expect(Connect)
        # In one piece with the CONNACK: before anybody can have subscribed.
        peer.send(Connack(session_present=True), Publish("a", b"1", 1, packet_id=1), Publish("b", b"other"))
        await connecting
        peer.send(Publish("a", b"2", 1, packet_id=2))

        subscription = client.subscribe("a", qos=1)
        await asyncio.gather(peer.grant(1), subscription)

        assert [(await anext(subscription)).payload for _ in range(2)] == [b"1", b"2"]
        assert [(await peer.expect(Ack)).packet_id for _ in range(2)] == [1, 2]
        await client.disconnect()


async def test_identifier_of_an_earlier_process_does_not_mislead_a_message() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        a, b = client.subscribe("a"), client.subscribe("b")
        of_a, _ = await asyncio.gather(peer.grant(), a)
        await asyncio.gather(peer.grant(), b)

        peer.send(
            Publish("b", b"x", subscription_identifiers=tuple(of_a.properties.subscription_identifiers))
        )

        assert (await anext(b)).payload == b"x"
        assert a.waiting == 0
        await client.disconnect()


async def test_kept_session_uses_the_same_identifier_for_a_filter_in_every_process() -> None:
    identifiers = []
    for other in ("x", "y"):
        async with ScriptedServer() as server:
            client = durable(server)
            peer = await server.connect(client)
            await asyncio.gather(peer.grant(), client.subscribe(other))
            packet, _ = await asyncio.gather(peer.grant(), client.subscribe("a"))
            identifiers.append(packet.properties.subscription_identifiers)
            await client.disconnect()

    assert identifiers[0] == identifiers[1]


@pytest.mark.parametrize("qos", [1, 2])
async def test_unread_message_comes_again_when_a_durable_client_connects_again(qos: int) -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        first = client.subscribe("a", qos=qos)
        await asyncio.gather(peer.grant(qos), first)
        peer.send(Publish("a", b"unread", qos, packet_id=5))
        await wait_until(lambda: first.waiting == 1)
        await client.disconnect()

        peer = await server.connect(client, Connack(session_present=True))
        second = client.subscribe("a", qos=qos)
        await asyncio.gather(peer.grant(qos), second)
        peer.send(Publish("a", b"unread", qos, dup=True, packet_id=5))

        assert (await anext(second)).payload == b"unread"
        assert (await peer.expect(Ack)).packet_id == 5
        assert first.waiting == 0
        await client.disconnect()
