"""Where an idle thread waits for work.

Opening a gate is a system call, during which Python's lock is free: a more urgent thread that wakes on the
same processor runs at once. Woken by a `threading.Lock` it would find Python's lock taken by the thread that
woke it, and sleep again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import sys
import time
from typing import Final

from timebound.units import SECOND

_READ_MAX: Final = 64


class Gate:
    """Shut until it is opened; a thread that waits passes and shuts it again. It may be opened twice."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def fileno(self) -> int:
        return self._reader

    def open(self) -> None:
        # A full pipe is an open gate.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"x")

    def wait(self, limit_s: float) -> bool:
        """Wait until it is open; return False when that took longer than the limit."""
        if not self._poll.poll(limit_s * 1000):
            return False
        os.read(self._reader, _READ_MAX)
        return True

    def pass_by(self) -> None:
        """Release Python's lock for a moment: this takes a microsecond, sleeping takes a hundred."""
        self._poll.poll(0)

    # By the collector, not by its thread: another thread may be about to open it.
    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


# The C library's `struct itimerspec`: the period, then the moment, each in seconds and nanoseconds.
_TIMER_SPEC: Final = struct.Struct("@llll")
# timerfd_settime(2): the time is not relative to now.
_ABSOLUTE: Final = 1


class Alarm:
    """A gate that opens by itself at a moment that others may set and move, in 3 µs, waking no thread.

    It uses a system timer (timerfd), called through ctypes because Python offers it only from 3.13 on. Where
    there is none, setting opens the gate, and the waiting thread must check the clock.
    """

    def __init__(self) -> None:
        self._gate = Gate()
        self._poll = select.poll()
        self._poll.register(self._gate.fileno(), select.POLLIN)
        self._timer = -1
        self._spec = ctypes.create_string_buffer(_TIMER_SPEC.size)
        # PyDLL, which keeps Python's lock: nothing here waits.
        library = ctypes.PyDLL(None) if sys.platform == "linux" else None
        if library is not None and hasattr(library, "timerfd_create"):
            self._settime = library.timerfd_settime
            self._timer = library.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer >= 0:
            self._poll.register(self._timer, select.POLLIN)

    def set(self, at_ns: int) -> None:
        """Open at a moment of the monotonic clock, which replaces the one set before."""
        if self._timer < 0:
            self._gate.open()
            return
        # A moment of zero would stop the timer.
        _TIMER_SPEC.pack_into(self._spec, 0, 0, 0, *divmod(max(at_ns, 1), SECOND))
        self._settime(self._timer, _ABSOLUTE, self._spec, None)

    def open(self) -> None:
        """Open now."""
        self._gate.open()

    def wait(self, limit_s: float) -> None:
        """Wait until it is open, at most `limit_s`."""
        for file, _ in self._poll.poll(limit_s * 1000):
            with contextlib.suppress(BlockingIOError):
                os.read(file, _READ_MAX)

    def __del__(self) -> None:
        if self._timer >= 0:
            os.close(self._timer)
