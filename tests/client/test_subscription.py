"""Subscriptions and incoming messages, against a server that does as it is told."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_server import (
    RecordingReceiver,
    ScriptedServer,
    wait_until,
)
from timebound import Client, Subscription
from timebound.client import SubscribeRefused
from timebound.client.connection import ClientConnection
from timebound.client.message import Message
from timebound.client.receipts import Receipt
from timebound.client.subscription import State
from timebound.errors import NotConnected, SubscribeError
from timebound.wire.packets import (
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from timebound.wire.properties import Properties


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


class TakingOwner:
    """Grants at once, and notes which messages were taken."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    async def start(self, subscription: Subscription) -> None:
        subscription.state = State.ACTIVE

    async def stop(self, subscription: Subscription) -> None:
        subscription.end(None)
        subscription.discard()

    def forget(self, subscription: Subscription) -> None:
        subscription.end(None)

    def take(self, receipt: Receipt) -> None:
        self.taken.append(receipt.packet_id)


def deliver(subscription: Subscription, payload: bytes, packet_id: int = 0) -> None:
    """Hand over a message, with QoS 1 if it has a packet identifier."""
    publish = Publish("a", payload, 1 if packet_id else 0, packet_id=packet_id)
    loop = asyncio.get_running_loop()
    connection = ClientConnection(RecordingReceiver(), 5, packet_size_max=0, topic_alias_maximum=0, loop=loop)
    subscription.deliver(Message("a", publish), Receipt(publish, connection) if packet_id else None)


def subscription_of(owner: TakingOwner, *topic_filters: str) -> Subscription:
    return Subscription(owner, [SubscribeEntry(one) for one in topic_filters or ("a",)], Properties())


async def test_reader_finishes_what_is_queued_before_it_learns_of_the_end() -> None:
    subscription = subscription_of(TakingOwner())
    await subscription
    deliver(subscription, b"last")

    subscription.end(NotConnected("server is gone"))

    assert (await anext(subscription)).payload == b"last"
    with pytest.raises(NotConnected, match="server is gone"):
        await anext(subscription)


async def test_iteration_ends_quietly_when_the_end_was_wanted() -> None:
    owner = TakingOwner()
    subscription = await subscription_of(owner)
    deliver(subscription, b"unread", packet_id=7)

    await subscription.unsubscribe()

    assert [message async for message in subscription] == []
    assert owner.taken == [7]


async def test_messages_given_back_are_those_that_the_server_sends_again() -> None:
    subscription = await subscription_of(TakingOwner())
    deliver(subscription, b"stays with the server", packet_id=1)
    deliver(subscription, b"only here")

    subscription.drop_unacknowledged()

    assert subscription.waiting == 1
    message = subscription.get_nowait()
    assert message is not None
    assert message.payload == b"only here"


async def test_subscription_matches_by_any_of_its_filters() -> None:
    subscription = subscription_of(TakingOwner(), "a/+", "$share/group/b")

    assert [subscription.matches(topic) for topic in ("a/1", "b", "a", "c")] == [True, True, False, False]


async def test_consumer_takes_each_message_at_once() -> None:
    owner, seen = TakingOwner(), list[bytes]()
    subscription = Subscription(
        owner, [SubscribeEntry("a")], Properties(), consumer=lambda message: seen.append(message.payload)
    )

    deliver(subscription, b"x", packet_id=3)

    assert (seen, owner.taken, subscription.waiting) == ([b"x"], [3], 0)
