"""Rows received over Flight and published as messages, each batch of a query once.

A program stages rows: they are checked and kept in a file until it requests their publication, naming its
query and the batch number. The progress of a query is kept on disk, by rows of a batch, so a batch that is
published again, also after a restart of the broker, continues where it stopped or is skipped. Only a crash
of the broker itself can repeat rows: those since progress was last written, at most CHUNK_ROWS.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from timebound.config.limits import Limits
from timebound.core.values.access import ClientAccess
from timebound.core.values.message import Message
from timebound.errors import ProtocolError, StorageError
from timebound.node.driver import Driver
from timebound.node.journal.rows import arrow_type
from timebound.records import PUBLISH_FIELDS
from timebound.topics import FINDINGS, reserved_fault, topic_fault
from timebound.wire.properties import encode_user_property
from timebound.wire.terms import parse_publish_terms

logger = logging.getLogger("timebound.flight")

# Rows published between two writes of the progress.
CHUNK_ROWS: Final = 2_000
# Rows published at once on the event loop, before others get their turn: under a millisecond.
TURN_ROWS: Final = 64
# Time limit for the disk per chunk, after which the caller gets an error.
CHUNK_TIMEOUT_S: Final = 60.0
# How often full links to other brokers are checked again.
ROOM_POLL_S: Final = 0.01
# Staged rows are removed after this time: the job that staged them has ended.
STAGED_AGE_MAX_S: Final = 6 * 3600.0
# Queries remembered; a finished job keeps its entry, in case it is repeated.
QUERIES_MAX: Final = 100_000
QUERY_LENGTH_MAX: Final = 256
# One call at a time publishes for a query; different queries may share a lock.
LOCKS: Final = 64
_NAME: Final = re.compile(r"[0-9a-f]{32}")


class RowPublisher:
    """Stages rows in a folder and publishes them through the driver's event loop."""

    def __init__(
        self, folder: Path, driver: Driver, loop: asyncio.AbstractEventLoop, limits: Limits, bytes_max: int
    ) -> None:
        """Open the folder with what an earlier run left.

        Raises:
            StorageError: the folder cannot be used.
        """
        self._folder = folder
        self._driver = driver
        self._loop = loop
        self._limits = limits
        self._bytes_max = bytes_max
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.glob("*.tmp"):
                path.unlink()
            self._progress = Progress(folder / "published.db")
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"'{folder}' cannot be used to publish from: {error}") from error

    def close(self) -> None:
        self._progress.close()

    # --- staging ----------------------------------------------------------------------

    def stage(self, name: str, user: str, access: ClientAccess, reader: Any) -> None:
        """Check rows and write them to a file under the caller's name.

        Raises:
            ValueError: the name or a row is wrong, or staged_bytes_max is reached.
        """
        self._remove_stale()
        final = self._path(name)
        schema = publish_schema(reader.schema)
        hidden = final.with_suffix(".tmp")
        rows = 0
        try:
            with pa.OSFile(str(hidden), "wb") as file, pa.ipc.new_file(file, _owned(schema, user)) as writer:
                for chunk in reader:
                    batch = _conform(chunk.data, schema)
                    self._check(batch, access, rows)
                    writer.write_batch(batch)
                    self._check_room(file.tell())
                    rows += batch.num_rows
            hidden.rename(final)
        finally:
            hidden.unlink(missing_ok=True)

    def discard(self, user: str, names: list[str]) -> int:
        """Remove staged rows; return the number of files."""
        found = [path for path in map(self._path, names) if path.exists()]
        for path in found:
            self._check_owner(path, user)
            path.unlink(missing_ok=True)
        return len(found)

    def _check(self, batch: pa.RecordBatch, access: ClientAccess, row: int) -> None:
        for message in _messages(batch, "", self._limits):
            if isinstance(message, str):
                raise ValueError(f"row {row}: {message}")
            _check_right(access, message, row)
            row += 1

    def _check_room(self, more_bytes: int) -> None:
        used = more_bytes + sum(path.stat().st_size for path in self._folder.glob("*.arrow"))
        if used > self._bytes_max:
            raise ValueError(f"quota: {used} bytes are staged, staged_bytes_max is {self._bytes_max}")

    def _remove_stale(self) -> None:
        oldest_s = time.time() - STAGED_AGE_MAX_S
        for path in self._folder.glob("*.arrow"):
            if path.stat().st_mtime < oldest_s:
                logger.warning("removing rows that were staged and never published: %s", path.name)
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:40]!r} is not a valid name; expected 32 hexadecimal digits")
        return self._folder / f"{name}.arrow"

    # --- publishing -------------------------------------------------------------------

    def publish(
        self, user: str, query: str, batch: int, names: list[str], access: ClientAccess
    ) -> dict[str, int]:
        """Publish staged rows as one batch of a query, unless it was published before; blocks.

        Rights may have changed since the rows were staged: at the first row that is not allowed any more
        the batch stops.

        Raises:
            ValueError: rows are not staged.
        """
        if len(query) > QUERY_LENGTH_MAX:
            raise ValueError(f"name of the query is longer than {QUERY_LENGTH_MAX} characters")
        paths = [self._path(name) for name in names]
        with self._locks[hash((user, query)) % LOCKS]:
            done = self._progress.rows_done(user, query, batch)
            if done is None:
                published = skipped = 0
            else:
                published, skipped = self._publish_files(user, query, batch, paths, done, access)
            for path in paths:
                path.unlink(missing_ok=True)
        return {"published": published, "skipped": skipped, "was_done": int(done is None)}

    def _publish_files(
        self, user: str, query: str, batch: int, paths: list[Path], done: int, access: ClientAccess
    ) -> tuple[int, int]:
        for path in paths:
            self._check_owner(path, user)
        publisher = f"flight:{user}" if user else "flight"
        row = 0
        chunk: list[Message] = []
        for path in paths:
            for message in _read_messages(path, publisher, self._limits):
                row += 1
                if row <= done:
                    continue
                _check_right(access, message, row - 1)
                chunk.append(message)
                if len(chunk) == CHUNK_ROWS:
                    self._publish_chunk(chunk)
                    self._progress.note(user, query, batch, row, is_done=False)
                    chunk = []
        self._publish_chunk(chunk)
        self._progress.note(user, query, batch, row, is_done=True)
        return row - min(done, row), min(done, row)

    def _check_owner(self, path: Path, user: str) -> None:
        try:
            with pa.memory_map(str(path)) as source:
                owner = (pa.ipc.open_file(source).schema.metadata or {}).get(b"user", b"")
        except FileNotFoundError as error:
            raise ValueError(
                f"{path.stem} is not staged, or was removed after {STAGED_AGE_MAX_S / 3600:.0f} h"
            ) from error
        if owner != user.encode():
            raise fl.FlightUnauthorizedError("not_authorized: rows were staged by another user")

    def _publish_chunk(self, messages: list[Message]) -> None:
        if not messages:
            return
        stored = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._route, messages, 0, stored)
        except RuntimeError as error:  # the loop is closed
            raise fl.FlightUnavailableError("the broker is stopping") from error
        if not stored.wait(CHUNK_TIMEOUT_S):
            raise fl.FlightTimedOutError(f"rows were not stored in {CHUNK_TIMEOUT_S:.0f} s; see the log")

    def _route(self, messages: list[Message], start: int, stored: threading.Event) -> None:
        """Publish some messages on the event loop; continue after others had their turn."""
        broker = self._driver.broker
        now_ns = self._driver.now_ns()
        part = messages[start : start + TURN_ROWS]
        homes: dict[str, None] = {}
        for message in part:
            message.published_ns = now_ns
            broker.route(message, now_ns)
            homes.update(dict.fromkeys(broker.pressed()))
        broker.counters.messages_received += len(part)
        self._driver.schedule()
        self._go_on(messages, start + TURN_ROWS, stored, list(homes))

    def _go_on(self, messages: list[Message], start: int, stored: threading.Event, homes: list[str]) -> None:
        """Continue when links to the brokers of the last messages have room."""
        if not self._driver.broker.has_room(homes):
            self._loop.call_later(ROOM_POLL_S, self._go_on, messages, start, stored, homes)
        elif start < len(messages):
            self._loop.call_soon(self._route, messages, start, stored)
        else:
            self._driver.wait_stored(stored.set)


