"""One connected consumer: its callback, what it waits for, its counters, and its priority.

A consumer belongs to no module of the channel, so it lives on unchanged while filtering, dispatching or
timers are swapped around it. While dispatching is swapped its deliveries are held back here, in order.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Final, cast

from mypy_extensions import mypyc_attr

from timebound.channel.base.errors import QueueFull
from timebound.channel.base.event import TIMEOUT, TOGETHER, Event
from timebound.channel.base.measure import Meter
from timebound.channel.base.reports import Kind, Report
from timebound.channel.base.steps import Steps
from timebound.core.correlation.expression import SIGNALS_MAX, Correlator, Timeout
from timebound.units import MILLISECOND, SECOND

# How a route hands an event to a consumer: as it is, or (a positive mask of leaves) after evaluation.
PLAIN: Final = -1
# A mask has a bit for each leaf, and above them the generation of the dependency it was worked out for.
HITS: Final = (1 << SIGNALS_MAX) - 1
# The lane of consumers without an operation: behind every period there is.
BEST_EFFORT: Final = 1 << 62
# What a consumer may take beyond its stated cost (or beyond nothing) before others no longer wait for it.
# With less, each stall of the machine would cost a thread; a switch of threads costs some 20 µs.
PATIENCE_NS: Final = 1 * MILLISECOND
# After this long at one event a consumer is reported. With an operation, after a second or its period: its
# late runs are counted anyway, and a look at it costs a quarter of a millisecond.
STALL_NS: Final = 50 * MILLISECOND
OPERATION_STALL_NS: Final = 1 * SECOND

# No run of an operation is being measured.
NOT_BEGUN: Final = -1

Callback = Callable[[Event], object]
Predicate = Callable[[Event], bool]
# A delivery that waits somewhere: the event, and PLAIN or the mask it still has to be evaluated with.
Pending = tuple["Consumer", Event, int]


@mypyc_attr(allow_interpreted_subclasses=True)
class Owner:
    """What a consumer needs of its channel."""

    @abstractmethod
    def report(self, report: Report) -> None:
        """Report to the program what became of a consumer."""

    @abstractmethod
    def evict(self, consumer: Consumer, message: str) -> None:
        """Disconnect a consumer; with a message, report it as evicted."""

    @abstractmethod
    def now_ns(self) -> int:
        """Return the time by the channel's clock."""

    @abstractmethod
    def mask_of(self, consumer: Consumer, event: Event) -> int:
        """Return the mask that a route would now have for this consumer and event."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue:
    """Where deliveries wait in a dispatcher that runs a consumer in one thread at a time."""

    @abstractmethod
    def end(self, consumer: Consumer) -> None:
        """End a step of a consumer with deliveries parked from here: `finish` it under this queue's lock."""

    @abstractmethod
    def unpark(self, consumer: Consumer, arrival: int, event: Event, mask: int) -> None:
        """Take back a delivery whose turn came while its consumer was running; the lock is held."""


# A delivery taken out of turn: where it waited, its number there, the event, the mask.
Parked = tuple[Queue, int, Event, int]


