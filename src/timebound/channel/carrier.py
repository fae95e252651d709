"""What carries events: suppliers push, consumers are called, and the modules between them can be swapped.

Pushing takes no lock: it reads tables that are never changed, only replaced. Connecting, disconnecting and
swapping modules (`exchange.py`) take one, and build new tables. Consumers and timers belong to the carrier
and outlive its modules, so a swap neither loses nor duplicates events. Gateways, pull consumers and
configuration files are built on a carrier; `EventChannel` offers them all. The file is long because one
lock guards everything in it.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final, Self

from timebound.channel.base.consumer import PLAIN, Callback, Consumer, Owner, Predicate
from timebound.channel.base.dependency import (
    ANYTHING,
    NOTHING,
    Key,
    Part,
    as_dependency,
    key_of,
)
from timebound.channel.base.errors import ChannelError, UndeclaredEvent
from timebound.channel.base.event import Event
from timebound.channel.base.filtering import Filtering, Route
from timebound.channel.base.guard import Guard
from timebound.channel.base.measure import Meter
from timebound.channel.base.reports import Kind, Report
from timebound.channel.dispatch.dispatcher import Absent, Dispatcher
from timebound.core.correlation.expression import SIGNALS_MAX, AnyOf, Correlator, Leaf
from timebound.core.correlation.timers import TimerHeap
from timebound.units import SECOND

# Loaded when they are first needed. None of these is compiled, so their types are only names here.
if TYPE_CHECKING:
    from timebound.channel.base.scheduling import Scheduler
    from timebound.channel.base.statistics import ChannelStatistics
    from timebound.channel.timing import Timing
    from timebound.core.input.schedulability import Operation

# Connecting rebuilds every supplier's table; beyond this a broker is the right tool.
CONSUMERS_MAX: Final = 10_000
SUPPLIERS_MAX: Final = 10_000
# Routes kept for events that came through gateways; types and sources are few, hostile ones are not.
ROUTES_MAX: Final = 10_000
# How long closing or swapping waits for consumers that are running.
CLOSE_LIMIT_NS: Final = 5 * SECOND


class Supplier:
    """A connected supplier; it pushes only the types it declared. One thread at a time may push."""

    __slots__ = ("_carrier", "_routes", "name", "source", "types")

    def __init__(self, carrier: Carrier, name: str, types: list[str], source: str) -> None:
        self._carrier = carrier
        self.name: Final = name
        self.types = types
        self.source = source
        self._routes: dict[str, Route] = {}

    def push(self, event_type: str, payload: object = None) -> None:
        """Push an event into the channel.

        Raises:
            UndeclaredEvent: the type was not declared when this supplier connected.
            ChannelError: the channel is not running, or this supplier is disconnected.
        """
        route = self._routes.get(event_type)
        if route is None:
            self._refuse(event_type)
            return
        carrier = self._carrier
        event = Event(event_type, self.source, payload, carrier.clock(), carrier.name)
        carrier.dispatcher.dispatch(route, event)

    def disconnect(self) -> None:
        """End the connection; pushing is refused from now on."""
        self._carrier.remove_supplier(self)
        self.replace_routes({})

    def is_connected(self) -> bool:
        return len(self._routes) > 0

    def replace_routes(self, routes: dict[str, Route]) -> dict[str, Route]:
        """Replace the whole table at once, so a concurrent push sees the old or the new one; for the channel.

        Return the old one, so that it outlives the assignment: compiled code releases the old value before
        the new one is in place, and finalisers of the program would run while other threads, which take no
        lock, still read it.
        """
        before = self._routes
        self._routes = routes
        return before

    def _refuse(self, event_type: str) -> None:
        if not self._routes:
            raise ChannelError(f"supplier {self.name!r} is disconnected and cannot push {event_type!r}")
        raise UndeclaredEvent(self.name, event_type, self.types)


class Carrier(Owner):
    """Carries events from suppliers to consumers; a context manager that starts and closes its modules."""

    def __init__(
        self,
        name: str,
        *,
        filtering: Filtering,
        dispatcher: Dispatcher,
        timing: Timing | None,
        scheduler: Scheduler | None,
        clock: Callable[[], int] = time.monotonic_ns,
        timers_max: int = 1024,
        on_report: Callable[[Report], None],
    ) -> None:
        self.name: Final = name
        self._scheduler = scheduler
        self.clock: Final = clock
        self.dispatcher: Dispatcher = Absent(f"channel {name!r} is not started; use it in a with statement")
        self._dispatcher_next: Dispatcher = dispatcher
        self._filtering = filtering
        self._timing = timing
        self._on_report: Final = on_report
        self._is_running = False
        self._heap: Final = TimerHeap(timers_max)
        self._timer_lock: Final = Lock()
        self._lock: Final = Guard(self.settle)
        self._consumers: list[Consumer] = []
        self._suppliers: list[Supplier] = []
        self._leaving: deque[Consumer] = deque()
        self._routes: dict[Key, Route] = {}
        self._listeners: list[Callable[[], None]] = []
        self._consumers_ever = 0
        self.federation: object = None  # its hub, once a gateway asked for one
        self.federation_lock: Final = Lock()

    @property
    def scheduler(self) -> Scheduler:
        """The scheduling service, made on first use unless it is shared."""
        with self._lock:
            scheduler = self._scheduler
            if scheduler is None:
                from timebound.channel.base.scheduling import Scheduler

                scheduler = self._scheduler = Scheduler()
            return scheduler

    @property
    def is_running(self) -> bool:
        return self._is_running

    @property
    def timers_max(self) -> int:
        """The number of timers that its consumers may have in all."""
        return self._heap.capacity

    # --- life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the modules; consumers and suppliers may connect before and after."""
        with self._lock:
            if self._is_running:
                raise ChannelError(f"channel {self.name!r} is already running")
            self._dispatcher_next.start(self.redispatch, self.report)
            for consumer in self._consumers:
                self._dispatcher_next.attach(consumer)
            self.dispatcher = self._dispatcher_next
            self._is_running = True
            if self._timing is not None:
                self._timing.start(self, self.notice)
        try:
            self._open_links()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop timers, then dispatching; events still queued are discarded. Closing twice does nothing."""
        with self._lock:
            if not self._is_running:
                return
            self._is_running = False
            running = self.dispatcher
            self.dispatcher = Absent(f"channel {self.name!r} is closed")
        self._close_links()
        # Outside the lock: the timer thread and consumers may want it before they can end.
        if self._timing is not None:
            self._timing.close()
        running.close(CLOSE_LIMIT_NS)
        with self._lock:
            leaving = [consumer.on_leave for consumer in self._consumers]
        for on_leave in leaving:
            if on_leave is not None:
                on_leave()

    def _open_links(self) -> None:
        """Open connections to other channels, once the modules run; a carrier has none of its own."""

    def _close_links(self) -> None:
        """Close them, before the modules are closed."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # --- connecting ---------------------------------------------------------------------

    def supplier(self, name: str, *types: str, source: str = "") -> Supplier:
        """Connect a supplier with the event types it will push; its source is its name by default."""
        if not types:
            raise ChannelError(f"supplier {name!r} declares no event type; name those it will push")
        with self._lock:
            if len(self._suppliers) >= SUPPLIERS_MAX:
                raise ChannelError(f"supplier {name!r} exceeds the limit of {SUPPLIERS_MAX} suppliers")
            supplier = Supplier(self, name, list(types), source or name)
            self._suppliers.append(supplier)
            self._route(supplier)
        return supplier

    def redeclare(self, supplier: Supplier, types: list[str], source: str) -> None:
        """Change the event types and the source of a connected supplier."""
        with self._lock:
            supplier.types = types
            supplier.source = source or supplier.name
            self._route(supplier)

    def remove_supplier(self, supplier: Supplier) -> None:
        with self._lock:
            if supplier in self._suppliers:
                self._suppliers.remove(supplier)

    def connect(
        self,
        callback: Callback,
        dependency: Part | None = None,
        *,
        name: str = "",
        operation: Operation | None = None,
        where: Predicate | None = None,
        evict_after: int = 0,
        evict_slow: bool = False,
        queue_max: int = 0,
    ) -> Consumer:
        """Connect a consumer; without a dependency it receives every event.

        `where` must accept an event before it counts. `evict_after` failures in a row disconnect it. With
        `evict_slow`, a full queue or too long a time at one event disconnect it as well. `queue_max` bounds
        the deliveries that may wait for it.

        Raises:
            NotSchedulable: its operation would break a deadline; carries what would fit.
            ChannelError: a module that it needs was left out, or a limit is reached.
        """
        with self._lock:
            consumer = self._make(callback, dependency, name, operation, where)
            consumer.evict_after = evict_after
            consumer.evict_slow = evict_slow
            consumer.queue_max = queue_max
            self._admit(consumer)
        self._changed()
        return consumer

    def connect_gateway(self, callback: Callback, name: str) -> Consumer:
        """Connect a gateway, which wants nothing until `redirect` states what the far channels want."""
        with self._lock:
            consumer = Consumer(self, name, callback, Correlator(Leaf(NOTHING)), is_gateway=True)
            self._admit(consumer)
        return consumer

    def redirect(self, consumer: Consumer, keys: list[Key]) -> None:
        """Change what a gateway wants; events on their way are not lost."""
        with self._lock:
            # More keys than a correlator has bits: the gateway then takes everything and filters itself.
            wanted = keys if len(keys) <= SIGNALS_MAX else [ANYTHING]
            consumer.correlator = Correlator(as_any_of(wanted or [NOTHING]))
            self._rebuild()

    def _make(
        self,
        callback: Callback,
        dependency: Part | None,
        name: str,
        operation: Operation | None,
        where: Predicate | None,
    ) -> Consumer:
        self._consumers_ever += 1
        name = name or f"{getattr(callback, '__name__', type(callback).__name__)}#{self._consumers_ever}"
        is_async = inspect.iscoroutinefunction(callback)
        self._check_modules(name, is_async)
        tree = Leaf(ANYTHING) if dependency is None else as_dependency(dependency)
        correlator = Correlator(tree, self._heap)
        for leaf in correlator.leaves:
            key_of(leaf)
        selects = where is not None or (dependency is not None and len(correlator.leaves) > 0)
        if selects and not self._filtering.has_dependencies:
            raise ChannelError(f"consumer {name!r} selects events, but the channel has no filtering")
        meter: Meter | None = None if operation is None else self.scheduler.admit(operation)
        return Consumer(self, name, callback, correlator, where=where, meter=meter, is_async=is_async)

    def _check_modules(self, name: str, is_async: bool) -> None:
        if len(self._consumers) >= CONSUMERS_MAX:
            raise ChannelError(f"consumer {name!r} exceeds the limit of {CONSUMERS_MAX} consumers")
        dispatcher = self.dispatcher if self._is_running else self._dispatcher_next
        if is_async and not dispatcher.runs_coroutines:
            raise ChannelError(f"consumer {name!r} is a coroutine function; it needs asyncio dispatching")

    def _admit(self, consumer: Consumer) -> None:
        correlator = consumer.correlator
        if correlator.timer_count:
            trouble = self._start_timers(consumer)
            if trouble:
                if consumer.meter is not None:
                    self.scheduler.release(consumer.meter.operation)
                raise ChannelError(f"consumer {consumer.name!r} {trouble}")
        if self._is_running:
            self.dispatcher.attach(consumer)
        self._consumers.append(consumer)
        self._rebuild()
        if correlator.timer_count and self._timing is not None:
            self._timing.rearm()

    def _start_timers(self, consumer: Consumer) -> str:
        if self._timing is None:
            return "needs a timer, but the channel has no timer module"
        with self._timer_lock:
            if consumer.correlator.start(self.clock(), consumer):
                return ""
        return f"needs a timer, but none is left (timers_max={self._heap.capacity})"

    # --- leaving ------------------------------------------------------------------------

    def evict(self, consumer: Consumer, message: str) -> None:
        """Disconnect a consumer; with a message, report it as evicted.

        Deliveries stop at once. A consumer may call this while the lock is held by a thread that waits for
        that very consumer, so the rest is left to the holder, after it has released the lock.
        """
        if consumer.is_closed:
            return
        consumer.is_closed = True
        if message:
            self.report(Report(Kind.EVICTED, consumer.name, message))
        self._leaving.append(consumer)
        self.settle()
        if consumer.on_leave is not None:
            consumer.on_leave()

    def settle(self) -> None:
        """Remove consumers that left, unless the lock is held: its holder will."""
        removed = False
        while self._leaving and self._lock.acquire_nowait():
            try:
                while self._leaving:
                    self._remove(self._leaving.popleft())
                    removed = True
                if removed:
                    self._rebuild()
            finally:
                self._lock.release()
        if removed:
            self._changed()

    def _remove(self, consumer: Consumer) -> None:
        if consumer not in self._consumers:
            return
        self._consumers.remove(consumer)
        with self._timer_lock, consumer.lock:
            consumer.correlator.stop()
        if consumer.meter is not None:
            self.scheduler.release(consumer.meter.operation)
        self.dispatcher.detach(consumer)

    # --- routes -------------------------------------------------------------------------

    def _rebuild(self) -> None:
        self._consumers.sort(key=urgency)
        self._forget_routes()
        for supplier in self._suppliers:
            self._route(supplier)

    def _forget_routes(self) -> dict[Key, Route]:
        before = self._routes
        self._routes = {}
        return before

    def _route(self, supplier: Supplier) -> None:
        routes: dict[str, Route] = {}
        for event_type in supplier.types:
            routes[event_type] = self._filtering.route(self._consumers, event_type, supplier.source)
        supplier.replace_routes(routes)

    def inject(self, event: Event) -> None:
        """Deliver an event that came through a gateway."""
        key = (event.type, event.source)
        routes = self._routes
        route = routes.get(key)
        if route is None:
            with self._lock:
                if len(self._routes) >= ROUTES_MAX:
                    self._forget_routes()
                route = self._filtering.route(self._consumers, event.type, event.source)
                self._routes[key] = route
        self.dispatcher.dispatch(route, event)

    def mask_of(self, consumer: Consumer, event: Event) -> int:
        return self._filtering.mask(consumer, event.type, event.source)

    def wants(self) -> list[Key]:
        """Return what the consumers of this channel itself want, sorted; used by gateways."""
        found: set[Key] = set()
        with self._lock:
            for consumer in self._consumers:
                leaves = consumer.correlator.leaves
                if consumer.is_gateway or not leaves:
                    continue
                if not self._filtering.has_dependencies:
                    return [ANYTHING]
                found.update(key_of(leaf) for leaf in leaves)
        return sorted(found)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of what is wanted; it runs in the changing thread."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listener in list(self._listeners):
            listener()

    # --- timers -------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self.clock()

    def next_wakeup_ns(self) -> int | None:
        """Return when `wake` should next be called; None when no timer is set."""
        with self._timer_lock:
            return self._heap.next_due_ns()

    def wake(self, now_ns: int) -> int:
        """Dispatch every timer due by `now_ns`, the most urgent consumer first; return their number."""
        found: list[tuple[Consumer, Event]] = []
        with self._timer_lock:
            timer = self._heap.pop_expired(now_ns)
            while timer is not None:
                consumer = timer.owner
                assert isinstance(consumer, Consumer)
                with consumer.lock:
                    occurrences = consumer.correlator.expire(timer, now_ns)
                if occurrences is not None:
                    found.append((consumer, consumer.join(occurrences, now_ns)))
                timer = self._heap.pop_expired(now_ns)
        found.sort(key=urgency_of_timeout)
        for consumer, event in found:
            self.redispatch(consumer, event, PLAIN)
        return len(found)

    def redispatch(self, consumer: Consumer, event: Event, mask: int) -> None:
        """Deliver to one consumer by the present dispatcher, or hold the delivery back during a swap."""
        if consumer.is_held and consumer.keep_if_held(event, mask):
            return
        self.dispatcher.submit(consumer, event, mask)

    # --- reports ------------------------------------------------------------------------

    def report(self, report: Report) -> None:
        self._on_report(report)

    def notice(self, message: str) -> None:
        self._on_report(Report(Kind.NOTICE, "", message))

    def statistics(self) -> ChannelStatistics:
        """Return a snapshot of every consumer's counters, the most urgent first."""
        from timebound.channel.base.statistics import ChannelStatistics, ConsumerStatistics

        with self._lock:
            consumers = tuple(
                ConsumerStatistics(c.name, c.delivered, c.failures, c.dropped, c.queued, c.is_slow)
                for c in self._consumers
            )
            return ChannelStatistics(self.name, len(self._suppliers), len(self._heap), consumers)


def urgency(consumer: Consumer) -> tuple[int, int]:
    return (consumer.lane_key, consumer.sub_priority)


def urgency_of_timeout(found: tuple[Consumer, Event]) -> tuple[int, int]:
    return urgency(found[0])


def as_any_of(keys: list[Key]) -> AnyOf:
    return AnyOf([Leaf(key) for key in keys])
