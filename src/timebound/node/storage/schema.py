"""The database file: its tables and versions, and the checks before it is used.

A file is checked before it is opened for writing: its first bytes, then its contents through a read-only
connection. So a refused file stays unchanged, its write-ahead log included. A new database is built under
another name and renamed into place, so `timebound.db` is either absent or complete, even after a power
cut.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import sqlite3
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from timebound.errors import StorageError

log = logging.getLogger(__name__)

DATABASE_NAME: Final = "timebound.db"
LOCK_NAME: Final = "timebound.lock"
APPLICATION_ID: Final = 0x54426E64  # "TBnd", in the header of every database of Timebound
IDENTITY: Final = "identity"  # the counter that identifies a database, see commits.py
MAGIC: Final = b"SQLite format 3\x00"
HEADER: Final = struct.Struct(">16s44xI4xI28x")  # magic, user_version at 60, application_id at 68

# An unfinished check accepts the file: a broker must not be down for minutes after a crash because its
# queue is long. 150 MB take 0.15 s from the page cache.
QUICK_CHECK_S_MAX: Final = 10.0
CHECK_STEPS: Final = 1000  # of SQLite's virtual machine between two readings of the clock, well under 1 ms
BUSY_S_MAX: Final = 2.0  # another program, such as an SQLite shell, may lock the database briefly
WAL_PAGES: Final = (
    4000  # 16 MB between checkpoints: rows put and dropped in between never reach the main file
)
WAL_BYTES_KEPT: Final = 64 << 20  # a log that grew in a burst is truncated to this
STATEMENTS_CACHED: Final = 256  # shapes of statements in use: tables x powers of two of rows, twice

MESSAGE_COLUMNS: Final = (
    "sequence INTEGER NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL, qos INTEGER NOT NULL,"
    " retain INTEGER NOT NULL, published_ns INTEGER NOT NULL, publisher TEXT NOT NULL,"
    " properties BLOB NOT NULL, user_properties TEXT NOT NULL, expires_ns INTEGER NOT NULL,"
    " timeout_ns INTEGER NOT NULL, priority INTEGER NOT NULL"
)

Migration = tuple[str, ...]

# Step n migrates version n to n + 1; the first one makes the tables. Released steps are never edited,
# only new ones appended: files of every version exist.
MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        "CREATE TABLE session (client_id TEXT PRIMARY KEY, expiry_interval_s INTEGER NOT NULL,"
        " ended_ns INTEGER NOT NULL, user TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE subscription (client_id TEXT NOT NULL, topic_filter TEXT NOT NULL,"
        " qos INTEGER NOT NULL, no_local INTEGER NOT NULL, retain_as_published INTEGER NOT NULL,"
        " retain_handling INTEGER NOT NULL, identifier INTEGER NOT NULL, user_properties TEXT NOT NULL,"
        " PRIMARY KEY (client_id, topic_filter)) WITHOUT ROWID",
        f"CREATE TABLE message ({MESSAGE_COLUMNS}, PRIMARY KEY (sequence))",
        "CREATE TABLE delivery (client_id TEXT NOT NULL, sequence INTEGER NOT NULL,"
        " message_sequence INTEGER NOT NULL, qos INTEGER NOT NULL, retain INTEGER NOT NULL,"
        " subscription_ids TEXT NOT NULL, packet_id INTEGER NOT NULL, state INTEGER NOT NULL,"
        " PRIMARY KEY (client_id, sequence)) WITHOUT ROWID",
        "CREATE TABLE inbound (client_id TEXT NOT NULL, packet_id INTEGER NOT NULL,"
        " PRIMARY KEY (client_id, packet_id)) WITHOUT ROWID",
        f"CREATE TABLE retained ({MESSAGE_COLUMNS}, PRIMARY KEY (topic))",
        "CREATE TABLE will (client_id TEXT PRIMARY KEY, delay_s INTEGER NOT NULL,"
        f" due_ns INTEGER NOT NULL, {MESSAGE_COLUMNS})",
        "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    ),
    (
        # The user whose rights apply when the will is due.
        "ALTER TABLE will ADD COLUMN user TEXT NOT NULL DEFAULT ''",
        "UPDATE will SET user = coalesce("
        "(SELECT session.user FROM session WHERE session.client_id = will.client_id), '')",
    ),
    # The name of a message that came from another broker or start; see names.py for the others.
    tuple(
        f"ALTER TABLE {table} ADD COLUMN name TEXT NOT NULL DEFAULT ''"
        for table in ("message", "retained", "will")
    ),
    (
        # A client may have several subscriptions to one filter, with a name each.
        "ALTER TABLE subscription RENAME TO subscription_unnamed",
        "CREATE TABLE subscription (client_id TEXT NOT NULL, name TEXT NOT NULL, topic_filter TEXT NOT NULL,"
        " qos INTEGER NOT NULL, no_local INTEGER NOT NULL, retain_as_published INTEGER NOT NULL,"
        " retain_handling INTEGER NOT NULL, identifier INTEGER NOT NULL, user_properties TEXT NOT NULL,"
        " PRIMARY KEY (client_id, name, topic_filter)) WITHOUT ROWID",
        # `name` was a property of the application.
        "INSERT INTO subscription SELECT client_id, CASE user_properties WHEN '' THEN '' ELSE coalesce("
        "(SELECT json_extract(value, '$[1]') FROM json_each(user_properties)"
        " WHERE json_extract(value, '$[0]') = 'name'), '') END, topic_filter, qos, no_local,"
        " retain_as_published, retain_handling, identifier, user_properties FROM subscription_unnamed",
        "DROP TABLE subscription_unnamed",
    ),
)


def make_directory(path: Path) -> None:
    """Create the data directory, for its owner only. Raises: StorageError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as exc:
        raise StorageError(f"data directory '{path}' is not a directory") from exc
    except OSError as exc:
        raise StorageError(f"data directory '{path}' cannot be made: {_cause(exc)}") from exc