class Consumer:
    """A connected consumer; `disconnect()` ends it. The counters may be read at any time."""

    def __init__(
        self,
        owner: Owner,
        name: str,
        callback: Callback,
        correlator: Correlator,
        *,
        where: Predicate | None = None,
        meter: Meter | None = None,
        is_async: bool = False,
        is_gateway: bool = False,
    ) -> None:
        self._owner = owner
        self.name: Final = name
        self.callback = callback
        self.correlator = correlator
        self.where = where
        self.generation = 0  # how often its dependency was replaced
        self.evict_after = 0  # failures in a row that disconnect it; 0 = never
        self.evict_slow = False  # whether a full queue, or taking far too long, disconnects it
        self.queue_max = 0  # deliveries that may wait for it; 0 = the dispatcher's own limit
        self.on_leave: Callable[[], None] | None = None  # called when nothing is delivered any more
        self.is_async = is_async
        self.is_gateway = is_gateway
        self.is_closed = False
        # Its priority, by its operation.
        self.meter: Meter | None = None
        self.lane_key = BEST_EFFORT
        self.sub_priority = 0
        # The processor time it may use; how long it may take for that before others of its lane are served
        # elsewhere, with an eighth for interruptions; and how long before it is reported.
        self.budget_ns = PATIENCE_NS
        self.patience_ns = PATIENCE_NS
        self.stall_ns = STALL_NS
        if meter is not None:
            self.restate(meter)
        # Changed by its lane alone: how often in a row it kept others waiting; whether it therefore has a
        # thread of its own; and its quick runs since.
        self.strikes = 0
        self.is_slow = False
        self.quick_runs = 0
        # Counters. Each is changed by one thread at a time: a dispatcher serialises its consumers.
        self.delivered = 0
        self.failures = 0
        self.failures_in_row = 0
        self.dropped = 0
        self.queued = 0  # changed by its dispatcher alone
        # The lock guards what follows, and the correlator.
        self.lock: Final = Lock()
        self.is_held = False
        self._held: deque[tuple[Event, int]] = deque()
        self._is_running = False
        self._parked: deque[Parked] = deque()  # in the order of their numbers
        self._called_back: list[int] = []  # the numbers of those that wait in their queue once more
        # The processor time of its thread when the present run began; only with an operation.
        self.cpu_begin_ns = NOT_BEGUN

    def restate(self, meter: Meter | None) -> None:
        """Take the priority of an operation; the consumer must not be attached to a dispatcher meanwhile."""
        self.meter = meter
        if meter is None:
            self.lane_key = BEST_EFFORT
            self.sub_priority = 0
            self.budget_ns = PATIENCE_NS
            self.patience_ns = PATIENCE_NS
            self.stall_ns = STALL_NS
            return
        operation = meter.operation
        self.lane_key = operation.period_ns
        self.sub_priority = -operation.criticality
        self.budget_ns = PATIENCE_NS + operation.cost_ns
        self.patience_ns = self.budget_ns + operation.cost_ns // 8
        self.stall_ns = max(OPERATION_STALL_NS, operation.period_ns)

    def evaluate(self, event: Event, mask: int) -> Event | None:
        """Apply the filter and the correlation; return what is to be delivered, if anything."""
        where = self.where
        if where is not None and not self._passes(where, event):
            return None
        if self.generation == 0 and self.correlator.is_stateless:
            return event
        with self.lock:
            if self.generation != 0:
                # It may still be on its way by a route of the dependency before.
                if mask >> SIGNALS_MAX != self.generation:
                    mask = self._owner.mask_of(self, event)
                if mask == 0:
                    return None
                mask = mask & HITS
            if self.correlator.is_stateless:
                return event
            found = self.correlator.arrive(mask, event, event.time_ns)
        return None if found is None else self.join(found, event.time_ns)

    def _passes(self, where: Predicate, event: Event) -> bool:
        try:
            return bool(where(event))
        except (Exception, SystemExit) as error:
            self.fail(event, error)
            return False

    def join(self, occurrences: list[object], now_ns: int) -> Event:
        """Make one event of what a correlation found."""
        events: list[Event] = []
        for occurrence in occurrences:
            if isinstance(occurrence, Event):
                events.append(occurrence)
            else:
                assert isinstance(occurrence, Timeout)
                events.append(Event(TIMEOUT, self.name, occurrence, now_ns))
        if len(events) == 1:
            return events[0]
        return Event(TOGETHER, self.name, None, now_ns, "", 0, tuple(events))

    def run(self, event: Event) -> None:
        """Call the consumer; count and report whatever it raises.

        That includes `SystemExit`, which would end another's thread. Ctrl-C is left to the program.
        """
        if self.is_closed:
            return
        if self.meter is not None:
            self._run_measured(self.meter, event)
            return
        try:
            self.callback(event)
        except (Exception, SystemExit) as error:
            self.fail(event, error)
            return
        self.delivered += 1
        self.failures_in_row = 0

    def _run_measured(self, meter: Meter, event: Event) -> None:
        # Reading the thread's clock costs 0.7 µs, so only consumers with an operation pay for it.
        begin_ns = time.thread_time_ns()
        self.cpu_begin_ns = begin_ns
        try:
            self.callback(event)
        except (Exception, SystemExit) as error:
            self.fail(event, error)
        else:
            self.delivered += 1
            self.failures_in_row = 0
        self._record(meter, time.thread_time_ns() - begin_ns, event)

    def _record(self, meter: Meter, cost_ns: int, event: Event) -> None:
        if meter.record(cost_ns, self._owner.now_ns() - event.time_ns):
            stated_ns = meter.operation.cost_ns
            message = f"operation {meter.operation.name!r} cost {cost_ns} ns of a stated {stated_ns} ns"
            self._owner.report(Report(Kind.OVERRUN, self.name, message))

    def run_in_shared_thread(self, event: Event) -> None:
        """Run it in a thread that others need, a supplier's or a loop's; report it if it takes too long."""
        begin_ns = time.monotonic_ns()
        self.run(event)
        self._check_thread(time.monotonic_ns() - begin_ns)

    async def run_coroutine(self, event: Event) -> None:
        """Run a coroutine function, timing its steps one by one."""
        steps = Steps(cast(Awaitable[object], self.callback(event)))
        try:
            await steps
        except Exception as error:
            self.fail(event, error)
        else:
            self.delivered += 1
            self.failures_in_row = 0
        if self.meter is not None:
            self._record(self.meter, steps.cost_ns, event)
        self._check_thread(steps.longest_ns)

    def _check_thread(self, taken_ns: int) -> None:
        if taken_ns > STALL_NS:
            self.stall(f"has blocked a shared thread for {taken_ns // MILLISECOND} ms")

    def fail(self, event: Event, error: BaseException) -> None:
        """Count and report a failure, and evict the consumer if it fails too often in a row.

        A callback that only had no room for the event did not fail: the event is dropped.
        """
        if isinstance(error, QueueFull):
            self.drop(event, error.limit)
            return
        self.failures += 1
        self.failures_in_row += 1
        message = f"raised {type(error).__name__} on event {event.type!r}: {error}"
        self._owner.report(Report(Kind.FAILED, self.name, message, error))
        if 0 < self.evict_after <= self.failures_in_row:
            self._owner.evict(self, f"evicted after {self.failures_in_row} failures in a row")

    def drop(self, event: Event, limit: int) -> None:
        """Count a delivery that found no room, and report the 1st, 2nd, 4th and so on."""
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:  # a flood of drops stays readable
            message = f"queue is full (queue_max={limit}); {self.dropped} events dropped so far"
            self._owner.report(Report(Kind.QUEUE_FULL, self.name, message))
        if self.evict_slow:
            self._owner.evict(self, f"evicted because its queue was full (queue_max={limit})")

    def stall(self, message: str) -> None:
        """Report that it has taken too long for one event."""
        self._owner.report(Report(Kind.STALLED, self.name, message))
        if self.evict_slow:
            self._owner.evict(self, f"evicted because it {message}")

    def begin(self, queue: Queue, arrival: int, event: Event, mask: int) -> bool:
        """Claim the consumer for one step; return False when the delivery was parked to wait for its turn."""
        with self.lock:
            parked = self._parked
            if self._called_back and arrival in self._called_back:
                self._called_back.remove(arrival)
            if not self._is_running and (not parked or arrival < parked[0][1]):
                self._is_running = True
                return True
            place = len(parked)
            if parked and arrival < parked[place - 1][1]:
                # It had been called back, so it is one of the first.
                place = 0
                while parked[place][1] < arrival:
                    place += 1
            parked.insert(place, (queue, arrival, event, mask))
            return False

    def finish(self, queue: Queue) -> Queue | None:
        """End a step, calling the first parked delivery back to `queue`; the caller holds that queue's lock.

        The others stay, and are called back one by one: taking all at each step would cost quadratic time.
        If it was parked from another queue, return that queue, which must do this instead.
        """
        with self.lock:
            if self._parked and self._parked[0][0] is not queue:
                return self._parked[0][0]
            self._is_running = False
            if self._parked and not self._called_back:
                _, arrival, event, mask = self._parked.popleft()
                self._called_back.append(arrival)
                queue.unpark(self, arrival, event, mask)
            return None

    def call_back(self, arrival: int) -> None:
        """Note that a delivery of this number waits in its queue once more, before those that are parked."""
        with self.lock:
            self._called_back.append(arrival)

    def next_parked(self, queue: Queue) -> tuple[int, Event, int] | None:
        """Return the next parked delivery of this queue; the consumer stays claimed.

        Return None when there is none, or when an older one waits in the queue.
        """
        with self.lock:
            if not self._parked or self._parked[0][0] is not queue or self._called_back:
                return None
            _, arrival, event, mask = self._parked.popleft()
            return (arrival, event, mask)

    def park_first(self, queue: Queue, arrival: int, event: Event, mask: int) -> None:
        """Park a delivery before all others."""
        with self.lock:
            self._parked.appendleft((queue, arrival, event, mask))

    def take_parked(self, queue: Queue) -> list[tuple[int, Event, int]]:
        """Remove and return what a queue parked here, with its numbers, because that queue is closing."""
        with self.lock:
            taken = [(entry[1], entry[2], entry[3]) for entry in self._parked if entry[0] is queue]
            self._called_back.clear()
            kept = [entry for entry in self._parked if entry[0] is not queue]
            self._parked.clear()
            self._parked.extend(kept)
        return taken

    def hold(self) -> None:
        """Keep deliveries here from now on, until `take_held` has returned the last."""
        with self.lock:
            self.is_held = True

    def keep_if_held(self, event: Event, mask: int) -> bool:
        with self.lock:
            if self.is_held:
                self._held.append((event, mask))
            return self.is_held

    def prepend_held(self, pending: list[tuple[Event, int]]) -> None:
        """Put deliveries that waited in a dispatcher before those that came after it was closed."""
        with self.lock:
            self._held.extendleft(reversed(pending))

    def take_held(self) -> tuple[Event, int] | None:
        """Return the next delivery held back; after the last one the hold ends."""
        with self.lock:
            if self._held:
                return self._held.popleft()
            self.is_held = False
            return None

    def disconnect(self) -> None:
        """End the connection: stop deliveries, and release its timers and its operation."""
        self._owner.evict(self, "")
