"""Return of unused memory to the system.

The interpreter returns its arenas when they are empty; one small object from a flood that stays alive keeps
a megabyte. What the C library's allocator has freed inside its heap stays with the process until it is
trimmed: after a flood, tens of megabytes.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Final, Protocol

# A full collection frees old cycles, and empties the interpreter's free lists, each of which may keep an
# arena. It visits all objects, about 30 per session and a few per queued copy: for this many it takes about
# 10 ms. With more, it runs less often.
COLLECT_SESSIONS_MAX: Final = 1_000
COLLECT_QUEUED_BYTES_MAX: Final = 16 * 1024 * 1024
COLLECT_EVERY: Final = 60  # seconds
COLLECT_EVERY_LARGE: Final = 600
# Surviving new objects before a young collection, and young collections before a middle one. A turn makes
# and drops thousands of objects; with the default of 700 they are visited several times in between.
# Measured: 30 to 45 % more messages per second, with a trace and without.
COLLECT_AFTER: Final = (50_000, 20)
# While queues are full, new objects survive and cost 1 to 3 us each: so fewer at a time.
COLLECT_AFTER_LARGE: Final = (5_000, 2)
# Full collections never run by themselves: with full queues they stall the broker for 0.3 s.
NEVER: Final = 1_000_000_000
# Memory is returned when the queues are this much below their last peak for this many seconds.
RELEASE_BYTES_MIN: Final = 4 * 1024 * 1024
RELEASE_AFTER: Final = 5
# It is repeated this often: what is rebuilt goes to the fullest arenas, so each time a few more get empty.
RELEASE_TIMES: Final = 8


class Renewable(Protocol):
    """A lasting object that can be rebuilt: if made in a flood, it prevents arenas from being returned."""

    def withdraw(self) -> None: ...

    def publish(self, now_ns: int) -> None: ...


class MemoryKeeper:
    """Watches the size of the queues, and returns memory after they were emptied."""

    def __init__(self, forget: Callable[[], None] | None = None) -> None:
        """`forget` empties caches, whose entries would otherwise prevent arenas from being returned."""
        self._forget = forget
        self._trim = _find_trim()
        self._peak_bytes = 0
        self._seconds_below = 0
        self._releases_left = 0
        self._seconds_since = 0  # since the last full collection
        self._is_small = True
        self.figures: Renewable | None = None

    def patrol(self, queued_bytes: int, sessions: int, now_ns: int) -> None:
        """Check the queues; called about once a second with the most they held since the last call."""
        is_small = sessions <= COLLECT_SESSIONS_MAX and queued_bytes <= COLLECT_QUEUED_BYTES_MAX
        if is_small != self._is_small:
            self._is_small = is_small
            set_collecting(is_small=is_small)
        self._seconds_since += 1
        is_due = self._seconds_since >= (COLLECT_EVERY if is_small else COLLECT_EVERY_LARGE)
        if is_due:
            self._collect()
        has_emptied = self._peak_bytes - queued_bytes >= RELEASE_BYTES_MIN
        if not has_emptied:
            self._peak_bytes = max(self._peak_bytes, queued_bytes)
        if not has_emptied and not self._releases_left:
            self._seconds_below = 0
            return
        self._seconds_below += 1
        if self._seconds_below >= RELEASE_AFTER:
            self._seconds_below = 0
            self._releases_left = RELEASE_TIMES - 1 if has_emptied else self._releases_left - 1
            self._peak_bytes = queued_bytes
            self._release(is_small and not is_due, now_ns)

    def _release(self, collects: bool, now_ns: int) -> None:
        """Return memory to the system; what lives on and can be rebuilt is rebuilt, to move it."""
        if self.figures is not None:
            self.figures.withdraw()
        if self._forget is not None:
            self._forget()
        if collects:
            self._collect()
        if self._trim is not None:
            self._trim(0)
        if self.figures is not None:
            self.figures.publish(now_ns)

    def _collect(self) -> None:
        gc.collect()
        self._seconds_since = 0


def set_collecting(*, is_small: bool) -> None:
    """Set the size of young collections: small while queues are full."""
    gc.set_threshold(*(COLLECT_AFTER if is_small else COLLECT_AFTER_LARGE), NEVER)


def _find_trim() -> Callable[[int], int] | None:
    """Return `malloc_trim` of glibc; None with other C libraries."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
