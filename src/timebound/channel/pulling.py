"""The pull model: a consumer that fetches its events instead of being called.

A `PullConsumer` is an ordinary consumer of its channel whose callback puts events into a bounded queue.
Filters, correlation, timers, federation and swaps of modules therefore work as they do for `connect`,
and so does the order of events. Waiting is by the system's clock, whatever clock the channel has.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import TYPE_CHECKING, Final

from timebound.channel.base.dependency import Duration, nanoseconds
from timebound.channel.base.errors import ChannelError, QueueFull
from timebound.units import SECOND

if TYPE_CHECKING:
    from timebound.channel.base.consumer import Consumer
    from timebound.channel.base.event import Event
    from timebound.channel.carrier import Carrier

# Default limit of events that wait to be pulled; later ones are dropped, counted and reported.
PULL_QUEUE_MAX: Final = 1_024
# How long `EventChannel.pull` waits by default.
PULL_TIMEOUT_NS: Final = 1 * SECOND


class PullConsumer:
    """A connection made by `EventChannel.pull_consumer`; `disconnect()` or a with statement ends it.

    Any thread may pull. Each event goes to one caller, the oldest event first.
    """

    def __init__(self, channel: Carrier, queue_max: int) -> None:
        if queue_max < 1:
            raise ValueError(f"queue_max={queue_max} is too small; it must be at least 1")
        self.consumer: Consumer  # set by the channel before the first event can arrive
        self._channel = channel
        self._queue_max = queue_max
        # Guards the fields below; held only for single operations of a deque.
        self._changed = Condition()
        self._events: deque[Event] = deque()
        self._wakers: list[Callable[[], None]] = []
        self._has_ended = False

    @property
    def name(self) -> str:
        return self.consumer.name

    @property
    def waiting(self) -> int:
        """The number of events that can be pulled now."""
        return len(self._events)

    @property
    def dropped(self) -> int:
        """The number of events that found no room."""
        return self.consumer.dropped

    def pull(self, timeout: Duration = 0) -> Event | None:
        """Return the next event, waiting up to `timeout` for it; None when none arrived.

        Raises:
            ChannelError: disconnected, evicted or closed, and nothing is left to pull; or waiting would
                block the event loop that delivers the events.
        """
        until_ns = self._until_ns(timeout)
        with self._changed:
            while not self._events:
                self._check_open()
                left_ns = until_ns - time.monotonic_ns()
                if left_ns <= 0:
                    return None
                self._check_thread()
                self._changed.wait(left_ns / SECOND)
            return self._events.popleft()

    async def pull_async(self, timeout: Duration = 0) -> Event | None:  # noqa: ASYNC109  # as in pull
        """Do the same on an event loop, while other tasks run.

        Raises:
            ChannelError: disconnected, evicted or closed, and nothing is left to pull.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        until_ns = self._until_ns(timeout)
        while True:
            woken = asyncio.Event()

            def wake(woken: asyncio.Event = woken) -> None:
                loop.call_soon_threadsafe(woken.set)

            with self._changed:
                if self._events:
                    return self._events.popleft()
                self._check_open()
                left_ns = until_ns - time.monotonic_ns()
                if left_ns <= 0:
                    return None
                self._wakers.append(wake)
            try:
                await asyncio.wait_for(woken.wait(), left_ns / SECOND)
            except TimeoutError:
                continue  # check once more
            finally:
                self._forget(wake)

    def disconnect(self) -> None:
        """End the connection; waiting events can still be pulled."""
        self.consumer.disconnect()

    def __enter__(self) -> PullConsumer:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.disconnect()

    # --- for the channel ----------------------------------------------------------------

    def put(self, event: Event) -> None:
        """Queue an event; this is the consumer's callback.

        Raises:
            QueueFull: there is no room; the consumer counts the event as dropped.
        """
        with self._changed:
            if len(self._events) >= self._queue_max:
                raise QueueFull(self._queue_max)
            self._events.append(event)
            self._changed.notify()
            self._wake_all()

    def end(self) -> None:
        """Wake every waiting caller: no further events will arrive."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
            self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._wakers:
            try:
                wake()
            except RuntimeError:
                continue  # its event loop is closed, and its task gone
        self._wakers.clear()

    def _forget(self, wake: Callable[[], None]) -> None:
        with self._changed:
            if wake in self._wakers:
                self._wakers.remove(wake)

    def _until_ns(self, timeout: Duration) -> int:
        timeout_ns = nanoseconds(timeout)
        if timeout_ns < 0:
            raise ValueError(f"timeout of {timeout_ns} ns is negative; 0 does not wait")
        return time.monotonic_ns() + timeout_ns

    def _check_open(self) -> None:
        if self._has_ended:
            raise ChannelError(f"pull consumer {self.name!r} is disconnected and has nothing left to pull")

    def _check_thread(self) -> None:
        if not self._channel.dispatcher.runs_coroutines:
            return
        # Only a channel on an event loop comes here, so asyncio is loaded already.
        from asyncio import get_running_loop

        try:
            get_running_loop()
        except RuntimeError:
            return  # a thread without a loop may wait
        raise ChannelError(f"pull consumer {self.name!r} would block its event loop; await pull_async()")
