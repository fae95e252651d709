"""What a client's link can carry, measured from what the kernel saw acknowledged.

A connection whose messages have time limits gets a meter. It keeps little unsent data in the
kernel, because what sits there can no longer be reordered or dropped, and it estimates the
seconds per KB from the bytes acknowledged while there was always more to send (`TCP_INFO`).
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import termios
from typing import Any, Final

from timebound.core.delay import KILOBYTE, DelayEstimator, LinkDelay
from timebound.units import MILLISECOND, SECOND

# Handed to the socket at once, at least and at most; in between what the link carries in this time.
BUDGET_BYTES_MIN: Final = 512
BUDGET_BYTES_MAX: Final = 256 * 1024
BUDGET_NS: Final = 10 * MILLISECOND
# Before anything was measured. A fast link shows itself at once, a slow one must not be filled first.
START_BUDGET_BYTES: Final = 2_048
# What is written goes through buffers that nobody tells about. How late that may make it is guessed from
# those that are seen, when they are full (a running mean): this part of the time they take.
JITTER_SHARE: Final = 0.5
JITTER_MOVE: Final = 0.25
FULL_STEP: Final = 0.125
# Shorter intervals say more about the kernel's timers than about the link.
INTERVAL_NS_MIN: Final = MILLISECOND

# Linux: struct tcp_info, and the option by which the kernel takes no more than a little ahead.
TCP_NOTSENT_LOWAT: Final = 25
_UNACKED_AT: Final = 24
_BYTES_ACKED_AT: Final = 120
_NOTSENT_AT: Final = 144
_INFO_BYTES: Final = 160
_NO_COUNT: Final = bytes(4)


class TcpState:
    """One reading of a socket: bytes acknowledged so far, and whether anything is under way."""

    __slots__ = ("bytes_acked", "is_idle")

    def __init__(self, info: bytes) -> None:
        self.bytes_acked = int.from_bytes(info[_BYTES_ACKED_AT : _BYTES_ACKED_AT + 8], "little")
        unacked = int.from_bytes(info[_UNACKED_AT : _UNACKED_AT + 4], "little")
        notsent = int.from_bytes(info[_NOTSENT_AT : _NOTSENT_AT + 4], "little")
        self.is_idle = unacked == 0 and notsent == 0


class LinkMeter:
    """Measures one connection, and says how much to hand over at once."""

    __slots__ = (
        "_busy_until_ns",
        "_estimator",
        "_full_bytes",
        "_given",
        "_lowat",
        "_paused_acked",
        "_paused_ns",
        "_resumed_acked",
        "_resumed_ns",
        "_socket",
        "_transport",
        "_written_acked",
        "_written_ns",
    )

    def __init__(self, transport: Any, start: LinkDelay) -> None:
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        self._estimator = DelayEstimator(start)
        self._given = start
        self._paused_ns = 0
        self._paused_acked = 0
        self._resumed_ns = 0
        self._resumed_acked = 0
        self._busy_until_ns = 0  # with what it had when there was room again
        self._written_ns = 0
        self._written_acked = 0
        self._lowat = 0
        self._full_bytes = 0.0
        transport.set_write_buffer_limits(0)
        self._limit_unsent()

    def budget(self) -> int:
        """Bytes to hand over at once."""
        if not self._estimator.samples:
            return START_BUDGET_BYTES
        carried = int(self._estimator.rate_bytes_per_s() * BUDGET_NS / SECOND)
        return min(max(carried, BUDGET_BYTES_MIN), BUDGET_BYTES_MAX)

    def ahead_ns(self) -> int:
        """How long the link is still busy with what it was given: unsent, or sent and not acknowledged."""
        return int(self._time_for_s(self._waiting_bytes()) * SECOND)

    def written(self, now_ns: int) -> None:
        """Something is about to be written; a link that kept up is at least as fast as it was used."""
        state = self._read()
        if state is None:
            return
        if self._written_ns and state.is_idle:
            carried = state.bytes_acked - self._written_acked
            took_ns = now_ns - self._written_ns
            if carried > 0 and took_ns / SECOND < self._estimator.mean_s_per_kb() * carried / 1024:
                self._estimator.add(carried, took_ns)
        self._written_ns = now_ns
        self._written_acked = state.bytes_acked

    def paused(self, now_ns: int) -> None:
        """The socket is full: from now on the link is busy."""
        state = self._read()
        if state is None:
            return
        self._full_bytes += FULL_STEP * (self._waiting_bytes() - self._full_bytes)
        if self._paused_ns and self._resumed_ns:
            if now_ns - self._paused_ns < INTERVAL_NS_MIN:
                self._resumed_ns = 0
                return
            if now_ns <= self._busy_until_ns:
                self._estimator.add(state.bytes_acked - self._paused_acked, now_ns - self._paused_ns)
            else:
                self._estimator.add(
                    self._resumed_acked - self._paused_acked, self._resumed_ns - self._paused_ns
                )
        self._paused_ns = now_ns
        self._paused_acked = state.bytes_acked
        self._resumed_ns = 0

    def resumed(self, now_ns: int) -> LinkDelay | None:
        """The socket has room again; gives the delay where it has moved enough to matter.

        What was sent in between is counted when the socket is full the next time: room comes with
        a burst of acknowledgements, of which only the first has been seen here. Measured: counting
        up to here, a link of 100 kB/s was taken for one of 72.
        """
        state = self._read()
        if state is None or not self._paused_ns:
            return None
        self._resumed_ns = now_ns
        self._resumed_acked = state.bytes_acked
        self._busy_until_ns = now_ns + self.ahead_ns()
        jitter_s = JITTER_SHARE * self._time_for_s(self._full_bytes)
        has_jitter_moved = abs(jitter_s - self._given.jitter_s) > JITTER_MOVE * jitter_s
        if not self._estimator.samples or not (has_jitter_moved or self._estimator.has_moved(self._given)):
            return None
        found = self._estimator.link_delay()
        self._given = LinkDelay(found.mean_s_per_kb, found.variance, jitter_s)
        self._limit_unsent()
        return self._given

    def _waiting_bytes(self) -> int:
        """What was written and the other side has not acknowledged yet."""
        waiting = int(self._transport.get_write_buffer_size())
        if self._socket is not None:
            with contextlib.suppress(OSError, ValueError):  # a socket that was closed has no descriptor
                unsent = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, _NO_COUNT)
                waiting += int.from_bytes(unsent, sys.byteorder)
        return waiting

    def _time_for_s(self, count: float) -> float:
        return count * self._estimator.mean_s_per_kb() / KILOBYTE

    def _limit_unsent(self) -> None:
        lowat = self.budget()
        if self._socket is None or (self._lowat and lowat <= 2 * self._lowat <= 4 * lowat):
            return
        self._lowat = lowat
        with contextlib.suppress(
            OSError, ValueError
        ):  # not every socket knows the option; then the kernel decides
            self._socket.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, lowat)

    def _read(self) -> TcpState | None:
        if self._socket is None:
            return None
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        except (OSError, ValueError):
            return None
        return TcpState(info) if len(info) >= _NOTSENT_AT + 4 else None
