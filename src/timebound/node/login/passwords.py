"""User names and passwords, in a file that `timebound passwd` writes.

One line per user, `name:$scrypt$ln=15,r=8,p=1$salt$hash`, with `#` for comments. With scrypt every guess
costs 32 MiB and a tenth of a second, so a stolen file is of little use. The same cost at every login would
let reconnecting clients keep the processor busy, so correct passwords are remembered in memory by a fast
keyed hash. `check` blocks: call it in a worker thread.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from timebound.errors import ConfigError

# 2^15 blocks of 1 KiB: the recommended cost for logins when this was written.
_LOG_N: Final = 15
_R: Final = 8
_P: Final = 1
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
# A file may have been made with other costs, but not with ones that stall the broker.
_LOG_N_MAX: Final = 20
_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
# MQTT 5, 1.5.4: a string has at most 65,535 bytes; longer passwords cannot be sent.
_LENGTH_MAX: Final = 65_535
# Users whose last login is remembered; beyond, the oldest is hashed with scrypt again.
_REMEMBERED_MAX: Final = 100_000

_HASH: Final = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,3}),p=([0-9]{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)


def hash_password(password: str) -> str:
    """Make the text to store for a password, with a fresh salt.

    Raises:
        ValueError: the password is empty or longer than MQTT can carry.
    """
    encoded = password.encode()
    if not encoded:
        raise ValueError("password is empty")
    if len(encoded) > _LENGTH_MAX:
        raise ValueError(f"password has {len(encoded)} bytes, at most {_LENGTH_MAX} are allowed")
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = hashlib.scrypt(
        encoded, salt=salt, n=1 << _LOG_N, r=_R, p=_P, maxmem=_MEMORY_BYTES_MAX, dklen=_HASH_BYTES
    )
    return _format_hash(_LOG_N, _R, _P, salt, digest)


def verify(stored: str, password: bytes) -> bool:
    """Whether a password matches a stored hash, in time that does not depend on the answer.

    Raises:
        ValueError: `stored` was not made by `hash_password`.
    """
    log_n, r, p, salt, digest = _parse_hash(stored)
    found = hashlib.scrypt(
        password, salt=salt, n=1 << log_n, r=r, p=p, maxmem=_MEMORY_BYTES_MAX, dklen=len(digest)
    )
    return hmac.compare_digest(found, digest)


@dataclass(frozen=True, slots=True)
class Users:
    """What a password file says: the state of the file, and the hash of every user."""

    stamp: tuple[int, int, int]
    hashes: Mapping[str, str]


class PasswordFile:
    """The users of one password file; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Make an empty file; `load` reads an existing one."""
        self.path = path
        self._hashes: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._nobody = _hash_of_nobody({})
        self._key = secrets.token_bytes(32)
        # Oldest first; in a dict, finding it would take longer with every removal.
        self._remembered: OrderedDict[str, bytes] = OrderedDict()

    @classmethod
    def load(cls, path: Path) -> PasswordFile:
        """Read a password file.

        Raises:
            ConfigError: it cannot be read, or has a wrong line; names the line.
        """
        made = cls(path)
        made._stamp, made._hashes = _read(path)
        made._nobody = _hash_of_nobody(made._hashes)
        return made

    def set(self, user: str, password: str) -> None:
        """Add a user or change a password; `save` writes the file.

        Raises:
            ValueError: the user name or the password cannot be used.
        """
        problem = user_name_problem(user)
        if problem:
            raise ValueError(problem)
        hashed = hash_password(password)
        with self._lock:
            self._hashes[user] = hashed
            self._remembered.pop(user, None)

    def remove(self, user: str) -> bool:
        """Remove a user; return False if there is none of this name."""
        with self._lock:
            self._remembered.pop(user, None)
            return self._hashes.pop(user, None) is not None

    def save(self) -> None:
        """Replace the file atomically, readable by its owner only.

        Raises:
            OSError: the folder cannot be written.
        """
        with self._lock:
            lines = "".join(f"{user}:{self._hashes[user]}\n" for user in sorted(self._hashes))
            _write_private(self.path, lines)
            self._stamp = _stamp(self.path)

    def has(self, user: str) -> bool:
        """Whether a user is in the file; never tell a client."""
        with self._lock:
            return user in self._hashes

    def check(self, user: str, password: bytes) -> bool:
        """Whether a password is correct. Blocks for about 0.1 s unless it was checked before."""
        known_fast = self.check_nowait(user, password)
        if known_fast is not None:
            return known_fast
        with self._lock:
            stored = self._hashes.get(user)
        right = verify(stored or self._nobody, password)
        if stored is None or not right:
            return False
        with self._lock:
            # The file may have been reloaded while this thread was hashing.
            if self._hashes.get(user) != stored:
                return False
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
            self._remembered[user] = self._fast_hash(user, password)
        return True

    def check_nowait(self, user: str, password: bytes) -> bool | None:
        """Return True from memory, or None: then call `check` in a thread.

        It never returns False, so a wrong password always costs the full time.
        """
        with self._lock:
            remembered = self._remembered.get(user)
        if remembered is not None and hmac.compare_digest(remembered, self._fast_hash(user, password)):
            return True
        return None

    def reload_if_changed(self) -> bool:
        """Reload the file if it has changed; return whether it has.

        Raises:
            ConfigError: it has mistakes; the previous users stay in force.
        """
        users = self.read_if_changed()
        if users is None:
            return False
        self.apply(users)
        return True

    def read_if_changed(self) -> Users | None:
        """Return the users for `apply` if the file has changed, else None.

        Raises:
            ConfigError: it has mistakes.
        """
        try:
            changed = _stamp(self.path) != self._stamp
        except OSError:
            changed = True
        return Users(*_read(self.path)) if changed else None

    def apply(self, users: Users) -> None:
        """Replace the users, and forget passwords that were checked against another hash."""
        hashes = dict(users.hashes)
        with self._lock:
            for user in [name for name in self._remembered if hashes.get(name) != self._hashes.get(name)]:
                del self._remembered[user]
            # If another thread has applied a newer file meanwhile, the stamp differs, and it is read again.
            self._stamp, self._hashes = users.stamp, hashes
            self._nobody = _hash_of_nobody(hashes)

    def _fast_hash(self, user: str, password: bytes) -> bytes:
        # The key never leaves this process, so remembered hashes cannot be attacked later.
        name = user.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, len(name).to_bytes(4, "big") + name + password, "sha256")


def user_name_problem(user: str) -> str:
    """Return why a user name cannot be used in the file; empty if it can."""
    if user == "":
        return "user name is empty; clients without a name are anonymous"
    if user == "*":
        return "user name '*' stands for every user in access rules; choose another name"
    if user.startswith("#") or user != user.strip() or any(char in user for char in ":\r\n\0"):
        return f"user name {user!r} begins with '#', or has ':', a line end or space around it"
    return "" if user.isprintable() else f"user name {user!r} has a character that cannot be printed"


def password_mistakes(path: Path) -> list[ConfigError]:
    """Return the mistakes of a password file, one per wrong line."""
    try:
        return _read_lines(path)[2]
    except ConfigError as exc:
        return [exc]


def _read(path: Path) -> tuple[tuple[int, int, int], dict[str, str]]:
    stamp, hashes, mistakes = _read_lines(path)
    if mistakes:
        raise mistakes[0]
    return stamp, hashes


def _read_lines(path: Path) -> tuple[tuple[int, int, int], dict[str, str], list[ConfigError]]:
    try:
        # The stamp first: a write in between then causes another read.
        stamp = _stamp(path)
        text = path.read_text("utf-8")
    except UnicodeDecodeError as exc:
        raise ConfigError(
            "is not a text file in UTF-8; make it with `timebound passwd`", path=str(path)
        ) from exc
    except OSError as exc:
        raise ConfigError(f"cannot be read: {(exc.strerror or str(exc)).lower()}", path=str(path)) from exc
    hashes: dict[str, str] = {}
    mistakes: list[ConfigError] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped == "" or stripped.startswith("#"):
            continue
        user, colon, stored = stripped.partition(":")
        problem = _line_problem(user, colon, stored, hashes)
        if problem:
            mistakes.append(ConfigError(problem, path=str(path), line=number))
        else:
            hashes[user] = stored
    return stamp, hashes, mistakes


def _line_problem(user: str, colon: str, stored: str, hashes: dict[str, str]) -> str:
    if not colon:
        return "line is not 'name:hash'; make it with `timebound passwd`"
    problem = user_name_problem(user)
    if problem:
        return problem
    if user in hashes:
        return f"user {user!r} exists twice"
    try:
        _parse_hash(stored)
    except ValueError as exc:
        return f"user {user!r}: {exc}"
    return ""


def _parse_hash(stored: str) -> tuple[int, int, int, bytes, bytes]:
    found = _HASH.fullmatch(stored)
    if not found:
        raise ValueError("no '$scrypt$...' hash; make it with `timebound passwd`")
    log_n, r, p = int(found[1]), int(found[2]), int(found[3])
    # scrypt needs 128 * r * (N + p) bytes, and its time grows with p as well.
    if not (1 <= log_n <= _LOG_N_MAX and r >= 1 and 1 <= p <= 16):
        raise ValueError(f"scrypt cost ln={log_n},r={r},p={p} is out of range")
    if 128 * r * ((1 << log_n) + p + 2) > _MEMORY_BYTES_MAX:
        raise ValueError(f"scrypt cost ln={log_n},r={r},p={p} needs more than 256 MiB")
    salt, digest = _decode(found[4]), _decode(found[5])
    if len(salt) < 8 or not 16 <= len(digest) <= 64:
        raise ValueError("salt or hash is cut short; make the line again with `timebound passwd`")
    return log_n, r, p, salt, digest


def _hash_of_nobody(hashes: dict[str, str]) -> str:
    """Make a hash that no password matches and that costs as much as a real one.

    Unknown users are checked against it, so that the time does not reveal which users exist. The cost is
    that of the first user: files made by one program have one cost.
    """
    log_n, r, p = (_LOG_N, _R, _P) if not hashes else _parse_hash(next(iter(hashes.values())))[:3]
    salt, digest = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_HASH_BYTES)
    return _format_hash(log_n, r, p, salt, digest)


def _format_hash(log_n: int, r: int, p: int, salt: bytes, digest: bytes) -> str:
    return f"$scrypt$ln={log_n},r={r},p={p}${_encode(salt)}${_encode(digest)}"


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as exc:
        raise ValueError("salt or hash is not base64; make the line again with `timebound passwd`") from exc


def _stamp(path: Path) -> tuple[int, int, int]:
    # Two writes close together may have the same time; a replaced file has a new inode.
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _write_private(path: Path, text: str) -> None:
    # mkstemp makes the file with mode 0600, so others can never read it.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(OSError):
                # Written by root for a broker that runs as another user: that user keeps the file.
                status = path.stat()
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
