"""The time of one simulated broker or client: timers in the kernel, and turns.

A clock lives as long as its process: after `stop` none of its timers happens. Brokers' clocks differ from
the kernel's time by an offset, since real ones do.
"""

from __future__ import annotations

from collections.abc import Callable

from timebound.sim.kernel.kernel import Event, Kernel

_TURN_PRIORITY = 1  # a turn follows everything else of the same time


class Call(Event):
    """Something to be called at its time, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def happen(self, now_ns: int) -> None:
        if self._callback is not None:
            self._callback()

    def cancel(self) -> None:
        """Do nothing when the time comes."""
        self._callback = None


class VirtualClock:
    """The time and the turns of one process."""

    def __init__(self, kernel: Kernel, turn: Callable[[], None], offset_ns: int = 0) -> None:
        self._kernel = kernel
        self._turn = turn
        self._offset_ns = offset_ns
        self._is_scheduled = False
        self._is_stopped = False
        self.notes: list[str] = []

    def now_ns(self) -> int:
        return self._kernel.now_ns + self._offset_ns

    def call_at_ns(self, when_ns: int, callback: Callable[[], None]) -> Call:
        """Call something at a time of this clock, or now if that has passed."""
        call = Call(lambda: None if self._is_stopped else callback())
        self._kernel.schedule(max(when_ns - self._offset_ns, self._kernel.now_ns), call)
        return call

    def schedule(self) -> None:
        """Ask for a turn, after everything else that happens now."""
        if not self._is_scheduled and not self._is_stopped:
            self._is_scheduled = True
            self._kernel.schedule(self._kernel.now_ns, Call(self._run), _TURN_PRIORITY)

    def stop(self) -> None:
        """End the process: nothing that was asked for happens any more."""
        self._is_stopped = True

    def fault(self, name: str, error: Exception) -> None:
        """Raise an internal error: a simulation has none that is passed over."""
        raise error

    def note(self, text: str, *, is_warning: bool) -> None:
        """Keep a line of the log."""
        self.notes.append(text)

    def _run(self) -> None:
        self._is_scheduled = False
        if not self._is_stopped:
            self._turn()
