"""Detection of lost commits: whether the database still has every acknowledged one.

SQLite reads its write-ahead log up to the first damaged frame and treats the rest as an unfinished commit.
Acknowledged commits after the damage would be lost silently. So commits are counted: the number is a row of
each transaction, and is written to a second file after it. After a crash between the two, the file is
behind; if the database is behind the file, it has lost commits.

The file is mapped into memory, as SQLite maps the index of its log: a write costs no system call, and
survives when the process is killed. The number is stored twice and written alternately, so that one of the
two is always valid.

With `fsync` the file cannot be ahead: a commit is on the device before its number is written. Without it,
a power cut may lose the last commits and keep the number, which is accepted; so the file has the boot id of
the machine, and after a reboot a loss is reported but not refused.
"""

from __future__ import annotations

import logging
import mmap
import os
import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Final

from timebound.errors import StorageError
from timebound.node.storage.plan import COMMITS
from timebound.node.storage.schema import BUSY_S_MAX, DATABASE_NAME, IDENTITY, new_identity

log = logging.getLogger(__name__)

COMMITS_NAME: Final = "timebound.commits"
_FORM: Final = "timebound-commits-1"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")  # Linux; elsewhere boots cannot be told apart
_COUNT: Final = struct.Struct("<qq")  # a number and its inverse, which reveals a half-written one
_COUNT_START: Final = 128
_COUNTS: Final = 2
_FILE_BYTES: Final = _COUNT_START + _COUNTS * _COUNT.size
_PUT: Final = "INSERT OR REPLACE INTO counter (name, value) VALUES (?, ?)"


class Known:
    """Contents of the second file: the database it belongs to, as text, and the commits, in two places."""

    __slots__ = ("boot_id", "commits", "identity", "is_synced")

    def __init__(self, identity: int, commits: int, is_synced: bool, boot_id: str) -> None:
        self.identity = identity
        self.commits = commits
        self.is_synced = is_synced
        self.boot_id = boot_id

    def encode(self) -> bytes:
        text = f"{_FORM} {self.identity} {int(self.is_synced)} {self.boot_id or '-'}".encode()
        line = b"%b %08x" % (text, zlib.crc32(text))
        return line.ljust(_COUNT_START - 1) + b"\n" + _COUNT.pack(self.commits, ~self.commits) * _COUNTS

    @classmethod
    def decode(cls, content: bytes) -> Known | None:
        line = content[:_COUNT_START].decode("ascii", "replace").rstrip()
        text, _, checksum = line.rpartition(" ")
        fields = text.split(" ")
        pairs = _COUNT.iter_unpack(content[_COUNT_START:])
        counts = [commits for commits, inverse in pairs if inverse == ~commits]
        is_whole = checksum == f"{zlib.crc32(text.encode()):08x}" and counts
        if not is_whole or len(fields) != 4 or fields[0] != _FORM:
            return None
        _, identity, is_synced, boot_id = fields
        return cls(int(identity), max(counts), is_synced == "1", "" if boot_id == "-" else boot_id)


class Commits:
    """The count of commits of an open database: each transaction writes `next`, and `settle` follows it."""

    def __init__(self, file: mmap.mmap, known: Known) -> None:
        self._file = file
        self._known = known

    @classmethod
    def open(cls, directory: Path, connection: sqlite3.Connection, *, fsync: bool) -> Commits:
        """Continue to count where the database or the file stopped.

        Raises: sqlite3.Error or OSError if either cannot be written.
        """
        identity, commits = _read_counters(connection)
        known = read_known(directory)
        if known is not None and known.identity == identity:
            commits = max(commits, known.commits)
        opened = Known(identity or new_identity(), commits, fsync, _boot_id())
        # This commit also forces those of an earlier run without `fsync` to the device.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_PUT, (IDENTITY, opened.identity))
        connection.execute(_PUT, (COMMITS, commits + 1))
        connection.execute("COMMIT")
        opened.commits = commits + 1
        return cls(_map_file(directory / COMMITS_NAME, opened.encode()), opened)

    def next(self) -> int:
        """Return the number that the next transaction has to write to the table `counter`."""
        return self._known.commits + 1

    def settle(self) -> None:
        """Record that the transaction is committed."""
        commits = self._known.commits = self._known.commits + 1
        _COUNT.pack_into(self._file, _COUNT_START + commits % _COUNTS * _COUNT.size, commits, ~commits)

    def close(self) -> None:
        self._file.close()


def check_loss(directory: Path, *, is_accepted: bool) -> None:
    """Compare a database, before it is opened, with what was acknowledged; neither is changed.

    Raises: StorageError if commits are missing and that is not accepted.
    """
    known = read_known(directory)
    file = directory / DATABASE_NAME
    if known is None or not file.exists():
        return
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_S_MAX)
        try:
            identity, commits = _read_counters(connection)
        finally:
            connection.close()
    except sqlite3.Error:
        return  # faults of the file itself are found when it is opened
    # Another database than the one that was counted has not lost anything.
    if identity not in (0, known.identity) or commits >= known.commits:
        return
    text = (
        f"database '{file}' has lost {known.commits - commits} of {known.commits} acknowledged commits:"
        " its write-ahead log was damaged or removed, or an older copy was restored"
    )
    if is_accepted:
        log.warning("%s; continuing with what is left, as requested", text)
    elif not known.is_synced and (known.boot_id != _boot_id() or not known.boot_id):
        log.warning("%s, or there was a power cut, which data.fsync = false allows for; continuing", text)
    else:
        raise StorageError(f"{text}; restore a copy, or continue with what is left: serve --accept-loss")


def read_known(directory: Path) -> Known | None:
    """Read the second file; None if it is missing or unreadable."""
    file = directory / COMMITS_NAME
    known = None
    try:
        with file.open("rb") as stream:
            content = stream.read(_FILE_BYTES)
        if len(content) == _FILE_BYTES:
            known = Known.decode(content)
    except FileNotFoundError:
        return None
    except OSError as exc:
        log.debug("'%s': %s", file, exc)
    if known is None:
        log.warning("'%s' cannot be read: a loss of commits before this start would not be detected", file)
    return known


def _map_file(file: Path, content: bytes) -> mmap.mmap:
    """Overwrite a file and map it; its space is allocated now, not at a later write."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        return mmap.mmap(descriptor, len(content))
    finally:
        os.close(descriptor)


def _read_counters(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the identity of the database and its commits; 0 if an earlier version wrote none."""
    rows = connection.execute("SELECT name, value FROM counter WHERE name IN (?, ?)", (IDENTITY, COMMITS))
    found: dict[str, int] = dict(rows.fetchall())
    return found.get(IDENTITY, 0), found.get(COMMITS, 0)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""
