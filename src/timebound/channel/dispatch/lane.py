"""One lane: the queue of a priority, and the threads that serve it.

A lane's own threads take the next command of the queue. If a consumer takes too long, `relieve` adds a thread
to the lane, and a consumer that keeps others waiting is *set apart*: its thread serves it alone, at a lower
priority than consumers that keep to what they stated.

`Lanes` makes, ranks and closes lanes; a `LaneContext` has what they need of it. The file is long because one
lock guards all fields of a lane and of its workers. Order of locks: a lane's, then a consumer's.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from threading import Lock, Thread, get_ident
from typing import Final

from timebound.channel.base.consumer import (
    BEST_EFFORT,
    NOT_BEGUN,
    PATIENCE_NS,
    PLAIN,
    Consumer,
    Pending,
    Queue,
)
from timebound.channel.base.event import Event
from timebound.channel.base.realtime import APART_PRIORITY, become_real_time, lane_priority, set_priority
from timebound.channel.dispatch.dispatcher import QUEUE_MAX
from timebound.channel.dispatch.gate import Alarm, Gate

# An idle thread checks for work this often, in case a wake-up was lost; a surplus one ends then.
IDLE_WAIT_S: Final = 1.0
# Default limit of threads of one lane; each consumer that is stuck needs one, with two file descriptors.
THREADS_MAX: Final = 64
# A consumer without an operation that keeps others waiting this often in a row is slow. Once may be chance:
# on a busy machine any thread can be interrupted that long.
STRIKES: Final = 2
# After this many quick runs in a row, a consumer that was set apart shares the lane's threads again.
QUICK_RUNS: Final = 100
# Deliveries put aside at a time for consumers that run elsewhere, at up to 4 µs each: the lane's lock is held
# meanwhile. Taking a backlog of 10,000 at once kept the rest of the lane waiting for 40 ms.
PARK_MAX: Final = 16
# Nothing is due: later than any clock.
NEVER_NS: Final = 1 << 62
# The key of no worker.
NOBODY: Final = 0

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
        threads_max: int,
        pass_on: Callable[[Consumer, Event, int], None],
        notice: Callable[[str], None],
    ) -> None:
        self.real_time: Final = real_time
        self.cpu: Final = cpu
        self.priority_max: Final = priority_max
        self.threads_max: Final = threads_max
        self.pass_on: Final = pass_on
        self.permission_trouble = ""
        self.lane_of_thread: dict[int, Lane] = {}
        self.ranked: list[Lane] = []  # the most urgent first; never changed, only replaced
        self.notice: Final = notice
        # When the lanes will next be checked for consumers that take too long.
        self.look_ns = NEVER_NS
        # The key of the worker whose step is the reason. Not the worker itself: a compiled assignment
        # releases the old value first, and other threads could then read a freed worker.
        self.look_for = NOBODY
        self.alarm: Final = Alarm()
        self._look_lock: Final = Lock()

    def note_permission(self, trouble: str) -> None:
        """Report once that the system grants no real-time priorities."""
        with self._look_lock:
            is_first = not self.permission_trouble
            self.permission_trouble = trouble
        if is_first:
            self.notice(f"lanes run at normal priority: {trouble}")

    def look_by(self, due_ns: int, key: int = NOBODY) -> None:
        """Check all lanes by `due_ns` at the latest; the worker of this key may postpone it."""
        with self._look_lock:
            if due_ns < self.look_ns:
                self.look_ns = due_ns
                self.look_for = key
                self.alarm.set(due_ns)

    def look_later(self, worker: Worker) -> None:
        """Postpone the check, because the step that was its reason is over."""
        with self._look_lock:
            if self.look_for == worker.key:
                self.look_ns = self.next_look_ns()
                if worker.running is None:
                    self.look_for = NOBODY
                self.alarm.set(self.look_ns)

    def next_look_ns(self) -> int:
        """Return when the lanes, as they are now, should be checked."""
        due_ns = NEVER_NS
        others_wait = False
        for lane in reversed(self.ranked):
            if others_wait or lane.has_waiting():
                due_ns = min(due_ns, lane.relief_due_ns())
            due_ns = min(due_ns, lane.stall_due_ns())
            others_wait = others_wait or lane.is_in_use()
        return due_ns

    def begin_look(self) -> None:
        """Begin a check; afterwards none is due until `look_by` is called."""
        with self._look_lock:
            self.look_ns = NEVER_NS


class Worker:
    """One thread of a lane; while idle it waits at its gate."""

    def __init__(self, lane: Lane, number: int) -> None:
        self.lane = lane
        self.key: Final = id(self)
        self.gate = Gate()
        self.arrived = Lock()  # shut from the moment its gate is opened until it runs
        self.running: Consumer | None = None
        self.since_ns = 0
        self.due_ns = NEVER_NS  # until when others wait for what it runs
        self.stall_reported = False
        self.is_apart = False  # it serves a consumer that was set apart, or none, but not the queue
        self.is_inside = False  # the consumer, or its filter
        self.is_behind = False  # with a priority behind all lanes, while it is inside
        self.handed: Command | None = None  # what it is to run next, when apart
        self.cpu_clock = 0  # of its thread; 0 where the system has none
        name = f"timebound-lane-{lane.key}-{number}"
        self.thread = Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        lane = self.lane
        lane.begin_thread(self)
        while True:
            command = lane.take(self)
            if command is not None:
                lane.execute(self, command)
                continue
            is_called = not lane.is_closed and self.gate.wait(IDLE_WAIT_S)
            if self.arrived.locked():
                self.arrived.release()
            if not is_called and lane.should_end(self):
                lane.end_thread()
                return

    def start_step(self, consumer: Consumer, now_ns: int) -> None:
        consumer.cpu_begin_ns = NOT_BEGUN
        self.running = consumer
        self.since_ns = now_ns
        self.due_ns = now_ns + consumer.patience_ns
        self.stall_reported = False

    def hand(self, command: Command | None) -> None:
        """Hand it a command of a slow consumer, if there is one."""
        if command is not None:
            self.is_apart = True
            self.is_behind = True
            self.handed = command
            self.start_step(command[2], time.monotonic_ns())

    def has_overrun(self, consumer: Consumer) -> bool:
        """Whether it used more processor time than it may, rather than waiting for something.

        Without an operation that is assumed: a thread that keeps computing at the priority of its lane would
        keep the new one from running, perhaps while that one has the lane's lock.
        """
        if consumer.meter is None or self.cpu_clock == 0:
            return True
        begin_ns = consumer.cpu_begin_ns
        used_ns = time.clock_gettime_ns(self.cpu_clock) - begin_ns
        return begin_ns != NOT_BEGUN and used_ns > consumer.budget_ns


class Lane(Queue):
    """The queue of one priority, and its threads."""

    def __init__(self, context: LaneContext, key: int, threads: int) -> None:
        self.key: Final = key
        self.threads = threads
        self.consumers: list[Consumer] = []
        self.rank = 0
        self.is_closed = False
        self.workers: list[Worker] = []
        # Deliveries whose filter was still running when the lane closed; None once they are collected.
        self.late: list[Pending] | None = []
        self._context = context
        self._lock = Lock()
        self._heap: list[Command] = []
        self._idle: list[Worker] = []
        self._idle_apart: list[Worker] = []
        self._arrivals = 0
        self._workers_ever = 0
        self._shortage = ""  # why there are too few threads, until it is reported
        self._is_short = False
        self._has_extra = False  # more threads for the queue than its own number

    # --- threads ------------------------------------------------------------------------

    def grow(self, extra: int = 0) -> None:
        """Start threads for the queue, up to the lane's own number and some extra ones."""
        with self._lock:
            own = sum(not worker.is_apart for worker in self.workers)
            self._has_extra = self._has_extra or extra > 0
            while own < self.threads + extra and not self.is_closed:
                if self._idle_apart:
                    self._call_back(self._idle_apart.pop())
                elif self._add_worker(None) is None:
                    break
                own += 1
        self._report_shortage()

    def _call_back(self, worker: Worker) -> None:
        """Return a worker that was apart to the queue."""
        worker.is_apart = False
        worker.is_behind = False
        worker.gate.open()

    def _add_worker(self, handed: Command | None) -> Worker | None:
        """Start a worker, apart if it is handed something; return None when there are too many.

        The caller holds the lock throughout, so that closing the lane finds only threads that run.
        """
        limit = self._context.threads_max
        if len(self.workers) >= limit:
            self._note_shortage(f"no threads are left (threads_max={limit})")
            return None
        self._workers_ever += 1
        try:
            worker = Worker(self, self._workers_ever)
            worker.hand(handed)
            worker.thread.start()
        except (OSError, RuntimeError) as error:
            self._note_shortage(f"no thread can be added ({error})")
            return None
        self.workers.append(worker)
        self._is_short = False
        return worker

    def _note_shortage(self, reason: str) -> None:
        if not self._is_short:
            self._is_short = True
            self._shortage = reason

    def _report_shortage(self) -> None:
        """Report once that threads are short; without the lock, because the program handles the report."""
        if self._shortage:
            reason, self._shortage = self._shortage, ""
            which = "without operations" if self.key == BEST_EFFORT else f"of period {self.key} ns"
            self._context.notice(f"consumers {which} wait for slow ones in their lane: {reason}")

    def begin_thread(self, worker: Worker) -> None:
        context = self._context
        context.lane_of_thread[get_ident()] = self
        if hasattr(time, "pthread_getcpuclockid"):
            worker.cpu_clock = time.pthread_getcpuclockid(get_ident())
        if context.real_time:
            trouble = become_real_time(self._priority_of(worker), context.cpu)
            if trouble:
                context.note_permission(trouble)
            # Once more: the lane may have been ranked anew in between.
            self._apply_priority(worker)

    def end_thread(self) -> None:
        self._context.lane_of_thread.pop(get_ident(), None)

    def _priority_of(self, worker: Worker) -> int:
        priority = lane_priority(self.rank, self._context.priority_max)
        # No thread takes the lane's lock below the lane's own priority: it could get the lock and then not
        # the processor, and the whole lane would wait.
        if not (worker.is_behind and worker.is_inside):
            return priority
        # Without an operation it may only have been interrupted: just below its lane, it is not starved.
        return max(priority - 1, APART_PRIORITY) if self.key == BEST_EFFORT else APART_PRIORITY

    def _apply_priority(self, worker: Worker) -> None:
        context = self._context
        thread_id = worker.thread.native_id
        if not context.real_time or context.permission_trouble or thread_id is None:
            return
        priority = 0
        # Repeated, because the worker may come back, or the lane be ranked anew, at the same time.
        while priority != self._priority_of(worker):
            priority = self._priority_of(worker)
            is_behind = priority < lane_priority(self.rank, context.priority_max)
            set_priority(thread_id, priority, takes_turns=is_behind)

    def _go_in(self, worker: Worker) -> None:
        worker.is_inside = True
        if worker.is_behind:
            self._apply_priority(worker)

    def _come_back(self, worker: Worker) -> None:
        worker.is_inside = False
        if worker.is_behind:
            self._apply_priority(worker)

    def set_rank(self, rank: int) -> None:
        self.rank = rank
        for worker in list(self.workers):
            self._apply_priority(worker)

    def should_end(self, worker: Worker) -> bool:
        """Whether an idle worker is no longer needed, or the lane is closed."""
        with self._lock:
            idle = self._idle_apart if worker.is_apart else self._idle
            if not self.is_closed:
                if worker not in idle:
                    return False  # it has just been handed work
                own = sum(not other.is_apart for other in self.workers)
                if not worker.is_apart and own <= self.threads:
                    return False
            if worker.handed is not None:
                return False
            if worker in idle:
                idle.remove(worker)
            self.workers.remove(worker)
            return True

    # --- the queue ----------------------------------------------------------------------

    def put(self, consumer: Consumer, event: Event, mask: int) -> bool:
        """Queue a delivery, to be followed by `wake`; return False when the lane is closed."""
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
        """Wake as many idle threads as there is work for; return one of them."""
        woken: list[Worker] = []
        due_ns = NEVER_NS
        with self._lock:
            for _ in range(min(len(self._heap), len(self._idle))):
                woken.append(self._call_one())
            if self._heap:
                # Also for those just woken: a thread that computes may keep them from the processor.
                due_ns = self.relief_due_ns()
        # Without the lock: the woken threads will want it.
        for worker in woken:
            worker.gate.open()
        if due_ns < self._context.look_ns:
            self._context.look_by(due_ns)
        return woken[-1] if woken else None

    def relief_due_ns(self) -> int:
        """Return when the first worker of this queue will have taken too long."""
        due_ns = NEVER_NS
        for worker in self.workers:
            if worker.running is not None and not worker.is_behind:
                due_ns = min(due_ns, worker.due_ns)
        return due_ns

    def has_waiting(self) -> bool:
        return bool(self._heap)

    def is_in_use(self) -> bool:
        """Whether anything waits here, or runs and may have been interrupted."""
        return bool(self._heap) or any(w.running is not None and not w.is_apart for w in self.workers)

    def _is_above_others(self) -> bool:
        """Whether a less urgent lane would have to wait for an overrun in this one."""
        ranked = self._context.ranked
        return any(ranked[index].is_in_use() for index in range(self.rank + 1, len(ranked)))

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
        """Take an idle worker, whose gate the caller will open; the caller holds the lock."""
        worker = self._idle.pop()
        worker.arrived.acquire(False)
        return worker

    def take(self, worker: Worker) -> Command | None:
        """Return the next command for a worker; None leaves it idle."""
        context = self._context
        command: Command | None = None
        is_idle = False
        while command is None and not is_idle:
            with self._lock:
                if worker.is_apart:
                    return self._take_apart(worker)
                command = self._next(worker)
                if command is not None:
                    due_ns = self._look_due_ns(worker, command[2])
                elif not self._heap or self.is_closed:
                    worker.due_ns = NEVER_NS
                    self._idle.append(worker)
                    is_idle = True
            if command is None and not is_idle:
                # There was much to park: threads that wait for the lock may have it now.
                worker.gate.pass_by()
        self._report_shortage()
        if context.look_for == worker.key and context.look_ns < worker.due_ns - PATIENCE_NS // 2:
            # Not for each of many short steps: setting the alarm takes longer than a step.
            context.look_later(worker)
        if command is not None and due_ns < context.look_ns:
            context.look_by(due_ns, worker.key)
        return command

    def _next(self, worker: Worker) -> Command | None:
        """Begin the next command; those of slow consumers go to other workers."""
        if worker in self._idle:
            self._idle.remove(worker)
        command = self._pop()
        while command is not None and command[2].is_slow and self._hand_over(command):
            command = self._pop()
        if command is not None:
            worker.start_step(command[2], time.monotonic_ns())
        return command

    def _look_due_ns(self, worker: Worker, consumer: Consumer) -> int:
        """Return when a step that has just begun should be checked."""
        if self._heap or self._is_above_others():
            return worker.due_ns
        # No other delivery waits for it; it is only reported if it never comes back.
        return worker.since_ns + consumer.stall_ns

    def _pop(self) -> Command | None:
        """Claim the consumer of the next command; commands of consumers that are running are parked.

        Return None when nothing waits, or after parking enough: then there may be more in the queue.
        """
        for _ in range(PARK_MAX):
            if not self._heap or self.is_closed:
                break
            command = heapq.heappop(self._heap)
            if command[2].begin(self, command[1], command[3], command[4]):
                return command
        return None

    def _take_apart(self, worker: Worker) -> Command | None:
        if worker in self._idle_apart:
            self._idle_apart.remove(worker)
        command, worker.handed = worker.handed, None
        if command is None:
            self._idle_apart.append(worker)
        return command

    def _hand_over(self, command: Command) -> bool:
        """Hand a command to a worker that is apart; return False when none is free or can be added."""
        if not self._idle_apart:
            return self._add_worker(command) is not None
        worker = self._idle_apart.pop()
        worker.hand(command)
        worker.gate.open()
        return True

    def execute(self, worker: Worker, command: Command) -> None:
        """Run one step: a filter, whose event then returns to its place in the queue, or the consumer."""
        _, arrival, consumer, event, mask = command
        ready: Event | None = None
        self._go_in(worker)
        try:
            if mask == PLAIN:
                consumer.run(event)
            elif not consumer.is_closed:
                ready = consumer.evaluate(event, mask)
        except BaseException as error:
            # SystemExit and its like must not end a lane that other consumers share.
            consumer.fail(event, error)
        self._come_back(worker)
        is_late = False
        with self._lock:
            if ready is not None:
                is_late = not self._requeue(worker, consumer, arrival, ready)
            elif consumer.queued > 0:
                consumer.queued -= 1
            if worker.is_apart:
                if self._goes_on(worker, consumer):
                    return
            elif consumer.strikes:
                consumer.strikes = 0
            worker.running = None
            other = consumer.finish(self)
            if self._has_extra:
                self._dismiss(worker)
            if worker.is_apart and self._heap and self._idle:
                # It will not look into the queue itself.
                self._call_one().gate.open()
        if is_late:
            assert ready is not None
            self._context.pass_on(consumer, ready, PLAIN)
        if other is not None:
            # It reconfigured its own channel: its lane is gone, and the next one has parked something.
            other.end(consumer)

    def _requeue(self, worker: Worker, consumer: Consumer, arrival: int, ready: Event) -> bool:
        """Queue what passed a filter, under its old number; return False when the lane is long closed."""
        if not self.is_closed:
            if worker.is_apart and consumer.is_slow:
                consumer.park_first(self, arrival, ready, PLAIN)
            else:
                consumer.call_back(arrival)
                heapq.heappush(self._heap, (consumer.sub_priority, arrival, consumer, ready, PLAIN))
        elif self.late is not None:
            self.late.append((consumer, ready, PLAIN))
        else:
            return False
        return True

    # --- slow consumers -----------------------------------------------------------------

    def _goes_on(self, worker: Worker, consumer: Consumer) -> bool:
        """Whether a worker stays with its consumer after a step apart; the caller holds the lock."""
        if not consumer.is_slow or self._is_short:
            # With its next event it may use as much again. If the queue has too few threads, this one serves
            # it now; otherwise it waits until it is needed.
            if sum(not other.is_apart for other in self.workers) < self.threads:
                worker.is_apart = False
            worker.is_behind = False
            return False
        now_ns = time.monotonic_ns()
        is_quick = now_ns - worker.since_ns <= consumer.patience_ns
        consumer.quick_runs = consumer.quick_runs + 1 if is_quick else 0
        following = None if self.is_closed else consumer.next_parked(self)
        if following is None:
            if consumer.quick_runs >= QUICK_RUNS:
                consumer.is_slow = False
            return False
        arrival, event, mask = following
        worker.handed = (consumer.sub_priority, arrival, consumer, event, mask)
        worker.start_step(consumer, now_ns)
        return True

    def _dismiss(self, worker: Worker) -> None:
        """Take a worker from the queue if that has more than it needs."""
        own = sum(not other.is_apart for other in self.workers)
        self._has_extra = own > self.threads
        if self._has_extra and not worker.is_apart:
            worker.is_apart = True

    def stall_due_ns(self) -> int:
        """Return when the next consumer is to be reported as stalled."""
        due_ns = NEVER_NS
        for worker in self.workers:
            consumer = worker.running
            if consumer is not None and not worker.stall_reported:
                due_ns = min(due_ns, worker.since_ns + consumer.stall_ns)
        return due_ns

    def relieve(self, now_ns: int, others_wait: bool) -> list[Consumer]:
        """Set apart workers that keep this lane or less urgent ones (`others_wait`) waiting; replace them.

        Return the consumers that are newly found to be stuck.
        """
        found: list[Consumer] = []
        waiting = 0
        with self._lock:
            is_awaited = bool(self._heap)
            for worker in self.workers:
                consumer = worker.running
                if consumer is None:
                    continue
                taken_ns = now_ns - worker.since_ns
                if taken_ns > consumer.stall_ns and not worker.stall_reported:
                    worker.stall_reported = True
                    found.append(consumer)
                if worker.is_behind or taken_ns <= consumer.patience_ns or not (is_awaited or others_wait):
                    continue
                if worker.has_overrun(consumer):
                    self._set_apart(worker, consumer)
                else:
                    # It waits for a device, or for more urgent lanes: then the new thread does as well.
                    worker.due_ns = now_ns + consumer.patience_ns
                    waiting += is_awaited
        self.grow(waiting)
        return found

    def _set_apart(self, worker: Worker, consumer: Consumer) -> None:
        """Take a thread from the queue; it continues with its consumer, below all lanes."""
        if consumer.meter is None:
            consumer.strikes += 1
            if consumer.strikes >= STRIKES:
                # It stated nothing and is slow again: its next event will not take the lane's thread.
                consumer.is_slow = True
                consumer.quick_runs = 0
        worker.is_apart = True
        worker.is_behind = True
        self._apply_priority(worker)

    # --- the end ------------------------------------------------------------------------

    def close(self) -> list[Pending]:
        """Stop taking work; return what waited, in the order in which it would have run."""
        with self._lock:
            self.is_closed = True
            waiting = self._heap
            self._heap = []
            for consumer in self.consumers:
                for arrival, event, mask in consumer.take_parked(self):
                    waiting.append((consumer.sub_priority, arrival, consumer, event, mask))
            while self._idle:
                self._call_one().gate.open()
            for worker in self._idle_apart:
                worker.gate.open()
        waiting.sort(key=order)
        return [(command[2], command[3], command[4]) for command in waiting]

    def take_late(self) -> list[Pending]:
        """Return what passed its filter since the close; filters that end later pass their event on."""
        with self._lock:
            late, self.late = self.late, None
        return late or []


def order(command: Command) -> tuple[int, int]:
    return (command[0], command[1])