def _check_right(access: ClientAccess, message: Message, row: int) -> None:
    if not access.may_publish(message.topic):
        raise fl.FlightUnauthorizedError(
            f"not_authorized: row {row}: publishing to {message.topic!r} is not allowed"
        )


class Progress:
    """The progress of each query on disk; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        with self._connection:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS progress (user TEXT, query TEXT, batch INTEGER, rows INTEGER,"
                " is_done INTEGER, time_ns INTEGER, PRIMARY KEY (user, query)) WITHOUT ROWID"
            )

    def rows_done(self, user: str, query: str, batch: int) -> int | None:
        """Return the rows of a batch that are already published; None if all are."""
        with self._lock:
            row = self._connection.execute(
                "SELECT batch, rows, is_done FROM progress WHERE user = ? AND query = ?", (user, query)
            ).fetchone()
        if row is None or row[0] < batch:
            return 0
        if row[0] > batch or row[2]:
            return None
        return int(row[1])

    def note(self, user: str, query: str, batch: int, rows: int, *, is_done: bool) -> None:
        """Record the progress of a query."""
        with self._lock, self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?)",
                (user, query, batch, rows, int(is_done), time.time_ns()),
            )
            if not is_done:
                return
            (count,) = self._connection.execute("SELECT count(*) FROM progress").fetchone()
            if count > QUERIES_MAX:
                self._connection.execute(
                    "DELETE FROM progress WHERE (user, query) IN"
                    " (SELECT user, query FROM progress ORDER BY time_ns LIMIT ?)",
                    (count - QUERIES_MAX + QUERIES_MAX // 10,),
                )

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def publish_schema(given: pa.Schema) -> pa.Schema:
    """Return the schema of rows to publish, with the columns that were given.

    Raises:
        ValueError: a column is missing, unknown, duplicate or of a wrong type.
    """
    known = {name: arrow_type(kind) for name, kind in PUBLISH_FIELDS}
    for name in ("topic", "payload"):
        if name not in given.names:
            raise ValueError(f"column {name!r} is missing; present are {', '.join(given.names)}")
    for name in given.names:
        if given.names.count(name) > 1:
            raise ValueError(f"column {name!r} exists twice")
        if name not in known:
            raise ValueError(f"unknown column {name!r}; expected {', '.join(known)}")
    return pa.schema([pa.field(name, known[name]) for name in known if name in given.names])


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        columns = [batch.column(field.name).cast(field.type) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column has a wrong type: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _owned(schema: pa.Schema, user: str) -> pa.Schema:
    return schema.with_metadata({b"user": user.encode()})


def _read_messages(path: Path, publisher: str, limits: Limits) -> Iterator[Message]:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            for message in _messages(reader.get_batch(number), publisher, limits):
                if not isinstance(message, Message):
                    raise ValueError(message)  # limits changed since it was staged
                yield message


def _messages(batch: pa.RecordBatch, publisher: str, limits: Limits) -> Iterator[Message | str]:
    """Yield the messages of rows, or the fault of a row; lets the broker run in between."""
    for start in range(0, batch.num_rows, TURN_ROWS):
        for row in batch.slice(start, TURN_ROWS).to_pylist():
            yield _message(row, publisher, limits)
        time.sleep(0)


def _message(row: dict[str, Any], publisher: str, limits: Limits) -> Message | str:
    topic, payload, qos = row["topic"], row["payload"], row.get("qos") or 0
    if topic is None:
        return "topic is null"
    fault = _topic_fault(topic, limits)
    if fault:
        return fault
    if not 0 <= qos <= 2:
        return f"qos {qos} is not 0, 1 or 2"
    pairs: list[tuple[str, str]] = []
    for entry in row.get("properties") or []:
        if entry is None or entry["name"] is None or entry["value"] is None:
            return "a property has no name or no value"
        pairs.append((entry["name"], entry["value"]))
    if row.get("timeout"):
        pairs.append(("timeout", row["timeout"]))
    if len(pairs) > limits.user_properties_max:
        return f"{len(pairs)} user properties, user_properties_max is {limits.user_properties_max}"
    message = Message(topic, payload or b"", qos, bool(row.get("retain")), 0, publisher)
    if pairs:
        try:
            terms = parse_publish_terms(tuple(pairs))
        except ProtocolError as error:
            return str(error)
        message.user_properties = tuple(pairs)
        message.properties = b"".join([encode_user_property(name, value) for name, value in pairs])
        message.timeout_ns = terms.timeout_ns
        message.priority = terms.priority
    if message.size() > limits.packet_size_max:
        return f"message has {message.size()} bytes, packet_size_max is {limits.packet_size_max}"
    return message


def _topic_fault(topic: str, limits: Limits) -> str:
    if not topic:
        return "topic is empty"
    if "+" in topic or "#" in topic or "\0" in topic:
        return f"topic {topic!r} has a wildcard or a null character"
    return reserved_fault(topic, FINDINGS) or topic_fault(
        topic, limits.topic_length_max, limits.topic_levels_max
    )
