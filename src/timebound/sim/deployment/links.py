"""Connections as two pipes of bytes, each with a rate, a latency and an end.

Bytes leave a pipe in the order they entered it. A closed connection delivers what was written, then its end;
one that is cut loses what is on its way. While a route is dead nothing arrives at all and neither side is
told: that is what keep-alive is for. A pipe tells its writer when it is full, as a transport does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from timebound.core.values.delay import LinkDelay, link_of_rate
from timebound.sim.deployment.timers import Call
from timebound.sim.kernel.kernel import Kernel
from timebound.units import MILLISECOND, SECOND

# As much is written in advance to a paced link: the rest can still be reordered.
AHEAD_NS: Final = 20 * MILLISECOND
PIECE_BYTES_MIN: Final = 512


class Endpoint(Protocol):
    """Who reads from one pipe of a connection and writes to the other."""

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class Route:
    """What all connections between two places share: speed, latency, and whether anything passes."""

    def __init__(self, rate_bytes_per_s: int, latency_ns: int) -> None:
        self.rate_bytes_per_s = rate_bytes_per_s
        self.latency_ns = latency_ns
        self.is_dead = False
        self.size_of: Callable[[bytes], int] = len  # what bytes count on the way
        self._whole_rate = rate_bytes_per_s

    def slow(self, factor: float) -> None:
        """Multiply the time per byte from now on."""
        self.rate_bytes_per_s = max(int(self._whole_rate / factor), 1)

    def is_impaired(self) -> bool:
        """Whether it is dead or slow."""
        return self.is_dead or self.rate_bytes_per_s != self._whole_rate

    def restore(self) -> None:
        """Restore the speed of the beginning."""
        self.rate_bytes_per_s = self._whole_rate


class Pipe:
    """One direction of a connection."""

    def __init__(self, kernel: Kernel, route: Route, buffer_bytes: int) -> None:
        self.reader: Endpoint | None = None
        self.writer: Endpoint | None = None
        self.is_closed = False  # nothing more is written
        self.bytes_sent = 0
        self._kernel = kernel
        self._route = route
        self._buffer_bytes = buffer_bytes
        self._free_ns = 0  # when everything written so far has left
        self._is_full = False
        self._is_over = False  # nothing more arrives
        self._held: list[bytes] | None = None  # what arrived while its reader does not read
        self._is_end_held = False

    def write(self, data: bytes) -> None:
        """Send bytes; they arrive together."""
        if self.is_closed or not data:
            return
        now_ns = self._kernel.now_ns
        duration_ns = self._route.size_of(data) * SECOND // self._route.rate_bytes_per_s
        self._free_ns = max(self._free_ns, now_ns) + duration_ns
        self.bytes_sent += len(data)
        self._at(self._free_ns + self._route.latency_ns, lambda: self._arrive(data))
        if not self._is_full and self.backlog_bytes() > self._buffer_bytes:
            self._is_full = True
            if self.writer is not None:
                self.writer.pause_writing()
            self._at(self._free_ns, self._drain)

    def backlog_bytes(self) -> int:
        """Return how much was written and has not left."""
        return self.ahead_ns() * self._route.rate_bytes_per_s // SECOND

    def ahead_ns(self) -> int:
        """Return how long what was written still takes to leave."""
        return max(self._free_ns - self._kernel.now_ns, 0)

    def rate_bytes_per_s(self) -> int:
        return self._route.rate_bytes_per_s

    def close(self) -> None:
        """End after what was written."""
        if not self.is_closed:
            self.is_closed = True
            end_ns = max(self._free_ns, self._kernel.now_ns) + self._route.latency_ns
            self._at(end_ns, self._end)

    def cut(self) -> None:
        """Lose what is on its way; the reader learns of the end at once."""
        self.is_closed = True
        self._held = None
        self._end()

    def abandon(self) -> None:
        """Lose everything from now on, as the reader's process is gone."""
        self.is_closed = True
        self._is_over = True

    def pause_reading(self) -> None:
        if self._held is None:
            self._held = []

    def resume_reading(self) -> None:
        """Deliver what has arrived meanwhile."""
        held, self._held = self._held, None
        for data in held or []:
            self._arrive(data)
        if self._is_end_held:
            self._is_end_held = False
            self._end()

    def _arrive(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif not self._is_over and not self._route.is_dead and self.reader is not None:
            self.reader.data_received(data)

    def _end(self) -> None:
        if self._held is not None:
            self._is_end_held = True
        elif not self._is_over and not self._route.is_dead:
            self._is_over = True
            if self.reader is not None:
                self.reader.connection_lost()

    def _drain(self) -> None:
        self._is_full = False
        if self.writer is not None and not self.is_closed:
            self.writer.resume_writing()

    def _at(self, time_ns: int, callback: Callable[[], None]) -> None:
        self._kernel.schedule(time_ns, Call(callback))


class Cable:
    """A connection as one side sees it."""

    def __init__(self, out: Pipe, back: Pipe) -> None:
        self.out = out
        self._back = back

    def attach(self, endpoint: Endpoint) -> None:
        """Let an endpoint read from this side and be told when it may write."""
        self._back.reader = endpoint
        self.out.writer = endpoint

    def write(self, data: bytes) -> None:
        self.out.write(data)

    def close(self) -> None:
        """Close both directions after what was written here; this side gets nothing more."""
        self._back.abandon()
        self.out.close()

    def cut(self) -> None:
        """Break the connection: both sides notice, and what was on its way is lost."""
        self.out.cut()
        self._back.cut()

    def die(self) -> None:
        """End as the process on this side does: the other side notices after the latency."""
        self._back.abandon()
        self.out.close()

    def pause_reading(self) -> None:
        self._back.pause_reading()

    def resume_reading(self) -> None:
        self._back.resume_reading()

    def is_closing(self) -> bool:
        return self.out.is_closed


def make_cables(kernel: Kernel, route: Route, buffer_bytes: int) -> tuple[Cable, Cable]:
    """Return both sides of a new connection."""
    there, back = Pipe(kernel, route, buffer_bytes), Pipe(kernel, route, buffer_bytes)
    return Cable(there, back), Cable(back, there)


class PipeMeter:
    """Tells how much may be written to a pipe now, and its delay: a pipe's rate need not be measured."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._given = 0  # the rate that was last told
        self.wake_ns = 0

    def ahead_ns(self) -> int:
        return self._pipe.ahead_ns()

    def allow(self, wanted: int, now_ns: int) -> int:
        """Return how many bytes may be written now; if none, `wake_ns` says when to ask again."""
        ahead_ns = self._pipe.ahead_ns()
        if ahead_ns > AHEAD_NS:
            self.wake_ns = now_ns + ahead_ns - AHEAD_NS
            return 0
        return max(self._pipe.rate_bytes_per_s() * AHEAD_NS // SECOND, PIECE_BYTES_MIN)

    def changed_delay(self) -> LinkDelay | None:
        """Return the delay if it is not the one that was told before."""
        rate = self._pipe.rate_bytes_per_s()
        if rate == self._given:
            return None
        self._given = rate
        return link_of_rate(rate)

    def written(self, count: int, wanted: int, now_ns: int) -> bool:
        """Take note of a write; return whether more may be written at once."""
        ahead_ns = self._pipe.ahead_ns()
        self.wake_ns = now_ns + max(ahead_ns - AHEAD_NS, 0)
        return ahead_ns <= AHEAD_NS
