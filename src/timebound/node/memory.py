"""Return of unused memory to the system.

The interpreter returns its arenas when they are empty; one small object from a flood that stays alive keeps
a megabyte. What the C library's allocator has freed inside its heap stays with the process until it is
trimmed: after a flood, tens of megabytes.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Final, Protocol

# A full collection frees old cycles, and empties the interpreter's free lists, each of which may keep an
# arena. It visits all objects: about 30 per session, a few per queued copy, hundreds per long content filter.
# For this many it takes about 20 ms. With more, it runs less often.
COLLECT_SESSIONS_MAX: Final = 1_000
COLLECT_QUEUED_BYTES_MAX: Final = 16 * 1024 * 1024
COLLECT_BLOCKS_MAX: Final = 500_000
COLLECT_EVERY: Final = 60  # seconds
COLLECT_EVERY_LARGE: Final = 600
# Young collections visit new objects alone, after so many more were made than freed: 1 to 2 ms. A turn makes
# and drops thousands; with the default of 700 they are visited several times in between.
COLLECT_AFTER: Final = 20_000
# Middle and full collections never run by themselves. What a flood or long filters make stays, and a middle
# one visits all of it that is new: it stalled the broker for 0.1 s, and a full one for 0.3 s.
NEVER: Final = 1_000_000_000
# While this much waits, what is new is set aside in every turn. In full queues as much is freed as made, so a
# young collection comes late, and visits all that has come since.
SET_ASIDE_BYTES_MIN: Final = 2 * 1024 * 1024
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
        self._is_aside = False  # something new was set aside since
        self.figures: Renewable | None = None

    def patrol(self, queued_bytes: int, sessions: int, now_ns: int) -> None:
        """Check the queues; called about once a second with the most they held since the last call."""
        is_small = sessions <= COLLECT_SESSIONS_MAX and queued_bytes <= COLLECT_QUEUED_BYTES_MAX
        self._seconds_since += 1
        is_due = self._seconds_since >= COLLECT_EVERY_LARGE
        if self._seconds_since >= COLLECT_EVERY and is_small:
            is_due = is_due or sys.getallocatedblocks() <= COLLECT_BLOCKS_MAX
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
        if self._is_aside:
            self._is_aside = False
            gc.unfreeze()  # what was set aside at the start, too: it cannot be told apart
        gc.collect()
        self._seconds_since = 0

    def set_aside(self) -> None:
        """Keep what is new out of young collections; takes no time."""
        self._is_aside = True
        gc.freeze()


def set_collecting() -> None:
    """Have only young collections run by themselves."""
    gc.set_threshold(COLLECT_AFTER, NEVER, NEVER)


def _find_trim() -> Callable[[int], int] | None:
    """Return `malloc_trim` of glibc; None with other C libraries."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