def lock_directory(path: Path) -> int:
    """Lock the directory for this process; the lock lasts as long as the returned descriptor.

    The kernel releases the lock with the process, so a killed broker leaves nothing to clean up.
    Raises: StorageError, with the pid of the holder.
    """
    lock = path / LOCK_NAME
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise StorageError(f"data directory '{path}' is not writable: {_cause(exc)}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    except BlockingIOError as exc:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StorageError(
            f"data directory '{path}' is in use by another broker (pid {holder}):"
            " stop it or choose another directory"
        ) from exc
    except OSError as exc:
        os.close(descriptor)
        raise StorageError(f"data directory '{path}' cannot be locked: {_cause(exc)}") from exc
    return descriptor


def open_database(
    path: Path,
    *,
    fsync: bool,
    migrations: Sequence[Migration] = MIGRATIONS,
    check_s_max: float = QUICK_CHECK_S_MAX,
) -> sqlite3.Connection:
    """Open the database of a locked data directory; create or migrate it if necessary.

    Raises: StorageError, with the file unchanged.
    """
    file = path / DATABASE_NAME
    try:
        if not file.exists():
            _create(file, migrations)
        _check_header(file, len(migrations))
        version = _check_contents(file, len(migrations), check_s_max)
        connection = _connect(file, fsync=fsync)
        try:
            if version < len(migrations):
                _migrate(connection, file, version, migrations)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as exc:
        raise storage_error(exc, file) from exc
    return connection


def new_identity() -> int:
    """Return a number that no other database has; never 0, which means none."""
    return secrets.randbits(62) + 1


