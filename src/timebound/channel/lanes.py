"""Dispatching in lanes: one queue and its threads for each priority.

A lane belongs to one period (the rate-monotonic priority) and orders its queue by sub-priority, then by
arrival. Every step is a command of its own: a consumer's filter runs in its lane and goes back into the
queue, so a long one holds up neither the supplier nor the head of the line. A consumer runs in one
thread at a time; if it holds its lane for too long, the lane is given another thread.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from threading import Lock, Thread, get_ident
from typing import Final

from timebound.channel.consumer import PLAIN, Consumer, Pending, Queue
from timebound.channel.dispatching import QUEUE_MAX, Dispatcher
from timebound.channel.errors import ChannelError
from timebound.channel.event import Event
from timebound.channel.filtering import Route
from timebound.channel.realtime import (
    LANE_PRIORITY_MAX,
    become_real_time,
    lane_priority,
    set_priority,
    switch_interval,
)
from timebound.channel.reports import Kind, Report
from timebound.units import MILLISECOND, SECOND

# A thread with nothing to do looks up this often, so that a lost wake-up heals.
IDLE_WAIT_S: Final = 1.0
# How long a supplier steps back for the thread it woke; a wake-up takes some 20 µs.
YIELD_S: Final = 0.001
# Suppliers step back at most this often; bursts that come faster are served at the next switch.
YIELD_SPACING_NS: Final = 100_000
# Lanes beyond this share nothing useful: the system has fewer priorities.
LANES_MAX: Final = 64
# Threads one lane may be given; each stuck consumer needs one.
THREADS_MAX: Final = 16
# After this long in one consumer, others in its lane get a thread of their own.
STALL_NS: Final = 50 * MILLISECOND

# Sub-priority, arrival, consumer, event, mask: what waits in a lane.
Command = tuple[int, int, Consumer, Event, int]


class Worker:
    """One thread of a lane; `gate` is shut while it idles, and opened by whoever has work for it."""

    def __init__(self, lane: Lane, number: int) -> None:
        self.lane = lane
        self.gate = Lock()
        self.arrived = Lock()  # shut from the moment its gate is opened until it runs
        self.running: Consumer | None = None
        self.since_ns = 0
        self.stall_reported = False
        name = f"timebound-lane-{lane.key}-{number}"
        self.thread = Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        lane = self.lane
        lane.begin_thread()
        while True:
            command = lane.take(self)
            if command is not None:
                lane.execute(self, command)
            elif lane.should_end(self):
                lane.end_thread()
                return
            else:
                self.gate.acquire(True, IDLE_WAIT_S)
                if self.arrived.locked():
                    self.arrived.release()


class Lane(Queue):
    """The queue of one priority, and its threads."""

    def __init__(self, lanes: Lanes, key: int, threads: int) -> None:
        self.key: Final = key
        self.threads = threads
        self.consumers: list[Consumer] = []
        self.rank = 0
        self.is_closed = False
        self.workers: list[Worker] = []
        # Deliveries whose filter was still running when the lane closed; None once nobody collects them.
        self.late: list[Pending] | None = []
        self._lanes = lanes
        self._lock = Lock()
        self._heap: list[Command] = []
        self._idle: list[Worker] = []
        self._arrivals = 0
        self._workers_ever = 0

    def grow(self, count: int = 0) -> None:
        """Start threads up to `count`, or up to the lane's own number."""
        started: list[Worker] = []
        with self._lock:
            wanted = min(max(count, self.threads), THREADS_MAX)
            while len(self.workers) < wanted and not self.is_closed:
                self._workers_ever += 1
                worker = Worker(self, self._workers_ever)
                self.workers.append(worker)
                started.append(worker)
        for worker in started:
            worker.thread.start()

    def begin_thread(self) -> None:
        self._lanes.enter_thread(self)
        if self._lanes.real_time:
            trouble = become_real_time(self._lanes.priority(self.rank), self._lanes.cpu)
            if trouble:
                self._lanes.note_permission(trouble)

    def end_thread(self) -> None:
        self._lanes.leave_thread()

    def set_rank(self, rank: int) -> None:
        self.rank = rank
        if self._lanes.real_time and not self._lanes.permission_trouble:
            for worker in list(self.workers):
                if worker.thread.native_id is not None:
                    set_priority(worker.thread.native_id, self._lanes.priority(rank))

    def put(self, consumer: Consumer, event: Event, mask: int) -> bool:
        """Queue a delivery, to be followed by `wake`; False when the lane is closed."""
        limit = consumer.queue_max or QUEUE_MAX
        with self._lock:
            if self.is_closed:
                return False
            is_full = consumer.queued >= limit
            if not is_full:
                consumer.queued += 1
                self._arrivals += 1
                heapq.heappush(self._heap, (consumer.sub_priority, self._arrivals, consumer, event, mask))
        if is_full:
            consumer.drop(event, limit)
        return True

    def wake(self) -> Worker | None:
        """Wake as many idle threads as there is work for; answer one of them."""
        woken: Worker | None = None
        with self._lock:
            for _ in range(min(len(self._heap), len(self._idle))):
                woken = self._wake_one()
        return woken

    def unpark(self, consumer: Consumer, arrival: int, event: Event, mask: int) -> None:
        heapq.heappush(self._heap, (consumer.sub_priority, arrival, consumer, event, mask))
        self._wake_one()

    def end(self, consumer: Consumer) -> None:
        with self._lock:
            other = consumer.finish(self)
        if other is not None:
            other.end(consumer)

    def _wake_one(self) -> Worker | None:
        """Open one idle worker's gate; the caller has the lock, so no gate is ever opened twice."""
        if not self._idle:
            return None
        worker = self._idle.pop()
        worker.arrived.acquire(False)
        worker.gate.release()
        return worker

    def take(self, worker: Worker) -> Command | None:
        """The next command whose consumer is not running elsewhere; None leaves the worker idle."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
            while self._heap and not self.is_closed:
                command = heapq.heappop(self._heap)
                consumer = command[2]
                if not consumer.begin(self, command[1], command[3], command[4]):
                    continue
                worker.running = consumer
                worker.since_ns = time.monotonic_ns()
                worker.stall_reported = False
                return command
            worker.gate.acquire(False)
            self._idle.append(worker)
            return None

    def execute(self, worker: Worker, command: Command) -> None:
        """Run one step: a filter, whose event then takes its place in the queue again, or the consumer."""
        _, arrival, consumer, event, mask = command
        ready: Event | None = None
        try:
            if mask == PLAIN:
                consumer.run(event)
            elif not consumer.is_closed:
                ready = consumer.evaluate(event, mask)
        except BaseException as error:
            # SystemExit and its like end programs, not the lane of somebody else's consumer.
            consumer.fail(event, error)
        if ready is not None and not self._requeue(consumer, arrival, ready):
            self._lanes.pass_on(consumer, ready, PLAIN)
        with self._lock:
            worker.running = None
            if ready is None and consumer.queued > 0:
                consumer.queued -= 1
            other = consumer.finish(self)
        if other is not None:
            # It reconfigured its own channel: its lane is gone, and the next one has parked something.
            other.end(consumer)

    def _requeue(self, consumer: Consumer, arrival: int, ready: Event) -> bool:
        with self._lock:
            if not self.is_closed:
                heapq.heappush(self._heap, (consumer.sub_priority, arrival, consumer, ready, PLAIN))
            elif self.late is not None:
                self.late.append((consumer, ready, PLAIN))
            else:
                return False
            return True

    def should_end(self, worker: Worker) -> bool:
        """Whether an idle worker is one too many, or the lane is over."""
        with self._lock:
            if not self.is_closed and len(self.workers) <= self.threads:
                return False
            if worker not in self._idle and not self.is_closed:
                return False  # it was given work just now
            if worker in self._idle:
                self._idle.remove(worker)
            self.workers.remove(worker)
            return True

    def relieve(self, now_ns: int) -> list[Consumer]:
        """Give the lane a thread for each one stuck while others wait; answer the newly stuck consumers."""
        found: list[Consumer] = []
        with self._lock:
            stuck = 0
            for worker in self.workers:
                consumer = worker.running
                if consumer is None or now_ns - worker.since_ns <= STALL_NS:
                    continue
                stuck += 1
                if not worker.stall_reported:
                    worker.stall_reported = True
                    found.append(consumer)
            needs_thread = stuck > 0 and bool(self._heap) and not self._idle
        if needs_thread:
            self.grow(self.threads + stuck)
        return found

    def close(self) -> list[Pending]:
        """Take no more work; answer what waited, in the order in which it would have run."""
        pending: list[Pending] = []
        with self._lock:
            self.is_closed = True
            # Parked deliveries left the heap first, so they come first.
            for consumer in self.consumers:
                pending += [(consumer, event, mask) for event, mask in consumer.take_parked(self)]
            pending += [(entry[2], entry[3], entry[4]) for entry in sorted(self._heap, key=order)]
            self._heap.clear()
            while self._wake_one() is not None:
                pass
        return pending

    def take_late(self) -> list[Pending]:
        """What was being filtered at the close; whoever is still at it later passes its event on itself."""
        with self._lock:
            late, self.late = self.late, None
        return late or []


def order(command: Command) -> tuple[int, int]:
    return (command[0], command[1])


class Lanes(Dispatcher):
    """One lane for each period among the consumers' operations, and one for those without.

    `threads` is how many each lane has from the start. With `real_time`, threads ask for SCHED_FIFO and
    share one processor (`cpu`, or the last one allowed), the most urgent lane at `priority_max`; Python's
    switch interval is shortened, and `permission_trouble` says why they did not get their priorities.
    `yields` lets a thread that was woken run at once, even while the supplier would go on computing.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        real_time: bool = True,
        cpu: int | None = None,
        priority_max: int = LANE_PRIORITY_MAX,
        yields: bool = True,
    ) -> None:
        super().__init__()
        if not 1 <= threads <= THREADS_MAX:
            raise ValueError(f"threads={threads} is out of range (1 to {THREADS_MAX})")
        self.threads = threads
        self.real_time = real_time
        self.cpu = cpu
        self.priority_max = priority_max
        self.permission_trouble = ""
        self._yields = yields
        self._stepped_back_ns = 0
        self._lane_of_thread: dict[int, Lane] = {}
        self._lanes: dict[int, Lane] = {}
        self._lock = Lock()
        self._watch: Thread | None = None
        self._watch_gate = Lock()
        self._watch_gate.acquire()
        self._is_closed = False

    def start(
        self,
        redispatch: Callable[[Consumer, Event, int], None],
        report: Callable[[Report], None],
    ) -> None:
        if self._watch is not None:
            raise ChannelError("lanes were started before; make new ones for each channel")
        super().start(redispatch, report)
        if self.real_time:
            switch_interval.shorten()
        self._watch = Thread(target=self._watch_lanes, name="timebound-lane-watch", daemon=True)
        self._watch.start()

    def attach(self, consumer: Consumer) -> None:
        with self._lock:
            lane = self._lanes.get(consumer.lane_key)
            if lane is None:
                if len(self._lanes) >= LANES_MAX:
                    raise ChannelError(
                        f"consumer {consumer.name!r} needs one lane too many (limit {LANES_MAX})"
                    )
                lane = Lane(self, consumer.lane_key, self.threads)
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
        """Give every lane, or the one of a period, more or fewer threads while events flow."""
        if not 1 <= threads <= THREADS_MAX:
            raise ValueError(f"threads={threads} is out of range (1 to {THREADS_MAX})")
        with self._lock:
            if period_ns is None:
                self.threads = threads
            chosen = [lane for lane in self._lanes.values() if period_ns in (None, lane.key)]
        for lane in chosen:
            lane.threads = threads
            lane.grow()

    def priority(self, rank: int) -> int:
        """The system's priority of a lane."""
        return lane_priority(rank, self.priority_max)

    def lane_count(self) -> int:
        return len(self._lanes)

    def dispatch(self, route: Route, event: Event) -> None:
        # All are queued before anybody is woken: one switch of threads serves a whole route.
        touched: list[Lane] = []
        for link in route:
            consumer = link.consumer
            if consumer.is_held:
                # Dispatching is being swapped: older deliveries wait at the consumer.
                assert self._redispatch is not None
                self._redispatch(consumer, event, link.mask)
                continue
            lane = self._queue(consumer, event, link.mask)
            # A route is ordered by urgency, so the consumers of one lane stand together.
            if lane is not None and (not touched or touched[-1] is not lane):
                touched.append(lane)
        if touched:
            self._wake(touched)

    def submit(self, consumer: Consumer, event: Event, mask: int) -> None:
        lane = self._queue(consumer, event, mask)
        if lane is not None:
            self._wake([lane])

    def _queue(self, consumer: Consumer, event: Event, mask: int) -> Lane | None:
        """Put a delivery into its lane; None when there is nothing to wake anybody for."""
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

    def _wake(self, lanes: list[Lane]) -> None:
        """Wake the lanes, and step back for the most urgent one."""
        first: Worker | None = None
        for lane in lanes:
            woken = lane.wake()
            if first is None:
                first = woken
        if first is not None and self._yields:
            self._step_back(first)

    def has_ended(self) -> bool:
        return self._is_closed

    def pass_on(self, consumer: Consumer, event: Event, mask: int) -> None:
        """Give a delivery that came too late for these lanes to those that follow them."""
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
        self._watch_gate.release()
        until_ns = time.monotonic_ns() + limit_ns
        for lane in lanes:
            for worker in list(lane.workers):
                self._join(worker, until_ns)
        late: list[Pending] = []
        for lane in lanes:
            late += lane.take_late()
        if self.real_time:
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
        """Let a thread that was just woken have Python's lock now rather than at the next switch.

        Without this, a supplier that computes on keeps it waiting for up to 5 ms. In a burst one switch
        must do for many events. A lane does not step back for a less urgent one.
        """
        own = self._lane_of_thread.get(get_ident())
        now_ns = time.monotonic_ns()
        if (
            own is not None and own.rank <= worker.lane.rank
        ) or now_ns - self._stepped_back_ns < YIELD_SPACING_NS:
            return
        if worker.arrived.acquire(True, YIELD_S):
            worker.arrived.release()
        self._stepped_back_ns = time.monotonic_ns()

    def enter_thread(self, lane: Lane) -> None:
        """Note that the calling thread belongs to a lane, until `leave_thread`."""
        self._lane_of_thread[get_ident()] = lane

    def leave_thread(self) -> None:
        self._lane_of_thread.pop(get_ident(), None)

    def note_permission(self, trouble: str) -> None:
        """Report once that the system grants no real-time priorities."""
        if not self.permission_trouble:
            self.permission_trouble = trouble
            self.notice(f"lanes run at normal priority: {trouble}")

    def _rank_lanes(self) -> None:
        for rank, key in enumerate(sorted(self._lanes)):
            lane = self._lanes[key]
            if lane.rank != rank:
                lane.set_rank(rank)

    def _watch_lanes(self) -> None:
        """Look after stuck consumers until the lanes are closed."""
        while not self._watch_gate.acquire(True, STALL_NS / SECOND):
            now_ns = time.monotonic_ns()
            with self._lock:
                lanes = list(self._lanes.values())
            for lane in lanes:
                for consumer in lane.relieve(now_ns):
                    consumer.stall(f"has held its lane for over {STALL_NS // MILLISECOND} ms")
