"""Where an idle thread waits for work.

Opening a gate is a system call, and Python's own lock is free meanwhile: a more urgent thread that wakes on
the same processor runs at once. Woken by a `threading.Lock` it would wake, find Python's lock taken by
whoever woke it, and sleep again.
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import Final

_READ_MAX: Final = 64


class Gate:
    """Shut until it is opened; whoever waits passes and shuts it again. Opening an open one is harmless."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def open(self) -> None:
        # A full pipe is an open gate.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"x")

    def wait(self, limit_s: float) -> bool:
        """Wait until it is open; False when that took longer than the limit."""
        if not self._poll.poll(limit_s * 1000):
            return False
        os.read(self._reader, _READ_MAX)
        return True

    # By the collector, not by its thread: somebody may be about to open it.
    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
