"""Memory that the process holds and does not use goes back to the system.

The interpreter returns its own arenas as they empty; one small object that was made during a flood and
stays keeps a megabyte. What the C library's allocator has freed inside its heap stays with the process
until it is told: after a flood that is tens of megabytes.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Final, Protocol

# A full collection frees cycles that have grown old, and empties the interpreter's lists of free objects,
# each of which may keep an arena. It looks at everything, about 30 objects a session and a few for each copy
# that waits: for this many it takes some 10 ms. More are looked at less often.
COLLECT_SESSIONS_MAX: Final = 1_000
COLLECT_QUEUED_BYTES_MAX: Final = 16 * 1024 * 1024
COLLECT_EVERY: Final = 60  # seconds
COLLECT_EVERY_LARGE: Final = 600
# New objects that stay before the young are collected, and how often that is before those of the middle are.
# A turn makes thousands of objects and drops them again; counted as 700, the default, they are looked through
# several times in between. Measured: 30 to 45 % more messages a second, with a trace and without.
COLLECT_AFTER: Final = (50_000, 20)
# While much waits, what is new stays, and takes 1 to 3 us an object: so less at a time.
COLLECT_AFTER_LARGE: Final = (5_000, 2)
# A collection of all is never due by itself: with full queues it stops the broker for 0.3 s.
NEVER: Final = 1_000_000_000
# So much less in the queues than at their last peak, for so many seconds, is worth the milliseconds it takes.
RELEASE_BYTES_MIN: Final = 4 * 1024 * 1024
RELEASE_AFTER: Final = 5


class Renewable(Protocol):
    """What lasts, but can be made anew: if it was made in a flood, it keeps arenas from being given back."""

    def withdraw(self) -> None: ...

    def publish(self, now_ns: int) -> None: ...


class MemoryKeeper:
    """Watches how full the queues are, and gives memory back when they have emptied."""

    def __init__(self) -> None:
        self._trim = _find_trim()
        self._peak_bytes = 0
        self._seconds_below = 0
        self._seconds_since = 0  # the last full collection
        self._is_small = True
        self.figures: Renewable | None = None

    def patrol(self, queued_bytes: int, sessions: int, now_ns: int) -> None:
        """Called about once a second with what the queues of all sessions cost now."""
        is_small = sessions <= COLLECT_SESSIONS_MAX and queued_bytes <= COLLECT_QUEUED_BYTES_MAX
        if is_small != self._is_small:
            self._is_small = is_small
            set_collecting(is_small=is_small)
        self._seconds_since += 1
        is_due = self._seconds_since >= (COLLECT_EVERY if is_small else COLLECT_EVERY_LARGE)
        if is_due:
            self._collect()
        if self._peak_bytes - queued_bytes < RELEASE_BYTES_MIN:
            self._peak_bytes = max(self._peak_bytes, queued_bytes)
            self._seconds_below = 0
            return
        self._seconds_below += 1
        if self._seconds_below < RELEASE_AFTER:
            return
        self._seconds_below = 0
        self._peak_bytes = queued_bytes
        if self.figures is not None:
            self.figures.withdraw()
        if is_small and not is_due:
            self._collect()
        if self._trim is not None:
            self._trim(0)
        if self.figures is not None:
            self.figures.publish(now_ns)

    def _collect(self) -> None:
        gc.collect()
        self._seconds_since = 0


def set_collecting(*, is_small: bool) -> None:
    """Set how much of the new is collected at a time: while much waits, little."""
    gc.set_threshold(*(COLLECT_AFTER if is_small else COLLECT_AFTER_LARGE), NEVER)


def _find_trim() -> Callable[[int], int] | None:
    """`malloc_trim` of glibc; other C libraries have no such thing."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
