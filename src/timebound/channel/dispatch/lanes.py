"""Dispatching in lanes: one queue and its threads for each priority.

A lane belongs to one period (the rate-monotonic priority) and orders its queue by sub-priority, then by
arrival. Every step is a command of its own: a consumer's filter runs in its lane and goes back into the
queue, so a long one delays neither the supplier nor the head of the queue. A consumer runs in one thread
at a time. If one takes longer than it may, another thread takes over its lane: a watch thread checks all
lanes while deliveries wait, and sleeps otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock, Thread, get_ident
from typing import Final

from timebound.channel.base.consumer import PLAIN, Consumer, Pending
from timebound.channel.base.errors import ChannelError
from timebound.channel.base.event import Event
from timebound.channel.base.filtering import Route
from timebound.channel.base.realtime import LANE_PRIORITY_MAX, become_real_time, switch_interval
from timebound.channel.base.reports import Kind, Report
from timebound.channel.dispatch.dispatcher import Dispatcher
from timebound.channel.dispatch.lane import THREADS_MAX, Lane, LaneContext, Worker
from timebound.units import MILLISECOND, SECOND

# How long a supplier steps back for the thread it woke; a wake-up takes some 20 µs.
YIELD_S: Final = 0.001
# Suppliers step back at most this often; bursts that come faster are served at the next switch.
YIELD_SPACING_NS: Final = 100_000
# Lanes are checked this often even if nothing is due, in case an alarm was lost.
LOOK_NS_MAX: Final = SECOND
# The system has fewer priorities than this, so more lanes would gain nothing.
LANES_MAX: Final = 64


class Lanes(Dispatcher):
    """One lane for each period among the consumers' operations, and one for those without.

    `threads` is the number that each lane starts with, `threads_of` that of single lanes by their period in
    nanoseconds (BEST_EFFORT: consumers without an operation), `threads_max` the limit while consumers take
    too long. With `real_time`, threads ask for SCHED_FIFO and share one processor (`cpu`, or the last one
    allowed), the most urgent lane at `priority_max`, and Python's switch interval is shortened;
    `permission_trouble` has the reason if the system refuses. With `yields`, a supplier pauses so that a
    thread it woke runs at once.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        threads_of: dict[int, int] | None = None,
        threads_max: int = THREADS_MAX,
        real_time: bool = True,
        cpu: int | None = None,
        priority_max: int = LANE_PRIORITY_MAX,
        yields: bool = True,
    ) -> None:
        super().__init__()
        self.threads = _checked(threads, threads_max)
        self._threads_of: dict[int, int] = {}
        if threads_of is not None:
            for period_ns, number in threads_of.items():
                self._threads_of[period_ns] = _checked(number, threads_max)
        self._yields = yields
        self._stepped_back_ns = 0
        self._context = LaneContext(
            real_time=real_time,
            cpu=cpu,
            priority_max=priority_max,
            threads_max=threads_max,
            pass_on=self.pass_on,
            notice=self.notice,
        )
        self._lanes: dict[int, Lane] = {}
        self._lock = Lock()
        self._watch: Thread | None = None
        self._is_closed = False

    def start(
        self,
        redispatch: Callable[[Consumer, Event, int], None],
        report: Callable[[Report], None],
    ) -> None:
        if self._watch is not None:
            raise ChannelError("lanes were started before; make new ones for each channel")
        super().start(redispatch, report)
        switch_interval.shorten()
        self._watch = Thread(target=self._watch_lanes, name="timebound-lane-watch", daemon=True)
        self._watch.start()

    def attach(self, consumer: Consumer) -> None:
        with self._lock:
            lane = self._lanes.get(consumer.lane_key)
            if lane is None:
                if len(self._lanes) >= LANES_MAX:
                    raise ChannelError(
                        f"consumer {consumer.name!r} needs another lane, but the limit is {LANES_MAX}"
                    )
                threads = self._threads_of.get(consumer.lane_key, self.threads)
                lane = Lane(self._context, consumer.lane_key, threads)
                self._lanes[consumer.lane_key] = lane
            lane.consumers.append(consumer)
            self._rank_lanes()
        lane.grow()

    def detach(self, consumer: Consumer) -> None:
        with self._lock:
            lane = self._lanes.get(consumer.lane_key)
            if lane is None or consumer not in lane.consumers:
                return
            lane.consumers.remove(consumer)
            if lane.consumers:
                return
            del self._lanes[consumer.lane_key]
            self._rank_lanes()
        # Whatever waits there is for consumers that have left.
        lane.close()

    def set_threads(self, threads: int, *, period_ns: int | None = None) -> None:
        """Change the number of threads of every lane, or of that of one period, while events flow."""
        _checked(threads, self._context.threads_max)
        with self._lock:
            if period_ns is None:
                self.threads = threads
                self._threads_of.clear()
            else:
                self._threads_of[period_ns] = threads
            chosen = [lane for lane in self._lanes.values() if period_ns in (None, lane.key)]
        for lane in chosen:
            lane.threads = threads
            lane.grow()

    def set_lane_threads(self, threads_of: dict[int, int]) -> None:
        """Set the threads of single lanes by period, and the default for all others, while events flow."""
        for number in threads_of.values():
            _checked(number, self._context.threads_max)
        with self._lock:
            self._threads_of = dict(threads_of)
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.threads = threads_of.get(lane.key, self.threads)
            lane.grow()

    def lanes_max(self) -> int:
        return LANES_MAX

    @property
    def permission_trouble(self) -> str:
        """Why the system refused real-time priorities; empty when it granted them or was not asked."""
        return self._context.permission_trouble

    def dispatch(self, route: Route, event: Event) -> None:
        # All are queued before anybody is woken: one switch of threads serves a whole route.
        touched: list[Lane] = []
        for entry in route:
            consumer = entry.consumer
            if consumer.is_held:
                # Dispatching is being swapped: older deliveries wait at the consumer.
                assert self._redispatch is not None
                self._redispatch(consumer, event, entry.mask)
                continue
            lane = self._queue(consumer, event, entry.mask)
            # A route is ordered by urgency, so the consumers of one lane stand together.
            if lane is not None and (not touched or touched[-1] is not lane):
                touched.append(lane)
        if touched:
            self._wake(touched, steps_back=self._yields)

    def submit(self, consumer: Consumer, event: Event, mask: int) -> None:
        lane = self._queue(consumer, event, mask)
        if lane is not None:
            # The caller does not keep computing: it is the timers' thread, or a swap of modules.
            self._wake([lane], steps_back=False)

    def _queue(self, consumer: Consumer, event: Event, mask: int) -> Lane | None:
        """Put a delivery into its lane; return None when no lane has to be woken."""
        if self._is_closed:
            self.pass_on(consumer, event, mask)
            return None
        if mask != PLAIN and consumer.where is None:
            # Correlating takes less than queueing, so only what is complete is queued.
            ready = consumer.evaluate(event, mask)
            if ready is None:
                return None
            event, mask = ready, PLAIN
        while not consumer.is_closed:
            lane = self._lanes.get(consumer.lane_key)
            if lane is not None and lane.put(consumer, event, mask):
                return lane
            if self.has_ended():
                self.pass_on(consumer, event, mask)
                break
        return None

    def _wake(self, lanes: list[Lane], *, steps_back: bool) -> None:
        """Wake the lanes, and step back for the most urgent one."""
        first: Worker | None = None
        for lane in lanes:
            woken = lane.wake()
            if first is None:
                first = woken
        last = lanes[-1]
        for lane in self._context.ranked:
            # An overrun in a more urgent lane keeps this one waiting as well.
            if lane is last:
                break
            due_ns = lane.relief_due_ns()
            if due_ns < self._context.look_ns:
                self._context.look_by(due_ns)
        if first is not None and steps_back:
            self._step_back(first)

    def has_ended(self) -> bool:
        return self._is_closed

    def pass_on(self, consumer: Consumer, event: Event, mask: int) -> None:
        """Pass a delivery that came too late for these lanes to the next dispatcher."""
        if self._is_closed and not consumer.is_closed:
            assert self._redispatch is not None
            self._redispatch(consumer, event, mask)

    def close(self, limit_ns: int) -> list[Pending]:
        with self._lock:
            self._is_closed = True
            lanes = [self._lanes[key] for key in sorted(self._lanes)]
        pending: list[Pending] = []
        for lane in lanes:
            pending += lane.close()
        self._context.alarm.open()
        until_ns = time.monotonic_ns() + limit_ns
        for lane in lanes:
            for worker in list(lane.workers):
                self._join(worker, until_ns)
        late: list[Pending] = []
        for lane in lanes:
            late += lane.take_late()
        switch_interval.restore()
        return late + pending

    def _join(self, worker: Worker, until_ns: int) -> None:
        # A consumer may reconfigure its own channel: its thread cannot wait for itself.
        if worker.thread.ident == get_ident():
            return
        worker.thread.join(max(until_ns - time.monotonic_ns(), 0) / SECOND)
        consumer = worker.running
        if worker.thread.is_alive() and consumer is not None and self._report is not None:
            self._report(Report(Kind.STALLED, consumer.name, "is still running in lanes that were closed"))

    def _step_back(self, worker: Worker) -> None:
        """Yield Python's lock to a thread that was just woken, instead of keeping it until the next switch.

        Without this, a supplier that keeps computing delays it by up to 5 ms. In a burst there is one switch
        for many events. A lane does not step back for a less urgent one.
        """
        own = self._context.lane_of_thread.get(get_ident())
        now_ns = time.monotonic_ns()
        if (
            own is not None and own.rank <= worker.lane.rank
        ) or now_ns - self._stepped_back_ns < YIELD_SPACING_NS:
            return
        if worker.arrived.acquire(True, YIELD_S):
            worker.arrived.release()
        self._stepped_back_ns = time.monotonic_ns()

    def _rank_lanes(self) -> None:
        ranked = [self._lanes[key] for key in sorted(self._lanes)]
        self._context.ranked = ranked
        for rank, lane in enumerate(ranked):
            if lane.rank != rank:
                lane.set_rank(rank)

    def _watch_lanes(self) -> None:
        """Check for consumers that take too long, until the lanes are closed."""
        context = self._context
        if context.real_time:
            # An ordinary thread could lose the processor while it has Python's lock, and then even the most
            # urgent lane would wait for it.
            become_real_time(context.priority_max + 1, context.cpu)
        looked_ns = time.monotonic_ns()
        while not self._is_closed:
            now_ns = time.monotonic_ns()
            due_ns = min(context.look_ns, looked_ns + LOOK_NS_MAX)
            if due_ns > now_ns:
                context.alarm.wait((due_ns - now_ns) / SECOND)
            else:
                looked_ns = now_ns
                self._look()

    def _look(self) -> None:
        context = self._context
        now_ns = time.monotonic_ns()
        context.begin_look()
        others_wait = False
        for lane in reversed(context.ranked):
            for consumer in lane.relieve(now_ns, others_wait):
                consumer.stall(
                    f"has been processing one event for over {consumer.stall_ns // MILLISECOND} ms"
                )
            others_wait = others_wait or lane.is_in_use()
        context.look_by(context.next_look_ns())


def _checked(threads: int, threads_max: int) -> int:
    if not 1 <= threads <= threads_max:
        raise ValueError(f"threads={threads} is out of range (1 to threads_max={threads_max})")
    return threads
