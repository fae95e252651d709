"""All journals of a broker, with a thread that writes and one that maintains files.

    journals = Journals.open(config.journals, folder, fsync=True)
    journals.write(messages)          # once per turn: copies the fields to keep
    journals.sync(done)               # `done` is called when everything handed over is on disk

The event loop only packs messages (`columns.py`). The thread encodes and writes them, some rows at a time,
and releases the interpreter in between. If the disk fails, messages to be acknowledged wait for it; others
beyond the limit get offsets but are lost, and readers get a gap.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from timebound.config.storage import JournalConfig
from timebound.core.account.trace_log import TraceBatch
from timebound.core.values.message import Message
from timebound.node.journal.columns import Intake, Packs
from timebound.node.journal.log import JournalLog
from timebound.node.journal.repeats import Repeats
from timebound.node.trace.pack import TracePack, TracePacks
from timebound.packages import FOR_TRACES, require

logger = logging.getLogger("timebound.journal")

# Rows are collected for this time before they are written, unless an answer waits for them: a write costs
# a millisecond or more, and the threads share the interpreter with the event loop.
COLLECT_S: Final = 0.02
# How often segments are sealed and removed, and journals looked at that nobody writes to.
TIDY_S: Final = 1.0
# What may wait for the disk before publishers have to wait; the second limits memory for large messages.
PENDING_MESSAGES_MAX: Final = 100_000
PENDING_BYTES_MAX: Final = 256 * 1024 * 1024
PENDING_RECORDS_MAX: Final = 2_000_000
# Packs per commit: committed packs make room for more.
COMMIT_PACKS: Final = 3
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0

Done = Callable[[], None]


class Journal:
    """One journal: its configuration and its rows."""

    def __init__(self, config: JournalConfig, folder: Path, *, fsync: bool) -> None:
        from timebound.node.journal.rows import message_schema, record_schema, served_schema

        self.config = config
        self.name = config.name
        stored = record_schema() if config.trace else message_schema()
        self.schema = served_schema(stored)
        self.log = JournalLog(
            folder, stored, bytes_max=config.bytes_max, age_max_s=config.age_max_s, fsync=fsync
        )


class _WriteLoad:
    """What was handed over and is to be written next."""

    def __init__(self, journals: list[Journal]) -> None:
        self.packed = [Packs(journal.log.segment_bytes_max) for journal in journals]  # for those of messages
        self.records: list[TracePack] = []  # for those of the trace, when it is being written
        self.traced = 0  # number of trace journals that already have these records
        self.waiting: list[Done] = []

    def is_empty(self) -> bool:
        return not (self.waiting or any(one.packs for one in self.packed))


class Journals:
    """Writes journals in a thread."""

    def __init__(self, journals: list[Journal]) -> None:
        self.journals = journals
        self._of_messages = [journal for journal in journals if not journal.config.trace]
        self._of_trace = [journal for journal in journals if journal.config.trace]
        offsets = [journal.log.next_offset for journal in self._of_messages]
        self._intake = Intake(self.topic_filters(), offsets)
        self._lock = threading.Lock()  # over which load is being filled
        self._load = _WriteLoad(self._of_messages)
        self._records = TracePacks()
        self._rows_out = self._bytes_out = 0  # the intake counts input; each counter belongs to one thread
        self._records_in = self._records_out = 0
        self._is_failing = False
        self._is_awake = False
        self._woken = threading.Event()
        self._hurried = threading.Event()
        self._stopping = threading.Event()
        self.rows_lost = 0
        self._writer = threading.Thread(target=self._run, name="timebound-journal", daemon=True)
        self._tidier = threading.Thread(target=self._tidy, name="timebound-journal-tidy", daemon=True)
        self._writer.start()
        self._tidier.start()

    @classmethod
    def open(cls, configs: Iterable[JournalConfig], folder: Path, *, fsync: bool) -> Journals:
        """Open the journals of a configuration, each in a folder of its name.

        Raises:
            ConfigError: a required package is missing.
            StorageError: the files of a journal cannot be used.
        """
        require("a journal", *FOR_TRACES, key="journals")
        return cls([Journal(config, folder / config.name, fsync=fsync) for config in configs])

    def topic_filters(self) -> list[str]:
        """Return the filters of journals of messages."""
        return [journal.config.filter for journal in self._of_messages]

    def has_trace(self) -> bool:
        return bool(self._of_trace)

    def find(self, name: str) -> Journal | None:
        for journal in self.journals:
            if journal.name == name:
                return journal
        return None

    # --- from the event loop ----------------------------------------------------------

    def expect_repeats(self, offsets: dict[str, int], publishers: set[str]) -> None:
        """Expect the messages of rows after these offsets, by journal, to be sent again; at start."""
        repeats = Repeats()
        for number, journal in enumerate(self._of_messages):
            start = offsets.get(journal.log.identity)
            if start is not None:
                repeats.expect(number, journal.log, start, publishers)
        self._intake.repeats = repeats

    def offsets(self) -> list[tuple[str, int]]:
        """Return the end of each journal, after everything handed over, for storage to record with a batch.

        Empty while messages are expected to be sent again: if this run ends before, the next one has to
        expect them too.
        """
        repeats = self._intake.repeats
        if repeats is not None:
            if not repeats.is_empty():
                return []
            self._intake.repeats = None
        return [
            (journal.log.identity, offset)
            for journal, offset in zip(self._of_messages, self._intake.offsets, strict=True)
        ]

    def write(self, messages: list[Message]) -> None:
        """Copy the fields of messages to keep; returns at once."""
        if not messages:
            return
        # QoS 1 and 2 messages wait, as their publishers do; QoS 0 messages continue to arrive.
        is_lossy = self._is_failing and self._is_full()
        with self._lock:
            self._intake.deal(messages, self._load.packed, is_lossy=is_lossy)
        self._wake()

    def write_trace(self, batch: TraceBatch) -> None:
        """Hand over trace records; returns at once."""
        if self._of_trace:
            self._records_in += batch.count
            with self._lock:
                self._records.add(batch)
            self._wake()

    def sync(self, done: Done) -> None:
        """Call `done`, from the writing thread, when everything handed over is on disk."""
        with self._lock:
            self._load.waiting.append(done)
        self._hurried.set()
        self._wake()

    def is_behind(self) -> bool:
        """Whether publishers should wait; not for a disk that fails."""
        return not self._is_failing and self._is_full()

    def close(self) -> None:
        """Write what is waiting, within time limits, and stop the threads."""
        self._stopping.set()
        self._hurried.set()
        self._woken.set()
        self._writer.join()
        self._tidier.join()
        for journal in self.journals:
            journal.log.close()

    def _wake(self) -> None:
        # Setting an event costs as much as several messages, and it is usually set already.
        if not self._is_awake:
            self._is_awake = True
            self._woken.set()

    def _is_full(self) -> bool:
        return (
            self._intake.rows_in - self._rows_out > PENDING_MESSAGES_MAX
            or self._intake.bytes_in - self._bytes_out > PENDING_BYTES_MAX
            or self._records_in - self._records_out > PENDING_RECORDS_MAX
        )

    # --- the writing thread -----------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set() or not self._load.is_empty() or self._records.packs:
            self._woken.wait(TIDY_S)
            self._hurried.wait(COLLECT_S)
            self._woken.clear()
            self._hurried.clear()
            self._is_awake = False  # after the events: data handed over from here on wakes the thread again
            with self._lock:
                load, self._load = self._load, _WriteLoad(self._of_messages)
                load.records = self._records.take()
            if not self._write_until_done(load):
                return
            for done in load.waiting:
                done()

    def _write_until_done(self, load: _WriteLoad) -> bool:
        """Try until the disk takes it; False when it does not and the broker stops."""
        failures = 0
        while True:
            try:
                self._write(load)
            except OSError as error:
                if failures == 0:
                    logger.error("journals cannot be written, retrying: %s", error)
                failures += 1
                self._is_failing = True
                if self._stopping.wait(min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(failures, 10))):
                    logger.error("stopping with messages that are not written to journals: %s", error)
                    return False
            else:
                if self._is_failing:
                    logger.warning("journals work again after %d failed attempts", failures)
                    self._is_failing = False
                return True

    def _write(self, load: _WriteLoad) -> None:
        """Write and commit; what is committed is taken off the load, so that it is not written again."""
        for journal, packed in zip(self._of_messages, load.packed, strict=True):
            try:
                while packed.packs:
                    self._write_packs(journal, packed)
                # Also where nothing came: a segment may have become old enough to be closed.
                journal.log.commit(time.time_ns())
            except OSError:
                journal.log.roll_back()
                raise
        for journal in self._of_trace[load.traced :]:
            try:
                _append_records(journal, load.records)
                journal.log.commit(time.time_ns())
            except OSError:
                journal.log.roll_back()
                raise
            load.traced += 1
        for pack in load.records:
            self._records_out += pack.count
            with self._lock:
                self._records.recycle(pack)

    def _write_packs(self, journal: Journal, packed: Packs) -> None:
        """Write some packs: until rows are lost, or a segment of the log is full, as segments stay small."""
        from timebound.node.journal.rows import encode_pack

        count = 0
        for pack in packed.packs[:COMMIT_PACKS]:
            count += 1
            if pack.rows:
                journal.log.append(encode_pack(pack), pack.published_ns[-1])
            if pack.lost or journal.log.is_full():
                break
        journal.log.commit(time.time_ns())
        done, lost = packed.packs[:count], packed.packs[count - 1].lost
        if lost:
            journal.log.skip(lost)
            self.rows_lost += lost
            logger.error("journal %s lost %d messages", journal.name, lost)
        del packed.packs[:count]
        self._rows_out += sum([pack.rows for pack in done])
        self._bytes_out += sum([pack.payload_bytes for pack in done])

    # --- the maintenance thread --------------------------------------------------------

    def _tidy(self) -> None:
        while not self._stopping.wait(TIDY_S):
            for journal in self.journals:
                try:
                    journal.log.maintain(time.time_ns())
                except OSError as error:
                    logger.error("journal %s cannot be maintained: %s", journal.name, error)


def _append_records(journal: Journal, packs: list[TracePack]) -> None:
    from timebound.node.journal.rows import encode_records

    for pack in packs:
        journal.log.append(encode_records(pack.batch()), time.time_ns())
