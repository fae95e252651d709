"""A lock whose holders owe a last step: tidying up what others left to them.

Who may not wait for the lock, because its holder perhaps waits for that very thread, notes what is to be done
and tries to take it. If that fails, whoever has it does what was noted when letting go: also a holder that
only reads, and knows nothing of it. Not compiled: connecting and leaving are rare.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock


class Guard:
    """Enter it with `with`, in one thread as often as need be; `tidy` is called after each time."""

    def __init__(self, tidy: Callable[[], None]) -> None:
        self._tidy = tidy
        self._lock = RLock()
        self._depth = 0  # with statements inside each other; changed by who has the lock

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._depth -= 1
        self._lock.release()
        self._tidy()

    def acquire_nowait(self) -> bool:
        """Take the lock to tidy up; False when somebody is at work under it, be it this very thread."""
        if not self._lock.acquire(False):
            return False
        if self._depth:
            self._lock.release()
            return False
        return True

    def release(self) -> None:
        """Let go after `acquire_nowait`."""
        self._lock.release()
