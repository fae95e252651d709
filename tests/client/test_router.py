"""Which subscription gets a message, and what is remembered of those that have ended."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from tests.client.scripted_server import (
    ScriptedServer,
    durable,
    limits,
)
from timebound.client import router as router_module
from timebound.client.client import Client
from timebound.client.router import SubscriptionRouter
from timebound.client.subscription import Subscription, SubscriptionOwner
from timebound.client.topics import FilterMatcher
from timebound.errors import SubscribeError
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Publish,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from timebound.wire.properties import Properties


def make(topic_filter: str) -> Subscription:
    return Subscription(cast(SubscriptionOwner, None), [SubscribeEntry(topic_filter)], Properties())


def test_filters_that_ended_are_known_until_too_many_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "ENDED_MAX", 3)
    router = SubscriptionRouter(keeps_session=False)
    for name in "abcd":
        subscription = make(f"{name}/#")
        router.insert(subscription)
        assert router.remove(subscription)
        assert not router.remove(subscription)

    router.insert(make("c/#"))  # subscribed to again

    assert [router.was_ended(f"{name}/x") for name in "abcd"] == [False, True, False, True]


def test_forgetting_the_oldest_takes_no_longer_where_many_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 35_000
    matcher = FilterMatcher("t")
    monkeypatch.setattr(router_module, "FilterMatcher", lambda topic_filter: matcher)

    def forgetting_s(most: int) -> float:
        """Time to forget some filters, of so many that have ended."""
        monkeypatch.setattr(router_module, "ENDED_MAX", most)
        router = SubscriptionRouter(keeps_session=False)
        for number in range(most):
            router._ended[str(number)] = matcher
        took_s = 0.0
        for number in range(most, most + count):
            subscription = cast(Subscription, SimpleNamespace(identifier=1, topic_filters=(str(number),)))
            router._by_identifier[1] = subscription
            began_s = time.thread_time()
            assert router.remove(subscription)
            took_s += time.thread_time() - began_s
        assert list(router._ended) == [str(number) for number in range(count, most + count)]
        return took_s

    few_s = min(forgetting_s(10) for _ in range(3))
    assert min(forgetting_s(40_000) for _ in range(2)) < 3.5 * few_s


async def test_second_subscription_to_a_filter_is_refused() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        await asyncio.gather(peer.grant(), client.subscribe("a"))

        with pytest.raises(SubscribeError, match="already subscribed to 'a'"):
            await client.subscribe("a", where="x = 1")
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


async def test_subscriptions_to_one_filter_have_names_and_end_one_by_one() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        hot = client.subscribe("a", name="hot", where="x > 1")
        first, _ = await asyncio.gather(peer.grant(), hot)
        plain = client.subscribe("a")
        second, _ = await asyncio.gather(peer.grant(), plain)

        with pytest.raises(SubscribeError, match="already subscribed to 'a' as 'hot'"):
            await client.subscribe("a", name="hot")
        assert first.properties.user_properties == [("name", "hot"), ("where", "x > 1")]
        assert first.properties.subscription_identifiers != second.properties.subscription_identifiers
        for subscription in (plain, hot):
            ending = asyncio.create_task(subscription.unsubscribe())
            packet = await peer.expect(Unsubscribe)
            assert packet.properties.user_properties == [("name", subscription.name)]
            peer.send(Unsuback(packet.packet_id, [0]))
            await ending
        await client.disconnect()
