"""What a link can carry, measured from what the kernel saw acknowledged.

A connection whose messages have time limits gets a meter. It is asked before every write: then it looks at the
socket, learns from what was acknowledged since, and says how much may be written (`pacing.py`). It
estimates the seconds per KB from the bytes acknowledged while there was always more to send.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Final

from timebound.core.delay import KILOBYTE, START_VARIATION, DelayEstimator, LinkDelay, link_of_rate
from timebound.node import tcp_info
from timebound.node.pacing import Pacing
from timebound.node.tcp_info import TcpReading
from timebound.units import MILLISECOND, SECOND

# What is written goes through buffers that nobody tells about. How late that may make it is guessed from
# those that are seen, when they are full (a running mean): this part of the time they take.
JITTER_SHARE: Final = 0.5
JITTER_MOVE: Final = 0.25
FULL_STEP: Final = 0.125
# A sample of a busy link: shorter ones say more about timers, and about when answers happen to come; smaller
# ones about what a link lets through at once after a pause.
SAMPLE_NS_MIN: Final = 20 * MILLISECOND
SAMPLE_SEGMENTS_MIN: Final = 3
# A clock of milliseconds looks at the link: nothing takes less.
TICK_NS: Final = MILLISECOND
# A round trip so much longer than that of an empty way means that something waits at the slowest hop.
QUEUE_NS_MIN: Final = 4 * MILLISECOND
# Of sending time, after which a sample counts 1/e: a rate that fell to a quarter is followed in 0.6 s.
MEMORY_NS: Final = 250 * MILLISECOND

# Linux: the kernel takes no more than a little ahead. It looks at this only before it starts a new buffer, so up
# to 64 KB may be unsent all the same; `Pacing` holds the limit, and this wakes the transport in time.
TCP_NOTSENT_LOWAT: Final = 25


class LinkMeter:
    """Measures one connection, and says how much may be written to it."""

    __slots__ = (
        "_began_dry",
        "_ceiling",
        "_estimator",
        "_full_bytes",
        "_given",
        "_lowat",
        "_mark_acked",
        "_mark_ns",
        "_pacing",
        "_socket",
        "_transport",
    )

    def __init__(self, transport: Any, start: LinkDelay, ceiling: float = 0.0) -> None:
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        self._estimator = DelayEstimator(start, memory_ns=MEMORY_NS)
        self._given = start
        self._ceiling = ceiling  # bytes per second; 0: none is set
        self._pacing = Pacing(ceiling)
        self._mark_ns = 0  # when the sample that is being taken began
        self._mark_acked = 0
        self._began_dry = True  # nothing was on the way then
        self._full_bytes = 0.0
        self._lowat = 0
        transport.set_write_buffer_limits(0)
        self._limit_unsent()

    @property
    def wake_ns(self) -> int:
        """When to ask again, after `allow` or `written` have said no."""
        return self._pacing.wake_ns

    def is_waiting(self, now_ns: int) -> bool:
        """Whether it is too early to ask again."""
        return self._pacing.wake_ns > now_ns

    def allow(self, wanted: int, now_ns: int) -> int:
        """Look at the link: bytes that may be written now, of those that wait; 0: not before `wake_ns`."""
        reading = tcp_info.read(self._socket)
        pacing = self._pacing
        if reading is not None:
            self._learn(reading, now_ns)
        allowed = pacing.allow(reading, int(self._transport.get_write_buffer_size()), wanted, now_ns)
        if not allowed:
            self._full_bytes += FULL_STEP * (pacing.waiting - self._full_bytes)
        return allowed

    def written(self, count: int, wanted: int, now_ns: int) -> bool:
        """Count what was just written; whether more of what waits may follow at once."""
        return self._pacing.written(count, wanted, now_ns)

    def ahead_ns(self) -> int:
        """How long the link is busy with what it was given, as of the last look."""
        return int(self._time_for_s(self._pacing.waiting) * SECOND)

    def budget(self) -> int:
        """Bytes that may be unsent."""
        return self._pacing.budget()

    def take_delay(self) -> LinkDelay | None:
        """The delay, where it has moved enough to matter since it was last taken."""
        estimator = self._estimator
        if not estimator.samples:
            return None
        jitter_s = JITTER_SHARE * self._time_for_s(self._full_bytes)
        has_jitter_moved = abs(jitter_s - self._given.jitter_s) > JITTER_MOVE * jitter_s
        if not (has_jitter_moved or estimator.has_moved(self._given)):
            return None
        found = estimator.link_delay()
        mean = found.mean_s_per_kb
        if self._ceiling and mean < KILOBYTE / self._ceiling:
            mean = KILOBYTE / self._ceiling
        self._given = LinkDelay(mean, found.variance, jitter_s)
        self._limit_unsent()
        return self._given

    def _learn(self, reading: TcpReading, now_ns: int) -> None:
        """Take a sample, when enough was acknowledged since the last one."""
        carried = reading.bytes_acked - self._mark_acked
        took_ns = now_ns - self._mark_ns
        is_dry = reading.in_flight == 0 and reading.unsent == 0
        is_enough = carried >= SAMPLE_SEGMENTS_MIN * reading.segment_bytes
        if self._began_dry and is_dry:
            # All was written within this time, and has arrived: the round trip is not the link's rate.
            if is_enough:
                self._add_if_faster(carried, max(took_ns - self._pacing.round_trip_ns(), TICK_NS))
        elif not is_dry and (took_ns < SAMPLE_NS_MIN or not is_enough):
            return
        elif is_dry or self._began_dry or reading.rtt_ns < self._pacing.round_trip_ns() + QUEUE_NS_MIN:
            # It was not always busy: it waited for us, or what may be on its way did not fill it.
            if is_enough:
                self._add_if_faster(carried, took_ns)
        else:
            self._add(carried, took_ns)
        self._mark_ns = now_ns
        self._mark_acked = reading.bytes_acked
        self._began_dry = is_dry

    def _add_if_faster(self, carried: int, took_ns: int) -> None:
        """A link that did not show its rate is at least as fast as it was used."""
        mean = self._estimator.mean_s_per_kb()
        if not self._pacing.rate or took_ns / SECOND < mean * carried / KILOBYTE:
            self._add(carried, took_ns)

    def _add(self, carried: int, took_ns: int) -> None:
        if not self._pacing.rate:
            # What was believed before anything was measured counts no longer.
            self._estimator = DelayEstimator(
                link_of_rate(carried * SECOND / took_ns, START_VARIATION), memory_ns=MEMORY_NS
            )
        self._estimator.add(carried, took_ns)
        self._pacing.rate = self._estimator.rate_bytes_per_s()

    def _time_for_s(self, count: float) -> float:
        return count * self._estimator.mean_s_per_kb() / KILOBYTE

    def _limit_unsent(self) -> None:
        lowat = self.budget()
        if self._socket is None or (self._lowat and lowat <= 2 * self._lowat <= 4 * lowat):
            return
        self._lowat = lowat
        # Not every socket knows the option; then the kernel decides. One that was closed has no descriptor.
        with contextlib.suppress(OSError, ValueError):
            self._socket.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, lowat)
