"""Dispatching on an event loop: consumers may be coroutine functions.

One queue orders all deliveries by priority, sub-priority and arrival; a pump on the loop takes a few at
a time, so other tasks get their turns. A coroutine runs as a task, one at a time for each consumer, so
one that waits long delays only itself. One that computes or blocks without awaiting blocks the whole loop,
which no dispatcher can prevent; it is reported. Suppliers may push from any thread.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from threading import Lock, get_ident
from typing import Final

from timebound.channel.base.consumer import PLAIN, Consumer, Pending, Queue
from timebound.channel.base.errors import ChannelError
from timebound.channel.base.event import Event
from timebound.channel.base.filtering import Route
from timebound.channel.base.reports import Report
from timebound.channel.dispatch.dispatcher import QUEUE_MAX, Dispatcher

# Deliveries handled before the loop gets its turn: about 100 µs of plain callbacks.
BATCH: Final = 64

# Lane, sub-priority, arrival, consumer, event, mask.
Command = tuple[int, int, int, Consumer, Event, int]


class _LoopQueue(Queue):
    """The waiting deliveries; its lock makes it safe to push from any thread."""

    def __init__(self, dispatch: AsyncioDispatch) -> None:
        self._dispatch = dispatch
        self._heap: list[Command] = []
        self._lock = Lock()
        self._arrivals = 0
        self._is_pumping = False
        self.is_closed = False

    def put(self, consumer: Consumer, event: Event, mask: int, arrival: int = 0) -> bool:
        """Queue a delivery, under its old number if it has one; return False when closed."""
        limit = consumer.queue_max or QUEUE_MAX
        with self._lock:
            if self.is_closed:
                return False
            is_full = arrival == 0 and consumer.queued >= limit
            if not is_full:
                if arrival == 0:
                    consumer.queued += 1
                    self._arrivals += 1
                    arrival = self._arrivals
                entry = (consumer.lane_key, consumer.sub_priority, arrival, consumer, event, mask)
                heapq.heappush(self._heap, entry)
            must_wake = not self._is_pumping
            self._is_pumping = True
        if is_full:
            consumer.drop(event, limit)
        if must_wake:
            self._dispatch.wake_pump()
        return True

    def unpark(self, consumer: Consumer, arrival: int, event: Event, mask: int) -> None:
        entry = (consumer.lane_key, consumer.sub_priority, arrival, consumer, event, mask)
        heapq.heappush(self._heap, entry)

    def end(self, consumer: Consumer) -> None:
        with self._lock:
            other = consumer.finish(self)
            must_wake = bool(self._heap) and not self._is_pumping
            self._is_pumping = self._is_pumping or must_wake
        if other is not None:
            other.end(consumer)
        if must_wake:
            self._dispatch.wake_pump()

    def pop(self) -> Command | None:
        """Return the next delivery; None when there is none, which ends the pump."""
        with self._lock:
            if self._heap:
                return heapq.heappop(self._heap)
            self._is_pumping = False
            return None

    def close(self, consumers: list[Consumer]) -> list[Command]:
        with self._lock:
            self.is_closed = True
            waiting = self._heap
            self._heap = []
            for consumer in consumers:
                for arrival, event, mask in consumer.take_parked(self):
                    entry = (consumer.lane_key, consumer.sub_priority, arrival, consumer, event, mask)
                    waiting.append(entry)
        return sorted(waiting, key=order)


def order(command: Command) -> tuple[int, int, int]:
    return command[:3]


class AsyncioDispatch(Dispatcher):
    """Calls consumers on the event loop in which the channel was started."""

    runs_coroutines = True

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._queue = _LoopQueue(self)
        self._consumers: list[Consumer] = []
        # A task without a reference may be collected while it runs; a task group needs a coroutine around it.
        self._tasks: dict[asyncio.Task[None], Consumer] = {}

    def start(
        self,
        redispatch: Callable[[Consumer, Event, int], None],
        report: Callable[[Report], None],
    ) -> None:
        if self._loop is not None:
            raise ChannelError("asyncio dispatching was started before; make a new one for each channel")
        super().start(redispatch, report)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise ChannelError(
                "asyncio dispatching needs a running event loop; start it inside one"
            ) from error
        self._loop_thread = get_ident()

    def attach(self, consumer: Consumer) -> None:
        self._consumers.append(consumer)

    def detach(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def dispatch(self, route: Route, event: Event) -> None:
        for entry in route:
            if entry.consumer.is_held:
                # Dispatching is being swapped: older deliveries wait at the consumer.
                self.pass_on(entry.consumer, event, entry.mask)
            else:
                self.submit(entry.consumer, event, entry.mask)

    def submit(self, consumer: Consumer, event: Event, mask: int) -> None:
        if self._queue.is_closed:
            self.pass_on(consumer, event, mask)
            return
        if mask != PLAIN and consumer.where is None:
            ready = consumer.evaluate(event, mask)
            if ready is None:
                return
            event, mask = ready, PLAIN
        if not self._queue.put(consumer, event, mask):
            self.pass_on(consumer, event, mask)

    def pass_on(self, consumer: Consumer, event: Event, mask: int) -> None:
        """Pass a delivery that came too late for this module to the next one."""
        if not consumer.is_closed:
            assert self._redispatch is not None
            self._redispatch(consumer, event, mask)

    def close(self, limit_ns: int) -> list[Pending]:
        """Stop; return what waited. Coroutines under way continue on the loop, which cannot wait here."""
        return [(entry[3], entry[4], entry[5]) for entry in self._queue.close(self._consumers)]

    async def wait_idle(self, limit_s: float) -> None:
        """Wait at most `limit_s` until the coroutines under way have ended, for an orderly end."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=limit_s)

    def wake_pump(self) -> None:
        assert self._loop is not None
        if get_ident() == self._loop_thread:
            self._loop.call_soon(self._pump)
        else:
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        for _ in range(BATCH):
            command = self._queue.pop()
            if command is None:
                return
            self._step(command)
        assert self._loop is not None
        self._loop.call_soon(self._pump)

    def _step(self, command: Command) -> None:
        _, _, arrival, consumer, event, mask = command
        if not consumer.begin(self._queue, arrival, event, mask):
            return
        if mask != PLAIN:
            ready = None if consumer.is_closed else consumer.evaluate(event, mask)
            if ready is not None:
                if not self._queue.put(consumer, ready, PLAIN, arrival):
                    self.pass_on(consumer, ready, PLAIN)
                self._queue.end(consumer)
                return
        elif consumer.is_async and not consumer.is_closed:
            assert self._loop is not None
            task = self._loop.create_task(self._run(consumer, event), name=f"timebound-{consumer.name}")
            self._tasks[task] = consumer
            task.add_done_callback(self._tasks.pop)
            return
        else:
            consumer.run_in_shared_thread(event)
        self._end(consumer)

    async def _run(self, consumer: Consumer, event: Event) -> None:
        try:
            await consumer.run_coroutine(event)
        finally:
            self._end(consumer)

    def _end(self, consumer: Consumer) -> None:
        consumer.queued = max(consumer.queued - 1, 0)
        self._queue.end(consumer)
