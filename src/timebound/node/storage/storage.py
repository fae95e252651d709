"""Durable state of the broker: sessions, queued messages, retained messages, wills.

The event loop hands over the orders of one turn and continues; one worker thread writes everything that
has accumulated in one transaction, syncs once, and then calls every `done` in order. So the busier the
broker, the more turns share one sync. A write that fails stays first in the queue and is retried: `done`
guarantees that orders are on disk, and is never called early.

Files, versions and checks are in `schema.py`, orders to SQL in `plan.py`, reading in `load.py`, and
detection of lost commits in `commits.py`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from timebound.core.values.store_orders import Snapshot, StoreOrder
from timebound.errors import StorageError
from timebound.node.storage.commits import Commits, check_loss
from timebound.node.storage.load import MakeSubscription, read_snapshot, sweep
from timebound.node.storage.names import note_start
from timebound.node.storage.plan import Marks, WritePlan
from timebound.node.storage.schema import (
    DATABASE_NAME,
    MIGRATIONS,
    Migration,
    lock_directory,
    make_directory,
    open_database,
    storage_error,
)

log = logging.getLogger(__name__)

GROUP_ORDERS_MAX: Final = 50_000  # of one transaction: about 0.2 s and 20 MB of log with small messages
RETRY_S_MIN: Final = 0.1  # first wait after a failed write; doubles up to the longest
RETRY_S_MAX: Final = 5.0
CLOSE_ATTEMPTS_MAX: Final = 3  # a full disk must not prevent a broker from stopping
CLOSE_S_MAX: Final = 10.0  # nor must a hanging device; what waits was not acknowledged

Done = Callable[[], None]
Batch = tuple[Sequence[StoreOrder], Done]
OnError = Callable[[StorageError], None]


class Storage:
    """The database of one data directory, with the thread that writes it.

    `load` first, then `submit` from one thread; `close` at the end. `done` and `on_error` are
    called on the worker thread. Batches not yet written have no limit of their own: their publishers
    wait for the acknowledgement, so Receive Maximum bounds them; `pending_orders` is their number.
    """

    def __init__(
        self,
        file: Path,
        connection: sqlite3.Connection,
        lock: int,
        marks: Marks,
        commits: Commits,
        make_subscription: MakeSubscription,
        on_error: OnError | None,
    ) -> None:
        self._file = file
        self._connection = connection
        self._connection_lock = threading.Lock()  # the worker writes, load reads
        self._directory_lock = lock
        self._marks = marks
        self._commits = commits
        self._make_subscription = make_subscription
        self._on_error = on_error
        self._batches: deque[Batch] = deque()
        self._changed = threading.Condition()  # guards the batches, their count and _closing
        self._closing = False
        self._closed = False
        self._failures = 0  # attempts since the last success
        self._failures_closing = 0  # of them, those after close was called
        self._pending_orders = 0
        self._thread = threading.Thread(target=self._run, name="timebound-storage", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: Path,
        make_subscription: MakeSubscription,
        *,
        on_error: OnError | None = None,
        fsync: bool = True,
        accept_loss: bool = False,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> Storage:
        """Open the data directory, or create it; no other broker can use it until close.

        With `fsync` false a commit is not forced to the device: it survives the end of the process,
        but a power cut may take the last commits (never the file's consistency). With `accept_loss`
        a database that lacks acknowledged commits is used anyway.

        Raises: StorageError if directory or database cannot be used; nothing is changed then.
        """
        make_directory(path)
        lock = lock_directory(path)
        file = path / DATABASE_NAME
        try:
            check_loss(path, is_accepted=accept_loss)
            connection = open_database(path, fsync=fsync, migrations=migrations)
            try:
                sweep(connection)
                marks = Marks.read(connection)
                commits = Commits.open(path, connection, fsync=fsync)
            except BaseException:
                connection.close()
                raise
        except (sqlite3.Error, OSError) as exc:
            os.close(lock)
            raise storage_error(exc, file) from exc
        except BaseException:
            os.close(lock)
            raise
        return cls(file, connection, lock, marks, commits, make_subscription, on_error)

    def __enter__(self) -> Storage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def failed(self) -> bool:
        """Whether the last write failed."""
        return self._failures > 0

    @property
    def pending_orders(self) -> int:
        """Orders submitted and not yet on disk."""
        return self._pending_orders

    def load(self, now_ns: int) -> Snapshot:
        """Read everything from disk; at start, before the first submit.

        Raises: StorageError if a row cannot be read.
        """
        try:
            with self._connection_lock:
                snapshot = read_snapshot(self._connection, self._marks, self._make_subscription, now_ns)
                note_start(self._connection, self._marks.message, now_ns)
                return snapshot
        except (sqlite3.Error, ValueError, TypeError) as exc:
            raise storage_error(exc, self._file) from exc

    def submit(self, orders: Sequence[StoreOrder], done: Done) -> None:
        """Queue orders to be written after all earlier ones, then call `done`; returns at once.

        The list belongs to the storage from now on. Raises: StorageError after close.
        """
        with self._changed:
            if self._closing:
                raise StorageError(f"storage '{self._file}' is closed")
            self._batches.append((orders, done))
            self._pending_orders += len(orders)
            self._changed.notify()

    def close(self) -> None:
        """Write what is waiting, stop the thread, merge the log into the database.

        Raises: StorageError if batches could not be written; their `done` was never called.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._closed:
            return
        self._thread.join(CLOSE_S_MAX)
        if self._thread.is_alive():
            raise StorageError(f"storage '{self._file}' is still writing after {CLOSE_S_MAX:.0f} s")
        self._closed = True
        self._close_files()
        if self._batches:
            raise StorageError(
                f"storage '{self._file}' closed with {len(self._batches)} batches not written,"
                " none of them acknowledged"
            )

    def _close_files(self) -> None:
        try:
            if not self.failed:
                WritePlan(self._marks).execute_mark(self._connection)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as exc:
            # Nothing is lost: the log stays and is read at the next start.
            log.warning("write-ahead log of '%s' could not be merged: %s", self._file, exc)
        self._connection.close()
        self._commits.close()
        os.close(self._directory_lock)

    def _run(self) -> None:
        while group := self._next_group():
            try:
                self._write(group)
            except Exception as exc:
                if not self._wait_to_retry(exc):
                    return
            else:
                self._finish(group)

    def _next_group(self) -> list[Batch]:
        """Wait for batches and return the first of them, still queued; none if it is time to stop."""
        group: list[Batch] = []
        orders_total = 0
        with self._changed:
            while not self._batches and not self._closing:
                self._changed.wait()
            for batch in self._batches:
                orders_total += len(batch[0])
                if group and orders_total > GROUP_ORDERS_MAX:
                    break
                group.append(batch)
        return group

    def _write(self, group: list[Batch]) -> None:
        plan = WritePlan(self._marks)
        for orders, _ in group:
            plan.add(orders)
        with self._connection_lock:
            written = not plan.is_empty()
            if written:
                self._commit(plan)
            plan.settle(written=written)

    def _commit(self, plan: WritePlan) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            plan.execute(connection, self._commits.next())
            connection.execute("COMMIT")
        except BaseException:
            # SQLite rolls back by itself on some errors, such as a full disk.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._commits.settle()

    def _finish(self, group: list[Batch]) -> None:
        if self._failures:
            log.warning("storage '%s' works again after %d failed attempts", self._file, self._failures)
            self._failures = 0
        with self._changed:
            for orders, _ in group:
                self._batches.popleft()
                self._pending_orders -= len(orders)
        for _, done in group:
            try:
                done()
            except Exception:
                log.exception("callback of stored orders failed")

    def _wait_to_retry(self, exc: Exception) -> bool:
        """Report a failed write and wait; return False if the storage closes and retries are used up."""
        if not self._failures:
            log.error("storage '%s' cannot write, retrying: %s", self._file, exc)
        self._failures += 1
        self._report(exc)
        wait_s = min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(self._failures - 1, 10))
        with self._changed:
            if not self._closing:
                self._changed.wait_for(lambda: self._closing, wait_s)
                return True
            self._failures_closing += 1
            if self._failures_closing < CLOSE_ATTEMPTS_MAX:
                self._changed.wait(RETRY_S_MIN)
                return True
            return False

    def _report(self, exc: Exception) -> None:
        if self._on_error is None:
            return
        error = StorageError(f"cannot write to '{self._file}': {exc}")
        error.__cause__ = exc
        try:
            self._on_error(error)
        except Exception:
            log.exception("callback of storage errors failed")


class NoStorage:
    """Storage of a broker that keeps nothing: orders count as stored at once."""

    failed: Final = False
    pending_orders: Final = 0

    def __init__(self) -> None:
        self._closed = False

    def __enter__(self) -> NoStorage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(self, now_ns: int) -> Snapshot:
        return Snapshot()

    def submit(self, orders: Sequence[StoreOrder], done: Done) -> None:
        """Call `done` at once, on the caller's thread. Raises: StorageError after close."""
        if self._closed:
            raise StorageError("storage is closed")
        done()

    def close(self) -> None:
        self._closed = True
