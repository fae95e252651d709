"""Swapping modules, and changing connected consumers, while events flow: all or nothing.

An extension of `carrier.py`, loaded when a channel is first reconfigured; it works on the carrier's own
fields, under its lock. Everything that may fail comes first. Then new deliveries wait at their consumers, the
old dispatcher's queues are put before them, and the new dispatcher delivers them all. Not compiled: swaps are
rare.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from timebound.channel.base.consumer import BEST_EFFORT, Consumer
from timebound.channel.base.dependency import ANYTHING, key_of
from timebound.channel.base.errors import ChannelError
from timebound.channel.carrier import CLOSE_LIMIT_NS, Carrier
from timebound.core.correlation.expression import Correlator, Dependency

if TYPE_CHECKING:
    from timebound.channel.base.event import Event
    from timebound.channel.base.filtering import Filtering
    from timebound.channel.base.measure import Meter
    from timebound.channel.dispatch.dispatcher import Dispatcher
    from timebound.channel.timing import Timing
    from timebound.core.input.schedulability import Operation

Meters = dict[Consumer, "Meter | None"]


class Change:
    """A change of a connected consumer; with a dependency of None it keeps its own."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.dependency: Dependency | None = None
        self.has_operation = False  # whether `operation` replaces its own; None then removes it
        self.operation: Operation | None = None
        self.queue_max = consumer.queue_max
        self.evict_after = consumer.evict_after
        self.evict_slow = consumer.evict_slow


def exchange(
    channel: Carrier,
    *,
    filtering: Filtering | None = None,
    dispatching: Dispatcher | None = None,
    timing: Timing | None = None,
    drops_timing: bool = False,
    changes: list[Change] | None = None,
) -> None:
    """Swap modules and change consumers; an operation changes only together with the dispatcher.

    Raises:
        ChannelError: something does not fit together; nothing was swapped.
    """
    changes = changes or []
    with channel._lock:
        if not channel._is_running:
            raise ChannelError(f"channel {channel.name!r} is not running, so it cannot be reconfigured")
        _check_dependencies(filtering or channel._filtering, changes)
        _check_timers(channel, changes, has_timing=not drops_timing and bool(timing or channel._timing))
        if dispatching is not None:
            _check_dispatcher(channel, dispatching, changes)
        meters = _prepare(channel, dispatching, timing, changes)
        # Nothing fails from here on.
        if dispatching is not None:
            _swap_dispatcher(channel, dispatching, meters)
        filtering_before = channel._filtering  # kept alive: see `Supplier.replace_routes`
        if filtering is not None:
            channel._filtering = filtering
        for change in changes:
            _apply(channel, change)
        if filtering is not None or changes:
            channel._rebuild()
        if timing is not None or drops_timing:
            _swap_timing(channel, timing)
    channel._changed()
    del filtering_before


# --- what may fail ----------------------------------------------------------------------


def _check_dependencies(filtering: Filtering, changes: list[Change]) -> None:
    for change in changes:
        if change.dependency is None or filtering.has_dependencies:
            continue
        leaves = Correlator(change.dependency).leaves
        if leaves and [key_of(leaf) for leaf in leaves] != [ANYTHING]:
            raise ChannelError(
                f"consumer {change.consumer.name!r} selects events, but the channel has no filtering"
            )


def _check_timers(channel: Carrier, changes: list[Change], *, has_timing: bool) -> None:
    heap = channel._heap
    spare = heap.available()
    for change in changes:
        if change.dependency is not None:
            spare += change.consumer.correlator.timer_count - Correlator(change.dependency).timer_count
    if spare < 0:
        needed = "1 more timer is" if spare == -1 else f"{-spare} more timers are"
        raise ChannelError(f"{needed} needed than there are (timers_max={heap.capacity})")
    if spare < heap.capacity and not has_timing:
        raise ChannelError("consumers have timers, so the channel needs a timer module")


def _check_dispatcher(channel: Carrier, new: Dispatcher, changes: list[Change]) -> None:
    periods = {consumer: consumer.lane_key for consumer in channel._consumers}
    for change in changes:
        if change.has_operation:
            stated = change.operation
            periods[change.consumer] = BEST_EFFORT if stated is None else stated.period_ns
    for consumer in channel._consumers:
        if consumer.is_async and not new.runs_coroutines:
            raise ChannelError(f"consumer {consumer.name!r} is a coroutine function; it needs asyncio")
    lanes = len(set(periods.values()))
    if 0 < new.lanes_max() < lanes:
        raise ChannelError(f"consumers have {lanes} different periods (limit {new.lanes_max()})")


def _prepare(
    channel: Carrier, dispatching: Dispatcher | None, timing: Timing | None, changes: list[Change]
) -> Meters:
    """Start the new modules and admit the new operations; if one fails, undo all of it."""
    with ExitStack() as undo:
        if timing is not None:
            timing.start(channel, channel.notice)
            undo.callback(timing.close)
        if dispatching is not None:
            dispatching.start(channel.redispatch, channel.report)
            undo.callback(dispatching.close, 0)
        meters = _replace_operations(channel, [change for change in changes if change.has_operation])
        undo.pop_all()
    return meters


def _replace_operations(channel: Carrier, changes: list[Change]) -> Meters:
    meters: Meters = {change.consumer: None for change in changes}
    leaving = [change.consumer.meter.operation for change in changes if change.consumer.meter is not None]
    coming = [(change.consumer, change.operation) for change in changes if change.operation is not None]
    if leaving or coming:
        admitted = channel.scheduler.replace(leaving, [operation for _, operation in coming])
        meters.update(zip([consumer for consumer, _ in coming], admitted, strict=True))
    return meters


# --- what is done then ------------------------------------------------------------------


def _swap_dispatcher(channel: Carrier, new: Dispatcher, meters: Meters) -> Dispatcher:
    """Return the old one, for the reason given in `Supplier.replace_routes`."""
    old = channel.dispatcher
    # From here on new deliveries wait at their consumers; then the old queue is put before them.
    for consumer in channel._consumers:
        consumer.hold()
    waiting: dict[Consumer, list[tuple[Event, int]]] = {}
    for consumer, event, mask in old.close(CLOSE_LIMIT_NS):
        waiting.setdefault(consumer, []).append((event, mask))
    for consumer in channel._consumers:
        if consumer in meters:
            consumer.restate(meters[consumer])
        new.attach(consumer)
        consumer.queued = 0
        consumer.prepend_held(waiting.get(consumer, []))
    channel.dispatcher = new
    # A copy: a reactive dispatcher calls consumers here, and these may connect others.
    for consumer in list(channel._consumers):
        held = consumer.take_held()
        while held is not None:
            new.submit(consumer, held[0], held[1])
            held = consumer.take_held()
    return old


def _apply(channel: Carrier, change: Change) -> Correlator:
    """Return the old correlator, for the same reason."""
    consumer = change.consumer
    consumer.queue_max = change.queue_max
    consumer.evict_after = change.evict_after
    consumer.evict_slow = change.evict_slow
    before = consumer.correlator
    if change.dependency is not None:
        fresh = Correlator(change.dependency, channel._heap)
        with channel._timer_lock, consumer.lock:
            before.stop()
            consumer.correlator = fresh
            consumer.generation += 1
            fresh.start(channel.clock(), consumer)
        if fresh.timer_count and channel._timing is not None:
            channel._timing.rearm()
    return before


def _swap_timing(channel: Carrier, new: Timing | None) -> None:
    # The old one may be inside `wake`, which does not need the lock held here.
    if channel._timing is not None:
        channel._timing.close()
    channel._timing = new
    if new is not None:
        new.rearm()
