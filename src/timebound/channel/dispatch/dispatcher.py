"""The dispatching module: in which thread, and in which order, consumers are called.

`Dispatcher` is the interface of every strategy. `Reactive` is what a channel has without the module:
consumers run in the supplier's thread, the most urgent first. Lanes and asyncio have files of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from timebound.channel.base.consumer import PLAIN, Consumer, Pending
from timebound.channel.base.errors import ChannelError
from timebound.channel.base.event import Event
from timebound.channel.base.filtering import Route
from timebound.channel.base.reports import Kind, Report

# Deliveries that may wait for one consumer that sets no limit of its own: seconds of work, not minutes.
QUEUE_MAX: Final = 10_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """Calls consumers. One dispatcher serves one channel, from `start` to `close`."""

    # Whether consumers may be coroutine functions. Set it in `__init__` in a module of your own.
    runs_coroutines = False

    def __init__(self) -> None:
        self._redispatch: Callable[[Consumer, Event, int], None] | None = None
        self._report: Callable[[Report], None] | None = None

    def start(
        self,
        redispatch: Callable[[Consumer, Event, int], None],
        report: Callable[[Report], None],
    ) -> None:
        """Start. Deliveries that reach a closed dispatcher are passed to `redispatch`.

        Raises:
            ChannelError: the dispatcher was started before.
        """
        self._redispatch = redispatch
        self._report = report

    def lanes_max(self) -> int:
        """Return how many different periods the operations of its consumers may have; 0 = no limit."""
        return 0

    def attach(self, consumer: Consumer) -> None:  # not every strategy has something to do
        """Prepare for a consumer; called before its first event."""

    def detach(self, consumer: Consumer) -> None:  # the same
        """Forget a consumer; its waiting deliveries are discarded when their turn comes."""

    @abstractmethod
    def dispatch(self, route: Route, event: Event) -> None:
        """Deliver an event to every consumer on its route."""

    @abstractmethod
    def submit(self, consumer: Consumer, event: Event, mask: int) -> None:
        """Deliver to one consumer, evaluating first unless `mask` is PLAIN."""

    def close(self, limit_ns: int) -> list[Pending]:
        """Stop, waiting at most `limit_ns` for running consumers; return what was still queued, in order."""
        return []

    def notice(self, message: str) -> None:
        if self._report is not None:
            self._report(Report(Kind.NOTICE, "", message))


class Reactive(Dispatcher):
    """Calls consumers at once, in the supplier's thread: the least delay, no protection from a slow one."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False

    def dispatch(self, route: Route, event: Event) -> None:
        for entry in route:
            consumer = entry.consumer
            mask = entry.mask
            if self._is_closed or consumer.is_held:
                # Rare: dispatching is being swapped, so the delivery waits at the consumer.
                assert self._redispatch is not None
                self._redispatch(consumer, event, mask)
            elif mask == PLAIN and not consumer.evict_slow:
                consumer.run(event)
            else:
                self.submit(consumer, event, mask)

    def submit(self, consumer: Consumer, event: Event, mask: int) -> None:
        ready = event if mask == PLAIN else consumer.evaluate(event, mask)
        if ready is None:
            return
        # Reading clocks costs as much as a push, so only consumers that may be evicted are timed.
        if consumer.evict_slow:
            consumer.run_in_shared_thread(ready)
        else:
            consumer.run(ready)

    def close(self, limit_ns: int) -> list[Pending]:
        self._is_closed = True
        return []


class Absent(Dispatcher):
    """Stands in before a channel is started and after it is closed: pushing is refused."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self._message = message

    def dispatch(self, route: Route, event: Event) -> None:
        raise ChannelError(self._message)

    def submit(self, consumer: Consumer, event: Event, mask: int) -> None:
        """Discard a delivery that was on its way when the channel closed."""
