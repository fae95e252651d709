"""Whether the database still holds every commit that was acknowledged.

SQLite reads its write-ahead log up to the first damaged frame and takes the rest for a commit that a
crash cut short. Acknowledged commits behind the damage would be gone without a word. So commits are
counted: the number is a row of each transaction, and is written to a second file after it. A crash between
the two leaves the file behind; a database behind the file has lost commits.

With `fsync` the file cannot be ahead: a commit is on the device before its number is written. Without,
a power cut may take the last commits and keep the number, as was agreed; so the file says which start of
the machine it belongs to, and after another one a loss is reported, not refused.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from pathlib import Path
from typing import Final

from timebound.errors import StorageError
from timebound.node.storage_plan import COMMITS
from timebound.node.storage_schema import BUSY_S_MAX, DATABASE_NAME, IDENTITY, new_identity

log = logging.getLogger(__name__)

COMMITS_NAME: Final = "timebound.commits"
_FORM: Final = "timebound-commits-1"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")  # Linux; elsewhere no start is known from another
_BYTES_MAX: Final = 256
_PUT: Final = "INSERT OR REPLACE INTO counter (name, value) VALUES (?, ?)"


class Known:
    """What the second file says."""

    __slots__ = ("_start", "boot_id", "commits", "identity", "is_synced")

    def __init__(self, identity: int, commits: int, is_synced: bool, boot_id: str) -> None:
        self.identity = identity
        self.commits = commits
        self.is_synced = is_synced
        self.boot_id = boot_id
        self._start = f"{_FORM} {identity} {int(is_synced)} {boot_id or '-'}".encode()

    def encode(self) -> bytes:
        # The number has a fixed width, so that a write replaces the one before entirely.
        text = b"%b %020d" % (self._start, self.commits)
        return b"%b %08x\n" % (text, zlib.crc32(text))


class Commits:
    """The count of commits of an open database: each transaction writes `next`, and `settle` follows it."""

    def __init__(self, descriptor: int, known: Known) -> None:
        self._descriptor = descriptor
        self._known = known
        self._is_failing = False

    @classmethod
    def open(cls, directory: Path, connection: sqlite3.Connection, *, fsync: bool) -> Commits:
        """Go on counting where the database or the file stopped.

        Raises: sqlite3.Error or OSError when either cannot be written.
        """
        identity, commits = _read_counters(connection)
        known = read_known(directory)
        if known is not None and known.identity == identity:
            commits = max(commits, known.commits)
        opened = Known(identity or new_identity(), commits, fsync, _boot_id())
        descriptor = os.open(directory / COMMITS_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            made = cls(descriptor, opened)
            # This commit forces those of an earlier run without `fsync` to the device as well.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_PUT, (IDENTITY, opened.identity))
            connection.execute(_PUT, (COMMITS, made.next()))
            connection.execute("COMMIT")
            os.ftruncate(descriptor, len(opened.encode()))
            made.settle()
        except BaseException:
            os.close(descriptor)
            raise
        return made

    def next(self) -> int:
        """The number that the next transaction has to write into the table `counter`."""
        return self._known.commits + 1

    def settle(self) -> None:
        """Note that the transaction is committed. A failure is logged: the file then stays behind."""
        self._known.commits += 1
        try:
            os.pwrite(self._descriptor, self._known.encode(), 0)
            self._is_failing = False
        except OSError as exc:
            if not self._is_failing:
                log.warning("'%s' cannot be written, a loss may go unnoticed: %s", COMMITS_NAME, exc)
            self._is_failing = True

    def close(self) -> None:
        os.close(self._descriptor)


def check_loss(directory: Path, *, is_accepted: bool) -> None:
    """Compare a database that is not open yet with what was acknowledged; neither is changed.

    Raises: StorageError when commits are missing and that is not accepted.
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
        return  # what is wrong with the file itself is found when it is opened
    # Another database than the one that was counted has lost nothing of it.
    if identity not in (0, known.identity) or commits >= known.commits:
        return
    text = (
        f"database '{file}' has lost {known.commits - commits} of {known.commits} acknowledged commits:"
        " its write-ahead log was damaged or removed, or an older copy was restored"
    )
    if is_accepted:
        log.warning("%s; going on with what is left, as told", text)
    elif not known.is_synced and (known.boot_id != _boot_id() or not known.boot_id):
        log.warning("%s, or the power failed, which data.fsync = false allows for; going on", text)
    else:
        raise StorageError(f"{text}; restore a copy, or go on with what is left: serve --accept-loss")


def read_known(directory: Path) -> Known | None:
    """Read the second file; None if there is none, or none that can be read."""
    file = directory / COMMITS_NAME
    try:
        with file.open("rb") as stream:
            text, _, checksum = stream.read(_BYTES_MAX).decode("ascii").strip().rpartition(" ")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        text = checksum = ""
    fields = text.split(" ")
    if checksum != f"{zlib.crc32(text.encode()):08x}" or len(fields) != 5 or fields[0] != _FORM:
        log.warning("'%s' cannot be read, so a loss before this start would go unnoticed", file)
        return None
    return Known(int(fields[1]), int(fields[4]), fields[2] == "1", "" if fields[3] == "-" else fields[3])


def _read_counters(connection: sqlite3.Connection) -> tuple[int, int]:
    """The database's identity and its commits; 0 where an earlier version wrote none."""
    rows = connection.execute("SELECT name, value FROM counter WHERE name IN (?, ?)", (IDENTITY, COMMITS))
    found: dict[str, int] = dict(rows.fetchall())
    return found.get(IDENTITY, 0), found.get(COMMITS, 0)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""
