"""The timer module: it wakes the channel when a timer is due.

The timers themselves belong to the channel, in one heap, so a module can be swapped while they run: it only
has to call `channel.wake(now_ns)` in time. `Timing` leaves that to the program (and to tests, which set the
time themselves), `ThreadTiming` uses a thread, and `AsyncioTiming` an event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread, get_ident
from typing import TYPE_CHECKING, Final, Protocol

from timebound.channel.base.errors import ChannelError
from timebound.channel.base.realtime import TIMER_PRIORITY, become_real_time
from timebound.units import SECOND

if TYPE_CHECKING:
    import asyncio

# A waiting thread checks this often even if nothing is due, in case a wake-up was lost.
WAIT_NS_MAX: Final = 1 * SECOND
_JOIN_S: Final = 5.0


class Wakeable(Protocol):
    """What a timer module needs of its channel."""

    def wake(self, now_ns: int) -> int: ...
    def next_wakeup_ns(self) -> int | None: ...
    def now_ns(self) -> int: ...


class Timing:
    """Leaves it to the program to wake the channel."""

    def start(self, channel: Wakeable, notice: Callable[[str], None]) -> None:
        """Begin waking `channel`."""

    def rearm(self) -> None:
        """Take note that the next due time may have become earlier."""

    def close(self) -> None:
        """Stop; return once no `wake` of this module is running."""


class ThreadTiming(Timing):
    """One thread sleeps until the next timer is due; with real-time priority above all lanes if permitted.

    Where several processes share a processor, `priority` should be just above the lanes of this one: a
    thread that waits for Python's lock wakes up often, and would delay more urgent lanes of other processes.
    """

    def __init__(
        self, *, real_time: bool = True, cpu: int | None = None, priority: int = TIMER_PRIORITY
    ) -> None:
        self._real_time = real_time
        self._priority = priority
        self._cpu = cpu
        self._condition = Condition()
        self._wake_thread: Thread | None = None
        self._is_closed = False
        self._channel: Wakeable | None = None

    def start(self, channel: Wakeable, notice: Callable[[str], None]) -> None:
        if self._wake_thread is not None:
            raise ChannelError("timer module was started before; make a new one for each channel")
        self._channel = channel
        self._wake_thread = Thread(target=self._run, args=(notice,), name="timebound-timers", daemon=True)
        self._wake_thread.start()

    def rearm(self) -> None:
        with self._condition:
            self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        # A consumer may close its channel from the timer thread itself, in a reactive channel.
        if self._wake_thread is not None and self._wake_thread.ident != get_ident():
            self._wake_thread.join(_JOIN_S)

    def _run(self, notice: Callable[[str], None]) -> None:
        if self._real_time:
            trouble = become_real_time(self._priority, self._cpu)
            if trouble:
                notice(f"timers run at normal priority: {trouble}")
        channel = self._channel
        assert channel is not None
        while True:
            with self._condition:
                if self._is_closed:
                    return
                due_ns = channel.next_wakeup_ns()
                wait_ns = WAIT_NS_MAX if due_ns is None else min(due_ns - channel.now_ns(), WAIT_NS_MAX)
                if wait_ns > 0:
                    self._condition.wait(wait_ns / SECOND)
                    continue
            channel.wake(channel.now_ns())


class AsyncioTiming(Timing):
    """An event loop wakes the channel; start the channel inside that loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channel: Wakeable | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self, channel: Wakeable, notice: Callable[[str], None]) -> None:
        if self._loop is not None:
            raise ChannelError("timer module was started before; make a new one for each channel")
        # Imported here, so that a channel whose timers have a thread does not load asyncio.
        from asyncio import get_running_loop

        try:
            self._loop = get_running_loop()
        except RuntimeError as error:
            raise ChannelError("asyncio timers need a running event loop; start them inside one") from error
        self._channel = channel
        self._arm()

    def rearm(self) -> None:
        if self._loop is not None and not self._is_closed:
            self._loop.call_soon_threadsafe(self._arm)

    def close(self) -> None:
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._is_closed:
            return
        assert self._loop is not None
        assert self._channel is not None
        due_ns = self._channel.next_wakeup_ns()
        if due_ns is not None:
            delay_s = max(due_ns - self._channel.now_ns(), 0) / SECOND
            self._handle = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        assert self._channel is not None
        if not self._is_closed:
            self._channel.wake(self._channel.now_ns())
            self._arm()
