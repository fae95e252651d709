"""Memory that the process holds and does not use goes back to the system.

The interpreter returns its own arenas as they empty; one small object that was made during a flood and
stays keeps a megabyte. What the C library's allocator has freed inside its heap stays with the process
until it is told: after a flood that is tens of megabytes.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Final

# A full collection empties the interpreter's lists of free objects, each of which may keep an arena. It
# looks at everything, about 30 objects a session: for this many sessions it takes some 10 ms.
COLLECT_SESSIONS_MAX: Final = 1_000
# So much less in the queues than at their last peak is worth a look: it takes some milliseconds.
RELEASE_BYTES_MIN: Final = 4 * 1024 * 1024


class MemoryKeeper:
    """Watches how full the queues are, and gives memory back when they have emptied."""

    def __init__(self) -> None:
        self._trim = _find_trim()
        self._peak_bytes = 0
        self.released = 0  # times

    def patrol(self, queued_bytes: int, sessions: int) -> None:
        """Called about once a second with what the queues of all sessions cost now."""
        if self._peak_bytes - queued_bytes < RELEASE_BYTES_MIN:
            self._peak_bytes = max(self._peak_bytes, queued_bytes)
            return
        self._peak_bytes = queued_bytes
        self.released += 1
        if sessions <= COLLECT_SESSIONS_MAX:
            gc.collect()
        if self._trim is not None:
            self._trim(0)


def _find_trim() -> Callable[[int], int] | None:
    """`malloc_trim` of glibc; other C libraries have no such thing."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
