"""All journals of a broker: a thread that writes what the driver hands over, and one that tidies up.

    journals = Journals.open(config.journals, folder, fsync=True)
    journals.write(messages)          # once a turn: appends to a queue
    journals.sync(done)               # `done` is called when all that was handed over is on disk

Handing over costs the event loop a reference to a message. Where the disk fails, what must be
acknowledged waits for it; other messages beyond what may wait get offsets, but are lost, and
readers are told of the gap.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from timebound.core.message import Message
from timebound.core.topic import matches
from timebound.core.trace_run import TraceRun
from timebound.errors import ConfigError
from timebound.node.config_values import JournalConfig
from timebound.node.journal_log import JournalLog

logger = logging.getLogger("timebound.journal")

# Rows collect for so long before they are written, unless somebody waits for an answer: a write
# costs a millisecond and more, and the threads take turns with the event loop.
COLLECT_S: Final = 0.02
# How often parts are sealed and removed, and journals looked at that nobody writes to.
TIDY_S: Final = 1.0
# What may wait for the disk before publishers have to; the second bounds memory for large messages.
PENDING_MESSAGES_MAX: Final = 100_000
PENDING_BYTES_MAX: Final = 256 * 1024 * 1024
PENDING_RUNS_MAX: Final = 500_000
# Rows that are encoded at a time, and bytes of their payloads at most: the broker runs in between.
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 4 * 1024 * 1024
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0
# Topics whose journals are remembered.
TOPICS_REMEMBERED_MAX: Final = 10_000

Done = Callable[[], None]


class Journal:
    """One journal: what it is for, and its rows."""

    def __init__(self, config: JournalConfig, folder: Path, *, fsync: bool) -> None:
        from timebound.node.journal_rows import message_schema, record_schema, served_schema

        self.config = config
        self.name = config.name
        stored = record_schema() if config.trace else message_schema()
        self.schema = served_schema(stored)
        self.log = JournalLog(
            folder, stored, bytes_max=config.bytes_max, age_max_s=config.age_max_s, fsync=fsync
        )


class _Lost:
    """Messages that were not kept, in their place among the others."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages


