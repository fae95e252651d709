"""Request and response over publish/subscribe (MQTT 5, 4.10): response topic and correlation data."""

from __future__ import annotations

import asyncio
import secrets
from typing import Protocol

from timebound.client.message import Message
from timebound.client.subscription import State, Subscription
from timebound.errors import NotConnected


class Subscriber(Protocol):
    """Makes the one subscription that all answers arrive through."""

    def __call__(self, topic_filter: str, consumer: Requests) -> Subscription: ...


class Requests:
    """The unanswered requests of one client."""

    def __init__(self, subscribe: Subscriber) -> None:
        self._subscribe = subscribe
        # Nobody else can guess it; a client id could not be used, as it may contain wildcards.
        self.topic = f"timebound/reply/{secrets.token_hex(8)}"
        self._subscription: Subscription | None = None
        self._pending: dict[bytes, asyncio.Future[Message]] = {}
        self._last = 0

    def __call__(self, message: Message) -> None:
        """Hand an answer to its request; drop one that nobody waits for."""
        future = self._pending.get(message.correlation_data or b"")
        if future is not None and not future.done():
            future.set_result(message)

    async def open(self) -> bytes:
        """Prepare for one answer and return the correlation data of the request."""
        if self._subscription is None or self._subscription.state is State.ENDED:
            self._subscription = self._subscribe(self.topic, self)
        await self._subscription
        self._last += 1
        correlation_data = self._last.to_bytes(8, "big")
        self._pending[correlation_data] = asyncio.get_running_loop().create_future()
        return correlation_data

    async def wait(self, correlation_data: bytes, limit_s: float) -> Message:
        """Return the answer; raises TimeoutError if none comes."""
        async with asyncio.timeout(limit_s):
            return await self._pending[correlation_data]

    def close(self, correlation_data: bytes) -> None:
        """Stop waiting for an answer."""
        self._pending.pop(correlation_data, None)

    def fail_all(self) -> None:
        """Fail all requests: the client has disconnected."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(NotConnected("client disconnected before the answer came"))