def storage_error(exc: Exception, file: Path) -> StorageError:
    """Turn an error of SQLite or of the system into a message for operators."""
    if not isinstance(exc, sqlite3.Error):
        return StorageError(f"database '{file}' cannot be used: {_cause(exc)}")
    name: str = getattr(exc, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _corrupt(file, str(exc))
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StorageError(f"database '{file}' is not writable: {exc}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StorageError(f"database '{file}' is locked by another program: {exc}")
    return StorageError(f"database '{file}' cannot be used: {exc}")


def _corrupt(file: Path, finding: str) -> StorageError:
    return StorageError(f"database '{file}' is corrupt: {finding}; restore a copy or move it away")


def _cause(exc: Exception) -> str:
    return (exc.strerror or str(exc)).lower() if isinstance(exc, OSError) else str(exc)


def _check_header(file: Path, version_known: int) -> None:
    with file.open("rb") as stream:
        start = stream.read(HEADER.size)
    if not start:
        raise StorageError(f"database '{file}' is an empty file: delete it to start with no data")
    if len(start) < HEADER.size or not start.startswith(MAGIC):
        raise StorageError(f"'{file}' is not a SQLite database: move it away or choose another directory")
    _, version, application_id = HEADER.unpack(start)
    if application_id != APPLICATION_ID:
        raise StorageError(
            f"database '{file}' belongs to another application (application_id={application_id:#x},"
            f" expected {APPLICATION_ID:#x}): choose another directory"
        )
    _check_version(file, version, version_known)


def _check_version(file: Path, version: int, version_known: int) -> None:
    if version > version_known:
        raise StorageError(
            f"database '{file}' has schema version {version}, this program knows up to {version_known}:"
            " use the newer program that wrote it"
        )


def _check_contents(file: Path, version_known: int, check_s_max: float) -> int:
    """Check the file read-only, and return its schema version."""
    # The timer's thread interrupts the check, hence check_same_thread.
    connection = sqlite3.connect(
        f"{file.resolve().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        timeout=BUSY_S_MAX,
        check_same_thread=False,
    )
    try:
        # The log may have a newer version than the main file's header.
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        _check_version(file, version, version_known)
        if version < 1:
            raise _corrupt(file, f"schema version is {version}, expected 1..{version_known}")
        _quick_check(connection, file, check_s_max)
    finally:
        connection.close()
    return version


def _quick_check(connection: sqlite3.Connection, file: Path, check_s_max: float) -> None:
    # The interrupt also stops the walk through the pages, during which SQLite 3.40 calls no handler; the
    # handler covers an interrupt before the statement has begun.
    end_s = time.monotonic() + check_s_max
    connection.set_progress_handler(lambda: time.monotonic() >= end_s, CHECK_STEPS)
    timer = threading.Timer(check_s_max, connection.interrupt)
    timer.start()
    try:
        finding: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as exc:
        if exc.sqlite_errorname != "SQLITE_INTERRUPT":
            raise
        log.warning("check of '%s' stopped after %.1f s, no damage found so far", file, check_s_max)
        return
    finally:
        # Joined, so that a late interrupt cannot hit a closed connection.
        timer.cancel()
        timer.join()
    if finding != "ok":
        raise _corrupt(file, " ".join(finding.split()))


def _create(file: Path, migrations: Sequence[Migration]) -> None:
    """Build an empty database under another name and rename it into place."""
    for suffix in ("-wal", "-journal"):
        remains = file.with_name(file.name + suffix)
        if remains.exists() and remains.stat().st_size:
            raise StorageError(
                f"'{remains}' exists but '{file.name}' does not: restore the database or move the log away"
            )
    draft = file.with_name(f"{file.name}.new")
    for suffix in ("", "-wal", "-shm", "-journal"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    draft.touch(mode=0o600)
    connection = _connect(draft, fsync=True)
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _apply(connection, 0, migrations)
        connection.execute("INSERT INTO counter (name, value) VALUES (?, ?)", (IDENTITY, new_identity()))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    _rename_durably(draft, file)


def _connect(file: Path, *, fsync: bool) -> sqlite3.Connection:
    # One connection, used by one thread at a time under the lock of Storage.
    connection = sqlite3.connect(
        file,
        isolation_level=None,
        timeout=BUSY_S_MAX,
        check_same_thread=False,
        cached_statements=STATEMENTS_CACHED,
    )
    try:
        mode: str = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StorageError(f"database '{file}' is on a file system without write-ahead logs: mode={mode}")
        # NORMAL syncs at checkpoints only: safe if the process dies, not in a power cut.
        connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        # A read-only file fails here, not at the first message.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(
    connection: sqlite3.Connection, file: Path, version: int, migrations: Sequence[Migration]
) -> None:
    copy = _keep_copy(connection, file, version)
    log.info("migrating '%s' from schema version %d to %d", file, version, len(migrations))
    log.info("a copy of the old database is kept as '%s'", copy)
    _apply(connection, version, migrations)


def _apply(connection: sqlite3.Connection, version: int, migrations: Sequence[Migration]) -> None:
    """Run the steps after `version` in one transaction: all of them, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in migrations[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _keep_copy(connection: sqlite3.Connection, file: Path, version: int) -> Path:
    """Copy the database with its log; an earlier copy is never overwritten."""
    copy = file.with_name(f"{file.name}.version-{version}")
    attempt = 1
    while copy.exists():
        attempt += 1
        copy = file.with_name(f"{file.name}.version-{version}.{attempt}")
    draft = copy.with_name(f"{copy.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    target = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.backup(target)
    finally:
        target.close()
    _rename_durably(draft, copy)
    return copy


def _rename_durably(source: Path, target: Path) -> None:
    os.rename(source, target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
