"""When messages with QoS 1 and 2 are acknowledged, and which are delivered again."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_server import (
    ScriptedServer,
    bare_connection,
    durable,
    lone_client,
    published,
    wait_until,
)
from timebound import Client
from timebound.client.receipts import Receipts
from timebound.errors import ProtocolError
from timebound.wire import packet_types as types
from timebound.wire.packets import (
    Ack,
    Connack,
    Disconnect,
    Pingreq,
    Publish,
    Suback,
    Unsuback,
)


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


async def test_unknown_answers_are_harmless() -> None:
    async with ScriptedServer() as server, lone_client(server) as (client, peer):
        peer.send(Ack(types.PUBACK, 9), Suback(9, [0]), Unsuback(9, [0]), Ack(types.PUBCOMP, 9))
        peer.send(Ack(types.PUBREC, 9), Ack(types.PUBREL, 9))

        release = await peer.expect(Ack)
        complete = await peer.expect(Ack)

        assert (release.kind, release.reason_code) == (types.PUBREL, 0x92)
        assert (complete.kind, complete.reason_code) == (types.PUBCOMP, 0x92)
        assert client.is_connected


async def test_receipt_of_a_lost_connection_is_answered_only_when_the_server_asks_again() -> None:
    receipts = Receipts(10)
    message = Publish("a", b"x", 1, packet_id=5)
    async with ScriptedServer() as server:
        async with bare_connection(server) as (connection, _, _):
            receipts.attach(connection, session_present=False)
            receipt = receipts.accept(message)
            assert receipt is not None
        async with bare_connection(server) as (connection, peer, _):
            receipts.attach(connection, session_present=True)
            receipts.take(receipt)
            connection.ping()
            await peer.expect(Pingreq)  # no acknowledgement before it

            assert receipts.accept(Publish("a", b"x", 1, dup=True, packet_id=5)) is None
            answer = await peer.expect(Ack)

    assert (answer.kind, answer.packet_id) == (types.PUBACK, 5)


async def test_message_of_a_new_session_under_an_old_packet_id_is_another_one() -> None:
    receipts = Receipts(10)
    async with ScriptedServer() as server, bare_connection(server) as (connection, _, _):
        receipts.attach(connection, session_present=False)
        first = receipts.accept(Publish("a", b"x", 1, packet_id=5))
        receipts.attach(connection, session_present=False)

        second = receipts.accept(Publish("a", b"x", 1, dup=True, packet_id=5))

    assert first is not None
    assert second is not None
    assert first is not second


@pytest.mark.parametrize("version", [4, 5])
async def test_receive_maximum_counts_in_mqtt_5_alone(version: int) -> None:
    receipts = Receipts(1)
    async with ScriptedServer() as server, bare_connection(server, version=version) as (connection, _, _):
        receipts.attach(connection, session_present=False)
        receipts.accept(Publish("a", b"1", 1, packet_id=1))

        if version == 4:
            assert receipts.accept(Publish("a", b"2", 1, packet_id=2)) is not None
            return
        with pytest.raises(ProtocolError, match="more than 1 unacknowledged") as caught:
            receipts.accept(Publish("a", b"2", 1, packet_id=2))
        assert caught.value.reason_code == 0x93
