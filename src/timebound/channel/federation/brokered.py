"""Gateways through an MQTT broker: any number of channels that share one medium.

An event is published once, to a topic of its type and source; each channel subscribes only to what it and
the channels behind it want. Adverts are retained, one topic for each channel, and are published only when
the subscriptions they stand for are in place. The client is any object that publishes and subscribes as
`timebound.Client` does; this package does not import it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock
from typing import Final, Protocol, Self
from urllib.parse import quote, unquote

import msgspec

from timebound.channel.base.dependency import Key
from timebound.channel.base.reports import Kind, Report
from timebound.channel.carrier import Carrier
from timebound.channel.federation.gateway import hub_of
from timebound.channel.federation.link_state import MEDIUM_PREFIX, Advert, Carried, Frame
from timebound.errors import TimeboundError

PREFIX: Final = "timebound/channel"
# Frames that may wait for the broker; beyond that events are dropped and counted, adverts never.
OUTGOING_MAX: Final = 10_000

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Frame)


class BrokerMessage(Protocol):
    """A message as the client returns it."""

    topic: str
    payload: bytes


class BrokerSubscription(Protocol):
    """Messages of one topic filter; entering it waits until the broker has accepted it."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> BrokerMessage: ...
    async def __aenter__(self) -> Self: ...
    async def unsubscribe(self) -> None: ...


class BrokerClient(Protocol):
    """What a gateway needs of an MQTT client, already connected."""

    async def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool) -> object: ...
    def subscribe(self, *topic_filters: str, qos: int, no_local: bool) -> BrokerSubscription: ...


def advert_topic(channel: str, prefix: str = PREFIX) -> str:
    """Return the topic of a channel's advert; a will with an empty retained payload there removes it."""
    return f"{prefix}/advert/{_level(channel)}"


def event_filter(key: Key, prefix: str = PREFIX) -> str:
    return f"{prefix}/event/{_level(key[0]) or '+'}/{_level(key[1]) or '+'}"


def _level(text: str) -> str:
    """Return a name as one topic level, with special characters escaped."""
    return quote(text, safe=" ")


class BrokerGateway:
    """Joins a channel to all others that use the same broker and prefix; an async context manager."""

    def __init__(self, channel: Carrier, client: BrokerClient, *, prefix: str = PREFIX, qos: int = 0) -> None:
        self._channel = channel
        self._hub = hub_of(channel)
        self._client = client
        self._prefix = prefix
        self._medium = MEDIUM_PREFIX + prefix
        self._qos = qos
        self._lock = Lock()
        self._outgoing: deque[Frame] = deque()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: asyncio.Task[None] | None = None
        self._adverts: BrokerSubscription | None = None
        self._events: dict[str, BrokerSubscription] = {}
        self.dropped = 0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._adverts = self._client.subscribe(f"{self._prefix}/advert/+", qos=1, no_local=True)
        await self._adverts.__aenter__()
        self._runner = asyncio.create_task(self._run(self._adverts), name=f"timebound-{self._medium}")
        self._hub.add_link(self._medium, self)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the medium, and announce it."""
        self._hub.remove_link(self._medium)
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        advert = self._hub.advert_of(self._channel.name)
        if advert is not None:
            await self._publish(advert)
        subscriptions = [*self._events.values()]
        if self._adverts is not None:
            subscriptions.append(self._adverts)
        for subscription in subscriptions:
            await subscription.unsubscribe()

    def send(self, frame: Frame) -> None:
        """Pass a frame to the loop; from any thread."""
        with self._lock:
            is_full = isinstance(frame, Carried) and len(self._outgoing) >= OUTGOING_MAX
            if not is_full:
                self._outgoing.append(frame)
        if is_full:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:
                message = f"broker is too slow; {self.dropped} events dropped so far"
                self._channel.report(Report(Kind.QUEUE_FULL, f"gateway to {self._medium}", message))
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._wake.set)

    async def _run(self, adverts: BrokerSubscription) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_adverts(adverts), name="adverts")
                group.create_task(self._write(group), name="outgoing")
        except* TimeboundError as failures:
            # The broker refused, or is gone for good: the channel continues without it.
            self._hub.remove_link(self._medium)
            reason = "; ".join(str(error) for error in failures.exceptions)
            self._channel.report(Report(Kind.NOTICE, "", f"gateway to {self._medium} ended: {reason}"))

    async def _write(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._follow(group)
            while self._outgoing:
                frame = self._outgoing.popleft()
                if isinstance(frame, Advert):
                    await self._follow(group)
                await self._publish(frame)

    async def _publish(self, frame: Frame) -> None:
        if isinstance(frame, Advert):
            topic = advert_topic(frame.channel, self._prefix)
            await self._client.publish(topic, _encoder.encode(frame), qos=1, retain=True)
        else:
            topic = event_filter((frame.type, frame.source), self._prefix)
            try:
                payload = _encoder.encode(frame)
            except (TypeError, ValueError) as error:
                message = f"event {frame.type!r} cannot be encoded: {error}"
                self._channel.report(Report(Kind.FAILED, f"gateway to {self._medium}", message, error))
                return
            await self._client.publish(topic, payload, qos=self._qos, retain=False)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """Subscribe to what is wanted from the medium now, and to nothing else."""
        keys = self._hub.wants_from(self._medium)
        wanted = {event_filter(key, self._prefix): None for key in keys}
        for topic_filter in [name for name in self._events if name not in wanted]:
            await self._events.pop(topic_filter).unsubscribe()
        for topic_filter in wanted:
            if topic_filter not in self._events:
                subscription = self._client.subscribe(topic_filter, qos=self._qos, no_local=True)
                self._events[topic_filter] = subscription
                await subscription.__aenter__()
                group.create_task(self._read_events(subscription), name=topic_filter)

    async def _read_events(self, subscription: BrokerSubscription) -> None:
        async for message in subscription:
            self._receive(message.payload)

    async def _read_adverts(self, subscription: BrokerSubscription) -> None:
        async for message in subscription:
            if message.payload:
                self._receive(message.payload)
            else:
                self._forget(unquote(message.topic.rpartition("/")[2]))
            # Adverts of others may change what has to be taken from the medium.
            self._wake.set()

    def _forget(self, channel: str) -> None:
        """Forget a channel whose will was published: it left without closing."""
        known = self._hub.advert_of(channel)
        if known is not None and channel != self._channel.name:
            self._hub.receive(self._medium, Advert(channel, known.version + 1, (), ()))

    def _receive(self, payload: bytes) -> None:
        try:
            frame = _decoder.decode(payload)
        except msgspec.MsgspecError as error:
            message = f"ignored a message that is not a frame: {error}"
            self._channel.report(Report(Kind.NOTICE, "", message))
            return
        self._hub.receive(self._medium, frame)
