"""Drives the core on an event loop: one turn of decisions, writes and storage at a time.

Connections pass what they read to the input and request a turn. The turn runs once all readable sockets
have been read: it takes in messages, by weight and for a limited time (`input/input.py`), closes what the
core wants closed, writes to every session that became ready, hands the store orders over as one batch, and
sets the single timer. So work is batched under load, and nothing waits when there is none.

An internal error while one client is served ends that client (`failed`), is counted and logged with its
traceback; the turn continues (docs/decisions/0070-isolation.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from timebound.config.input import InputConfig
from timebound.config.limits import Limits
from timebound.core.account.trace_log import TraceBatch
from timebound.core.broker import Broker
from timebound.core.sessions.durability import Batch
from timebound.core.values.message import Message
from timebound.core.values.store_orders import PutOffset, StoreOrder
from timebound.linking.mesh import Mesh
from timebound.node.input.input import Input
from timebound.node.memory import SET_ASIDE_BYTES_MIN, MemoryKeeper
from timebound.node.notices import Notices
from timebound.units import SECOND
from timebound.wire.codec import clear_caches

logger = logging.getLogger("timebound.node")

# How often connections are checked for silence. Keep-alive counts in whole seconds.
PATROL_INTERVAL_S: Final = 1.0
# Orders that storage may be behind before publishers have to wait: some seconds of a busy disk.
STORAGE_ORDERS_MAX: Final = 100_000
# Time limit for emptying the input queues when stopping; they need far less. What is left was never
# acknowledged, so its publisher sends it again.
STOP_INPUT_NS_MAX: Final = 2 * SECOND
# Errors logged with their traceback between two patrols, so that one that recurs in every turn does not
# fill the disk.
FAULTS_LOGGED_MAX: Final = 20
# A constant, since compiled code looks up an attribute of a module by name: 2 % of a message's instructions.
_MONOTONIC_NS: Final[Callable[[], int]] = time.monotonic_ns
# MQTT 5, 2.4: Unspecified error. Details are for the log, not for clients.
UNSPECIFIED_ERROR: Final = 0x80


class BatchStorage(Protocol):
    """The storage, as the driver uses it."""

    @property
    def pending_orders(self) -> int: ...

    def submit(self, orders: list[StoreOrder], done: Callable[[], None]) -> None: ...


class TraceSink(Protocol):
    """The trace, as the driver uses it."""

    def write(self, batch: TraceBatch) -> None: ...


class JournalSink(Protocol):
    """The journals, as the driver uses them."""

    def write(self, messages: list[Message]) -> None: ...

    def write_trace(self, batch: TraceBatch) -> None: ...

    def sync(self, done: Callable[[], None]) -> None: ...

    def offsets(self) -> list[tuple[str, int]]: ...

    def is_behind(self) -> bool: ...


class DrivenConnection(Protocol):
    """What the driver needs of a connection."""

    def flush(self) -> None: ...

    def close(self, reason_code: int, reason: str) -> None: ...

    def abort(self) -> None: ...

    def cut(self) -> None:
        """End the connection, whatever state an error has left it in."""

    def name(self) -> str: ...

    def patrol(self, now_ns: int) -> None: ...

    def read_again(self) -> None: ...


class Driver:
    """The event loop's side of one broker."""

    def __init__(
        self,
        broker: Broker,
        storage: BatchStorage,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        input_config: InputConfig | None = None,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.connections: dict[int, DrivenConnection] = {}
        self.emptied = asyncio.Event()  # set whenever the last connection has gone
        self.throttled: list[DrivenConnection] = []  # not read again before the turn is over
        self.authenticated = 0
        self.trace: TraceSink | None = None
        self.journals: JournalSink | None = None
        self.mesh: Mesh | None = None
        self.notices = Notices()
        self.doors: list[
            Any
        ] = []  # of all listeners; `handshake.Door`, not imported since it refers to the driver
        self._storage = storage
        self._syncing = 0  # batches that wait for the journals before they go to the storage
        self._storing = 0  # batches that the storage has
        self._is_awaiting_journals = False  # publishers wait until the journals have caught up
        self._loop = loop
        self._is_scheduled = False
        self._last_number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        # Monotonic inside the process, close to the wall clock across restarts: expiries are stored.
        self._clock_offset_ns = time.time_ns() - time.monotonic_ns()
        turn_s = (input_config or InputConfig()).turn_s
        self.input = Input(broker, self._clock_offset_ns, int(turn_s * SECOND))
        self.memory = MemoryKeeper(self._renew)
        self._window_ns = 0  # start of the window of immediate turns
        self._immediate_ns = 0  # their total time
        self._faults_logged = 0  # since the last patrol
        self._queued_bytes_peak = 0  # since the last patrol: a flood may be over before the next
        self.is_stopped = False  # further events are ignored: storage is being closed

    def now_ns(self) -> int:
        return self._clock_offset_ns + _MONOTONIC_NS()

    def next_number(self) -> int:
        """Return a new number for a connection."""
        self._last_number += 1
        return self._last_number

    def remove(self, number: int) -> None:
        """Remove a connection whose transport is closed."""
        self.connections.pop(number, None)
        if not self.connections:
            self.emptied.set()

    def schedule(self) -> None:
        """Request a turn after the currently readable sockets have been read."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.turn)

    def call_at_ns(self, when_ns: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a callback at a time of `now_ns`."""
        return self._loop.call_later(max(when_ns - self.now_ns(), 0) / 1_000_000_000, callback)

    def turn_now(self) -> None:
        """Run a turn at once, unless one is scheduled.

        Immediate turns serve clients in the order of reading, not by weight. If they take more than half
        of the time, further ones are therefore combined in one turn.
        """
        if self._is_scheduled:
            return
        started_ns = _MONOTONIC_NS()
        turn_ns = self.input.turn_ns
        if started_ns - self._window_ns > turn_ns:
            self._window_ns = started_ns
            self._immediate_ns = 0
        elif self._immediate_ns * 2 > turn_ns:
            self.schedule()
            return
        self.turn()
        self._immediate_ns += _MONOTONIC_NS() - started_ns

    def turn(self) -> None:
        """Take in messages, and carry out everything the core has decided."""
        self._is_scheduled = False
        if self.is_stopped:
            return
        has_input = self.input.has_more()
        if has_input:
            try:
                self.input.serve()
            except Exception as error:
                self.fault("taking in messages", error)
        try:
            self._write_out()
        except Exception as error:
            self.fault("a turn", error)
        try:
            self._keep()
        except Exception as error:
            self.fault("storing", error)
        self._go_on(has_input)

    def _write_out(self) -> None:
        """Close connections as decided, and write what is ready."""
        broker = self.broker
        queued_bytes = broker.queued_bytes()
        if queued_bytes > self._queued_bytes_peak:
            self._queued_bytes_peak = queued_bytes
        if queued_bytes >= SET_ASIDE_BYTES_MIN:
            self.memory.set_aside()
        for close in broker.take_closes():
            connection = self.connections.get(close.connection)
            if connection is not None:
                try:
                    connection.close(close.reason_code, close.reason)
                except Exception as error:
                    self.failed(connection, error)
        if self.mesh is not None:
            try:
                self.mesh.turn()
            except Exception as error:
                self.fault("the mesh", error)
        for session in broker.take_ready():
            served = self.connections.get(session.connection)
            if served is not None:
                try:
                    served.flush()
                except Exception as error:
                    self.failed(served, error)
        for fault in broker.take_faults():
            self.fault(f"client {fault.client_id!r}", fault.error)
            struck = self.connections.get(fault.connection)
            if struck is not None:
                self._end(struck)

    def _keep(self) -> None:
        """Hand over data to journals, storage and trace."""
        broker = self.broker
        if self.journals is not None:
            self.journals.write(broker.take_kept())
        batch = broker.take_batch()
        if batch is not None:
            self._store(batch)
        if not broker.account.trace.is_empty():
            self._hand_over_trace()

    def _go_on(self, has_input: bool) -> None:
        """Schedule the next turn, if there is something to do."""
        if self.broker.is_expiring():
            try:
                self.broker.continue_expiry(self.now_ns())
            except Exception as error:
                self.fault("the patrol", error)
            self.schedule()
        if self.broker.has_ready():
            self.schedule()
        if len(self.throttled) > 0:
            self._await_journals()
        is_flooded = len(self.throttled) > 0 and not self.is_storage_behind()
        if is_flooded:
            throttled = self.throttled
            self.throttled = []
            for paused in throttled:
                try:
                    paused.read_again()
                except Exception as error:
                    self.failed(paused, error)
        if has_input:
            self.input.end(is_flooded)
            if self.input.has_more() or is_flooded:
                self.schedule()
        else:
            self.input.rest()
        self._arm_timer()

    # --- internal errors ------------------------------------------------------------

    def failed(self, client: DrivenConnection, error: Exception) -> None:
        """Log and count an internal error, and end only the client being served."""
        self.fault(client.name(), error)
        self._end(client)

    def fault(self, name: str, error: Exception) -> None:
        """Log and count an internal error; no client is closed."""
        self.broker.counters.faults += 1
        self._faults_logged += 1
        if self._faults_logged <= FAULTS_LOGGED_MAX:
            logger.error("internal error while serving %s: %r", name, error, exc_info=error)

    def note(self, text: str, *, is_warning: bool) -> None:
        """Log what happened to a link between brokers."""
        logger.log(logging.WARNING if is_warning else logging.INFO, "%s", text)

    def _end(self, client: DrivenConnection) -> None:
        try:
            client.close(UNSPECIFIED_ERROR, "internal error")
        except Exception as error:
            self.fault(f"the end of {client.name()}", error)
            client.cut()
        self.schedule()

    def is_storage_behind(self) -> bool:
        """Whether the disk backlog requires publishers to wait."""
        if self.journals is not None and self.journals.is_behind():
            return True
        return self._storage.pending_orders > STORAGE_ORDERS_MAX

    def _await_journals(self) -> None:
        """Run a turn when the journals have written their current data: nothing else might cause one."""
        if self.journals is not None and not self._is_awaiting_journals and self.journals.is_behind():
            self._is_awaiting_journals = True
            self.journals.sync(lambda: self._call_from_thread(self._caught_up, None))

    def _caught_up(self, _: None) -> None:
        self._is_awaiting_journals = False
        self.turn()

    def _hand_over_trace(self) -> None:
        batch = self.broker.account.trace.take()
        if self.trace is not None:
            self.trace.write(batch)
        if self.journals is not None:
            self.journals.write_trace(batch)

    def wait_stored(self, done: Callable[[], None]) -> None:
        """Call `done`, in some thread, when everything decided so far is on disk."""
        self.turn()
        if self.journals is None:
            self._storage.submit([], done)
        else:
            self._syncing += 1
            self.journals.sync(lambda: self._call_from_thread(self._wait_storage, done))

    def _wait_storage(self, done: Callable[[], None]) -> None:
        self._syncing -= 1
        self._storage.submit([], done)

    def _store(self, batch: Batch) -> None:
        journals = self.journals
        if journals is None or (self._syncing == 0 and not batch.is_journaled):
            self._submit(batch)
            return
        # The journals first: messages that storage knows as received will not be sent again.
        if batch.is_journaled and batch.orders:
            batch.orders += self._offset_orders(journals)
        self._syncing += 1
        journals.sync(lambda: self._call_from_thread(self._synced, batch))

    def note_offsets(self) -> None:
        """Store the ends of the journals: earlier rows belong to what is stored."""
        if self.journals is not None:
            self._storage.submit(self._offset_orders(self.journals), _ignore)

    def _offset_orders(self, journals: JournalSink) -> list[StoreOrder]:
        return [PutOffset(journal, offset) for journal, offset in journals.offsets()]

    def _synced(self, batch: Batch) -> None:
        self._syncing -= 1
        if batch.orders or self._storing:
            self._submit(batch)
        else:  # nothing to store now or before: skip the storage's thread
            self._finish(batch)

    def _submit(self, batch: Batch) -> None:
        self._storing += 1
        # `done` is called from the storage's thread; batches complete in order.
        self._storage.submit(batch.orders, lambda: self._call_from_thread(self._committed, batch))

    def _call_from_thread(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:  # the loop is closed: the broker has stopped
            logger.debug("storage finished after the loop had closed")

    def note_from_thread(self, subject: str, start: str, reason: str) -> None:
        """Log a refusal decided in another thread."""
        now_ns = self.now_ns()
        self._call_from_thread(lambda _: self.notices.note(subject, start, reason, now_ns), None)

    def _committed(self, batch: Batch) -> None:
        self._storing -= 1
        self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        try:
            self.broker.committed(batch)
        except Exception as error:
            self.fault("what was stored", error)
        self.turn()

    def _arm_timer(self) -> None:
        wakeup_ns = self.broker.next_wakeup_ns()
        if wakeup_ns is None:
            return
        if self._timer is not None:
            if self._timer_ns <= wakeup_ns:
                return
            self._timer.cancel()
        self._timer_ns = wakeup_ns
        delay_s = max(wakeup_ns - self.now_ns(), 0) / 1_000_000_000
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _renew(self) -> None:
        """Forget or remake what may lie in memory that a flood has left: each such object keeps an arena."""
        self.broker.forget_matches()
        clear_caches()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._arm_timer()

    def _wake(self) -> None:
        self._timer = None
        try:
            self.broker.wake(max(self._timer_ns, self.now_ns()))
        except Exception as error:
            self.fault("timers", error)
        self.turn()

    def patrol(self) -> None:
        """Close connections that were silent too long; runs every PATROL_INTERVAL_S."""
        now_ns = self.now_ns()
        for connection in list(self.connections.values()):
            try:
                connection.patrol(now_ns)
            except Exception as error:
                self.failed(connection, error)
        try:
            self._patrol_all(now_ns)
        except Exception as error:
            self.fault("the patrol", error)
        self.turn()
        if self._faults_logged > FAULTS_LOGGED_MAX:
            logger.error("%d more internal errors", self._faults_logged - FAULTS_LOGGED_MAX)
        self._faults_logged = 0

    def _patrol_all(self, now_ns: int) -> None:
        self.broker.expire(now_ns)
        self.broker.reconcile()
        self.broker.entrance.update(now_ns)
        for alert in self.broker.counters.alerts:
            logger.warning("%s", alert)
        self.broker.counters.alerts.clear()
        self.notices.patrol(now_ns)
        self.memory.patrol(self._queued_bytes_peak, self.broker.session_count(), now_ns)
        self._queued_bytes_peak = self.broker.queued_bytes()
        if self.mesh is not None:
            self.mesh.patrol(now_ns)

    def stop(self) -> None:
        """Take in what was read before the connections were closed; then decide and store nothing more.

        Connections that are still open end as if the broker were killed: storage has everything that was
        acknowledged.
        """
        until_ns = self.now_ns() + STOP_INPUT_NS_MAX
        while self.now_ns() < until_ns and (self.input.has_more() or self.broker.is_matching()):
            if self.broker.is_matching():
                self.broker.wake(self.now_ns())
            self.turn()
        self.turn()
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ignore() -> None:
    """Do nothing: no caller waits."""
