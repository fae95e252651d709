"""Channels that share a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from tests.conftest import BrokerProcess

from timebound.channel import BrokerGateway, ChannelBuilder, EventChannel, Gateway, Kind, Report, advert_topic
from timebound.channel.federation.brokered import event_filter
from timebound.channel.federation.gateway import hub_of
from timebound.client import Client, Will

LIMIT_S = 20.0


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  # other tasks and a broker have to act first
            await asyncio.sleep(0.002)


def hops(channel: EventChannel, event_type: str) -> tuple[str, ...]:
    return hub_of(channel).next_hops(event_type, "s")


def knows_edge(channel: EventChannel, first: str, second: str) -> bool:
    """Whether a channel has heard from both ends that they are joined."""
    ends = [hub_of(channel).advert_of(first), hub_of(channel).advert_of(second)]
    named = [name for end in ends if end is not None for name in end.neighbours]
    return first in named and second in named


class Site:
    """A channel, joined to others by a broker."""

    def __init__(self, stack: AsyncExitStack, broker: BrokerProcess, prefix: str, name: str) -> None:
        self.reports: list[Report] = []
        self.channel = ChannelBuilder(name).filtering().on_report(self.reports.append).build()
        self.got: list[object] = []
        self._stack = stack
        self._port = broker.port
        self._prefix = prefix

    async def start(self, *wants: str) -> Site:
        self._stack.enter_context(self.channel)
        for event_type in wants:
            self.channel.connect(lambda e: self.got.append((e.type, e.payload, e.origin)), event_type)
        will = Will(advert_topic(self.channel.name, self._prefix), b"", qos=1, retain=True)
        self.client = await self._stack.enter_async_context(Client(port=self._port, will=will))
        self.gateway = BrokerGateway(self.channel, self.client, prefix=self._prefix)
        await self._stack.enter_async_context(self.gateway)
        return self


async def test_event_is_published_once_and_reaches_each_channel_that_wants_it(broker: BrokerProcess) -> None:
    async with AsyncExitStack() as stack, Client(port=broker.port) as spy:
        a, b, c = [Site(stack, broker, "fed/1", name) for name in "abc"]
        await a.start()
        await b.start("x")
        await c.start("x", "y")
        seen = await spy.subscribe("fed/1/event/#")
        await wait_until(lambda: hops(a.channel, "x") == hops(a.channel, "y") == ("$fed/1",))
        supplier = a.channel.supplier("s", "x", "y", "z")
        supplier.push("x", {"deep": [1, b"two"]})
        supplier.push("z", 0)
        supplier.push("y", 2)
        await wait_until(lambda: len(b.got) == 1 and len(c.got) == 2)
        await wait_until(lambda: seen.waiting == 2)

        assert b.got == [("x", {"deep": [1, b"two"]}, "a")]
        assert c.got == [("x", {"deep": [1, b"two"]}, "a"), ("y", 2, "a")]


async def test_gateway_follows_wants_and_leaves_cleanly(broker: BrokerProcess) -> None:
    async with AsyncExitStack() as stack:
        a = await Site(stack, broker, "fed/2", "a").start()
        b = await Site(stack, broker, "fed/2", "b").start()
        await wait_until(lambda: hub_of(a.channel).advert_of("b") is not None)
        assert hops(a.channel, "x") == ()
        consumer = b.channel.connect(lambda e: b.got.append(e.payload), "x")
        await wait_until(lambda: hops(a.channel, "x") == ("$fed/2",))
        a.channel.supplier("s", "x").push("x", 1)
        await wait_until(lambda: b.got == [1])
        consumer.disconnect()
        await wait_until(lambda: hops(a.channel, "x") == ())
        b.channel.connect(lambda e: None, "x")
        await wait_until(lambda: hops(a.channel, "x") == ("$fed/2",))
        await b.gateway.close()
        await wait_until(lambda: hops(a.channel, "x") == ())


async def test_channel_behind_another_is_reached_and_a_cycle_carries_nothing_twice(
    broker: BrokerProcess,
) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = [Site(stack, broker, "fed/3", name) for name in "abc"]
        await a.start("x")
        await b.start("x")
        behind = ChannelBuilder("behind").filtering().build()
        stack.enter_context(behind)
        got: list[object] = []
        behind.connect(lambda e: got.append(e.payload), "x")
        # b and c meet at the broker and directly; "behind" hangs on c.
        await c.start("x")
        stack.enter_context(Gateway(b.channel, c.channel))
        stack.enter_context(Gateway(c.channel, behind))
        await wait_until(lambda: knows_edge(a.channel, "c", "behind"))
        supplier = a.channel.supplier("s", "x")
        for number in range(20):
            supplier.push("x", number)
        await wait_until(lambda: len(got) >= 20 and len(b.got) >= 20 and len(c.got) >= 20)

        assert got == list(range(20))
        for site in (b, c):
            assert site.got == [("x", number, "a") for number in range(20)]
        assert a.got == [("x", number, "a") for number in range(20)]


async def test_channel_that_dies_is_forgotten_by_its_will(broker: BrokerProcess) -> None:
    async with AsyncExitStack() as stack:
        a = await Site(stack, broker, "fed/4", "a").start()
        await Site(stack, broker, "fed/4", "b").start("x")
        await wait_until(lambda: hops(a.channel, "x") == ("$fed/4",))
        # What the broker publishes when b's connection breaks.
        async with Client(port=broker.port) as broken:
            await broken.publish(advert_topic("b", "fed/4"), b"", qos=1, retain=True)

        await wait_until(lambda: hops(a.channel, "x") == ())


async def test_strange_messages_and_payloads_are_reported_and_harm_nobody(broker: BrokerProcess) -> None:
    async with AsyncExitStack() as stack, Client(port=broker.port) as stranger:
        a = await Site(stack, broker, "fed/5", "a").start()
        b = await Site(stack, broker, "fed/5", "b").start("x")
        await wait_until(lambda: hops(a.channel, "x") == ("$fed/5",))
        await stranger.publish("fed/5/event/x/s", b"\xc1nonsense", qos=1)
        supplier = a.channel.supplier("s", "x")
        supplier.push("x", object())
        supplier.push("x", 1)
        await wait_until(lambda: b.got == [("x", 1, "a")])

    assert [report.kind for report in b.reports] == [Kind.NOTICE]
    assert [report.kind for report in a.reports] == [Kind.FAILED]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("x", ""), "p/event/x/+"),
        (("", "s"), "p/event/+/s"),
        (("a/b", "c+#"), "p/event/a%2Fb/c%2B%23"),
        (("", ""), "p/event/+/+"),
    ],
)
def test_types_and_sources_become_topic_levels(key: tuple[str, str], expected: str) -> None:
    assert event_filter(key, "p") == expected
