"""A lock whose holder does a last step after releasing it: work that others left to it.

A thread that must not wait for the lock, because its holder may be waiting for that very thread, notes the
work and tries to take the lock. If that fails, the holder does the work after releasing it, even one that
only reads. Not compiled: connecting and leaving are rare.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock


class Guard:
    """A reentrant lock for `with` statements; `tidy` is called after each of them."""

    def __init__(self, tidy: Callable[[], None]) -> None:
        self._tidy = tidy
        self._lock = RLock()
        self._depth = 0  # of nested with statements; changed by the holder alone

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._depth -= 1
        self._lock.release()
        self._tidy()

    def acquire_nowait(self) -> bool:
        """Take the lock to tidy up; return False when it is in use, even by this thread."""
        if not self._lock.acquire(False):
            return False
        if self._depth:
            self._lock.release()
            return False
        return True

    def release(self) -> None:
        """Release the lock after `acquire_nowait`."""
        self._lock.release()
