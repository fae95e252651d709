"""A subscription as its user holds it: awaitable, async iterator and async context manager.

It is a bounded queue between the connection and the application. For a slow application, the
oldest messages with QoS 0 beyond `queue_size` are dropped and counted in `dropped`; those with
QoS 1 and 2 are never dropped: they stay unacknowledged (see `receipts.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from types import TracebackType
from typing import Final, Protocol

from timebound.client.message import Message
from timebound.client.receipts import Receipt
from timebound.client.topics import FilterMatcher
from timebound.errors import ClientError
from timebound.wire.packets import Subscribe, SubscribeEntry
from timebound.wire.properties import Properties

# One second of a busy topic; with more, a reader will not catch up.
QUEUE_SIZE: Final = 1_000


class State(Enum):
    """New -> starting (SUBSCRIBE is sent or waits for a connection) -> active -> ended."""

    NEW = "new"
    STARTING = "starting"
    ACTIVE = "active"
    ENDED = "ended"


class SubscriptionOwner(Protocol):
    """What a subscription calls."""

    async def start(self, subscription: Subscription) -> None: ...

    async def stop(self, subscription: Subscription) -> None: ...

    def forget(self, subscription: Subscription) -> None: ...

    def take(self, receipt: Receipt) -> None: ...


class Subscription:
    """Messages for one or more topic filters, made by `Client.subscribe`; it may have a name.

    `await subscription` waits until it is granted, `async for message in subscription` does so too
    and then yields messages, `async with subscription` also unsubscribes at its end.
    Iteration survives reconnects; it ends when the client disconnects or `unsubscribe` is called,
    and raises NotConnected when the connection is lost for good.
    """

    def __init__(
        self,
        owner: SubscriptionOwner,
        entries: list[SubscribeEntry],
        properties: Properties,
        *,
        queue_size: int = QUEUE_SIZE,
        consumer: Callable[[Message], None] | None = None,
    ) -> None:
        self.topic_filters: Final = tuple(entry.topic_filter for entry in entries)
        self.name: Final = next((value for name, value in properties.user_properties if name == "name"), "")
        self.granted_qos: tuple[int, ...] = ()
        self.reason_string = ""  # of the last SUBACK, such as a hint about a misspelt property
        self.dropped = 0  # QoS 0 messages that a slow reader missed
        self.state = State.NEW
        self.failure: ClientError | None = None
        self.identifier = 0  # 0 = none
        self.settled = asyncio.Event()  # the server's first answer has come, or never will
        self._owner = owner
        self._entries = entries
        self._properties = properties
        self._matchers = [FilterMatcher(text) for text in self.topic_filters]
        self._queue: deque[tuple[Message, Receipt | None]] = deque()
        self._queue_size = queue_size
        self._unconfirmed = 0  # messages with QoS 0 in the queue
        self._arrived = asyncio.Event()
        self._consumer = consumer

    # Called by the user

    def __await__(self) -> Generator[None, None, Subscription]:
        return self._started().__await__()

    async def _started(self) -> Subscription:
        await self._owner.start(self)
        return self

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        if self.state is State.NEW or self.state is State.STARTING:
            await self._owner.start(self)
        while not self._queue:
            if self.state is State.ENDED:
                if self.failure is not None:
                    raise self.failure
                raise StopAsyncIteration
            self._arrived.clear()
            # No limit here; a caller may set one with asyncio.timeout.
            await self._arrived.wait()
        return self._take()

    async def __aenter__(self) -> Subscription:
        try:
            await self._owner.start(self)
        except BaseException:
            self._owner.forget(self)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.unsubscribe()

    async def unsubscribe(self) -> None:
        """End the subscription; unread messages are dropped."""
        await self._owner.stop(self)

    @property
    def waiting(self) -> int:
        """The number of messages received and not read yet."""
        return len(self._queue)

    def get_nowait(self) -> Message | None:
        """Return the next message if one was received, else None."""
        return self._take() if self._queue else None

    # Called by the session

    def packet(self, packet_id: int, *, with_identifier: bool) -> Subscribe:
        """Return the SUBSCRIBE."""
        self._properties.subscription_identifiers = [self.identifier] if with_identifier else []
        return Subscribe(packet_id, self._entries, self._properties)

    def matches(self, topic: str) -> bool:
        return any(matcher.matches(topic) for matcher in self._matchers)

    def deliver(self, message: Message, receipt: Receipt | None) -> None:
        """Queue a message for the reader."""
        if self._consumer is not None:
            self._consumer(message)
            if receipt is not None:
                self._owner.take(receipt)
            return
        if receipt is None:
            if self._unconfirmed >= self._queue_size:
                self._drop_oldest()
            self._unconfirmed += 1
        self._queue.append((message, receipt))
        self._arrived.set()

    def end(self, failure: ClientError | None) -> None:
        """End the iteration after the queued messages, or raise the failure."""
        self.state = State.ENDED
        self.failure = failure
        self.settled.set()
        self._arrived.set()

    def drop_unacknowledged(self) -> None:
        """Drop queued messages with QoS 1 and 2: the server sends them again."""
        self._queue = deque(entry for entry in self._queue if entry[1] is None)

    def discard(self) -> None:
        """Drop and acknowledge queued messages: nobody will read them."""
        while self._queue:
            self._take()

    def _take(self) -> Message:
        message, receipt = self._queue.popleft()
        if receipt is None:
            self._unconfirmed -= 1
        else:
            self._owner.take(receipt)
        return message

    def _drop_oldest(self) -> None:
        for index, (_, receipt) in enumerate(self._queue):
            if receipt is None:
                del self._queue[index]
                break
        self._unconfirmed -= 1
        self.dropped += 1
