"""One lane: the queue of a priority, and the threads that serve it.

Lanes are made, ranked and closed by `Lanes`; what they need of it stands in a `LaneContext`. All of a
lane's fields are guarded by its lock. Order of locks: a lane's, then a consumer's.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from threading import Lock, Thread, get_ident
from typing import Final

from timebound.channel.consumer import PLAIN, Consumer, Pending, Queue
from timebound.channel.dispatching import QUEUE_MAX
from timebound.channel.event import Event
from timebound.channel.gate import Gate
from timebound.channel.realtime import become_real_time, lane_priority, set_priority
from timebound.units import MILLISECOND

# A thread with nothing to do looks up this often, so that a lost wake-up heals.
IDLE_WAIT_S: Final = 1.0
# Threads one lane may be given; each stuck consumer needs one.
THREADS_MAX: Final = 16
# After this long in one consumer, others in its lane get a thread of their own.
STALL_NS: Final = 50 * MILLISECOND

# Sub-priority, arrival, consumer, event, mask: what waits in a lane.
Command = tuple[int, int, Consumer, Event, int]


class LaneContext:
    """What all lanes of a dispatcher share."""

    def __init__(
        self,
        *,
        real_time: bool,
        cpu: int | None,
        priority_max: int,
        pass_on: Callable[[Consumer, Event, int], None],
        notice: Callable[[str], None],
    ) -> None:
        self.real_time: Final = real_time
        self.cpu: Final = cpu
        self.priority_max: Final = priority_max
        self.pass_on: Final = pass_on
        self.permission_trouble = ""
        self.lane_of_thread: dict[int, Lane] = {}
        self._notice: Final = notice

    def note_permission(self, trouble: str) -> None:
        """Report once that the system grants no real-time priorities."""
        if not self.permission_trouble:
            self.permission_trouble = trouble
            self._notice(f"lanes run at normal priority: {trouble}")


class Worker:
    """One thread of a lane; it waits at its gate while it idles, for whoever has work for it."""

    def __init__(self, lane: Lane, number: int) -> None:
        self.lane = lane
        self.gate = Gate()
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
                self.gate.wait(IDLE_WAIT_S)
                if self.arrived.locked():
                    self.arrived.release()


class Lane(Queue):
    """The queue of one priority, and its threads."""

    def __init__(self, context: LaneContext, key: int, threads: int) -> None:
        self.key: Final = key
        self.threads = threads
        self.consumers: list[Consumer] = []
        self.rank = 0
        self.is_closed = False
        self.workers: list[Worker] = []
        # Deliveries whose filter was still running when the lane closed; None once nobody collects them.
        self.late: list[Pending] | None = []
        self._context = context
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
        context = self._context
        context.lane_of_thread[get_ident()] = self
        if context.real_time:
            trouble = become_real_time(lane_priority(self.rank, context.priority_max), context.cpu)
            if trouble:
                context.note_permission(trouble)

    def end_thread(self) -> None:
        self._context.lane_of_thread.pop(get_ident(), None)

    def set_rank(self, rank: int) -> None:
        self.rank = rank
        context = self._context
        if not context.real_time or context.permission_trouble:
            return
        for worker in list(self.workers):
            if worker.thread.native_id is not None:
                set_priority(worker.thread.native_id, lane_priority(rank, context.priority_max))

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
        woken: list[Worker] = []
        with self._lock:
            for _ in range(min(len(self._heap), len(self._idle))):
                woken.append(self._call_one())
        # Without the lock: who wakes will want it.
        for worker in woken:
            worker.gate.open()
        return woken[-1] if woken else None

    def unpark(self, consumer: Consumer, arrival: int, event: Event, mask: int) -> None:
        heapq.heappush(self._heap, (consumer.sub_priority, arrival, consumer, event, mask))
        if self._idle:
            self._call_one().gate.open()

    def end(self, consumer: Consumer) -> None:
        with self._lock:
            other = consumer.finish(self)
        if other is not None:
            other.end(consumer)

    def _call_one(self) -> Worker:
        """Take an idle worker whose gate is to be opened; the caller has the lock, so nobody else does."""
        worker = self._idle.pop()
        worker.arrived.acquire(False)
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
            self._context.pass_on(consumer, ready, PLAIN)
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
            while self._idle:
                self._call_one().gate.open()
        return pending

    def take_late(self) -> list[Pending]:
        """What was being filtered at the close; whoever is still at it later passes its event on itself."""
        with self._lock:
            late, self.late = self.late, None
        return late or []


def order(command: Command) -> tuple[int, int]:
    return (command[0], command[1])