class Journals:
    """Writes journals in a thread."""

    def __init__(self, journals: list[Journal]) -> None:
        self.journals = journals
        self._of_messages = [journal for journal in journals if not journal.config.trace]
        self._of_trace = [journal for journal in journals if journal.config.trace]
        self._handed_over: deque[list[Message] | _Lost | list[TraceRun] | Done] = deque()
        self._messages_in = self._messages_out = 0  # each counted by one thread alone
        self._bytes_in = self._bytes_out = 0
        self._runs_in = self._runs_out = 0
        self._is_failing = False
        self._is_awake = False
        self._woken = threading.Event()
        self._hurried = threading.Event()
        self._stopping = threading.Event()
        self._journals_of_topic: dict[str, list[Journal]] = {}
        self.rows_lost = 0
        self._writer = threading.Thread(target=self._run, name="timebound-journal", daemon=True)
        self._tidier = threading.Thread(target=self._tidy, name="timebound-journal-tidy", daemon=True)
        self._writer.start()
        self._tidier.start()

    @classmethod
    def open(cls, configs: Iterable[JournalConfig], folder: Path, *, fsync: bool) -> Journals:
        """Open the journals of a configuration, each in a folder of its name.

        Raises:
            ConfigError: the package that is needed is missing.
            StorageError: the files of a journal cannot be used.
        """
        require_pyarrow("journals")
        return cls([Journal(config, folder / config.name, fsync=fsync) for config in configs])

    def topic_filters(self) -> list[str]:
        """What the journals of messages keep."""
        return [journal.config.filter for journal in self._of_messages]

    def has_trace(self) -> bool:
        return bool(self._of_trace)

    def find(self, name: str) -> Journal | None:
        for journal in self.journals:
            if journal.name == name:
                return journal
        return None

    # --- from the event loop ----------------------------------------------------------

    def write(self, messages: list[Message]) -> None:
        """Hand over messages; returns at once."""
        if not messages:
            return
        if self._is_failing and self._is_full():
            # Acknowledged ones wait, as their publishers do; those of QoS 0 go on coming.
            lost = [message for message in messages if message.qos == 0]
            messages = [message for message in messages if message.qos > 0]
            self._handed_over.append(_Lost(lost))
        self._messages_in += len(messages)
        self._bytes_in += sum([len(message.payload) for message in messages])
        self._handed_over.append(messages)
        self._wake()

    def write_trace(self, runs: list[TraceRun]) -> None:
        """Hand over trace records; returns at once."""
        if self._of_trace:
            self._runs_in += len(runs)
            self._handed_over.append(runs)
            self._wake()

    def sync(self, done: Done) -> None:
        """Have `done` called, from the writing thread, when all that was handed over is on disk."""
        self._handed_over.append(done)
        self._hurried.set()
        self._wake()

    def is_behind(self) -> bool:
        """Whether publishers should wait; not for a disk that fails."""
        return not self._is_failing and self._is_full()

    def close(self) -> None:
        """Write what is waiting; every wait inside has its limit."""
        self._stopping.set()
        self._hurried.set()
        self._woken.set()
        self._writer.join()
        self._tidier.join()
        for journal in self.journals:
            journal.log.close()

    def _wake(self) -> None:
        # Setting an event costs as much as several messages, and it is set most of the time.
        if not self._is_awake:
            self._is_awake = True
            self._woken.set()

    def _is_full(self) -> bool:
        return (
            self._messages_in - self._messages_out > PENDING_MESSAGES_MAX
            or self._bytes_in - self._bytes_out > PENDING_BYTES_MAX
            or self._runs_in - self._runs_out > PENDING_RUNS_MAX
        )

    # --- the writing thread -----------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set() or self._handed_over:
            self._woken.wait(TIDY_S)
            self._hurried.wait(COLLECT_S)
            self._woken.clear()
            self._hurried.clear()
            self._is_awake = False  # after the events: what is handed over from here on wakes again
            taken = [self._handed_over.popleft() for _ in range(len(self._handed_over))]
            # Also where nothing came: a part may have become old enough to be closed.
            rows = self._sort_out(taken) or [(journal, [], 0) for journal in self.journals]
            if not self._write_until_done(rows):
                return
            self._count_out(taken)
            for entry in taken:
                if callable(entry):
                    entry()

    def _sort_out(self, taken: list[Any]) -> list[tuple[Journal, list[Any], int]]:
        """By journal, in order: messages or records to write, or how many are lost."""
        rows: list[tuple[Journal, list[Any], int]] = []
        messages: list[Message] = []
        runs: list[TraceRun] = []
        for entry in taken:
            if isinstance(entry, _Lost):
                rows += self._of_each(messages)
                messages = []
                rows += [(journal, [], len(lost)) for journal, lost, _ in self._of_each(entry.messages)]
            elif isinstance(entry, list) and entry:
                if isinstance(entry[0], TraceRun):
                    runs += entry
                else:
                    messages += entry
        rows += self._of_each(messages)
        if runs:
            rows += [(journal, runs, 0) for journal in self._of_trace]
        return rows

    def _of_each(self, messages: list[Message]) -> list[tuple[Journal, list[Any], int]]:
        if not messages:
            return []
        sorted_out: dict[str, list[Message]] = {journal.name: [] for journal in self._of_messages}
        for message in messages:
            for journal in self._wanting(message.topic):
                sorted_out[journal.name].append(message)
        return [(journal, sorted_out[journal.name], 0) for journal in self._of_messages]

    def _wanting(self, topic: str) -> list[Journal]:
        found = self._journals_of_topic.get(topic)
        if found is None:
            if len(self._journals_of_topic) >= TOPICS_REMEMBERED_MAX:
                self._journals_of_topic.clear()
            found = [journal for journal in self._of_messages if matches(journal.config.filter, topic)]
            self._journals_of_topic[topic] = found
        return found

    def _write_until_done(self, rows: list[tuple[Journal, list[Any], int]]) -> bool:
        """Try until the disk takes it; False when it does not and the broker stops."""
        failures = 0
        while True:
            try:
                self._write(rows)
            except OSError as error:
                if failures == 0:
                    logger.error("journals cannot be written, trying again until they can: %s", error)
                failures += 1
                self._is_failing = True
                if self._stopping.wait(min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(failures, 10))):
                    logger.error("stopping with messages that no journal has: %s", error)
                    return False
            else:
                if self._is_failing:
                    logger.warning("journals work again after %d failed attempts", failures)
                    self._is_failing = False
                return True

    def _write(self, rows: list[tuple[Journal, list[Any], int]]) -> None:
        """Write and commit; what is committed is taken off `rows`, so that it is not written again."""
        while rows:
            journal, entries, lost = rows[0]
            try:
                if entries:
                    _append(journal, entries)
                journal.log.commit(time.time_ns())
            except OSError:
                journal.log.roll_back()
                raise
            if lost:
                journal.log.skip(lost)
                self.rows_lost += lost
                logger.error("journal %s lost %d messages", journal.name, lost)
            rows.pop(0)

    def _count_out(self, taken: list[Any]) -> None:
        for entry in taken:
            if isinstance(entry, list) and entry:
                if isinstance(entry[0], TraceRun):
                    self._runs_out += len(entry)
                else:
                    self._messages_out += len(entry)
                    self._bytes_out += sum([len(message.payload) for message in entry])

    # --- the tidying thread -----------------------------------------------------------

    def _tidy(self) -> None:
        while not self._stopping.wait(TIDY_S):
            for journal in self.journals:
                try:
                    journal.log.maintain(time.time_ns())
                except OSError as error:
                    logger.error("journal %s cannot be tidied up: %s", journal.name, error)


def _append(journal: Journal, entries: list[Any]) -> None:
    from timebound.node.journal_rows import encode_messages, encode_runs

    if journal.config.trace:
        journal.log.append(encode_runs(entries), time.time_ns())
        return
    bytes_max = min(BATCH_BYTES, journal.log.part_bytes_max)
    start = 0
    while start < len(entries):
        end, size = start, 0
        while end < len(entries) and end - start < BATCH_ROWS and size < bytes_max:
            size += len(entries[end].payload)
            end += 1
        part = entries[start:end]
        journal.log.append(encode_messages(part), part[-1].published_ns)
        start = end
        if journal.log.is_full():
            # Parts stay small, also when much comes at once; what is committed is not written again.
            journal.log.commit(time.time_ns())
            del entries[:start]
            start = 0
        time.sleep(0)  # lets the broker run


def require_pyarrow(what: str) -> None:
    """Say how to install the package that is needed, if it is not there.

    Raises:
        ConfigError: it is not.
    """
    try:
        import pyarrow  # noqa: F401 - found missing here, not in a thread
    except ImportError as error:
        raise ConfigError(
            f"{what} need the package pyarrow; install it with: pip install 'timebound[trace]'",
            key="journals",
        ) from error
