"""Measurement of a link's rate, from the bytes that the kernel saw acknowledged.

A connection whose messages have time limits gets a meter. Before every write it reads the state of the
socket, learns from what was acknowledged since, and tells how much may be written (`pacing.py`). It
estimates the seconds per KB from bytes acknowledged while there was always more to send.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Final

from timebound.core.values.delay import KILOBYTE, START_VARIATION, DelayEstimator, LinkDelay, link_of_rate
from timebound.node.links import tcp_info
from timebound.node.links.pacing import Pacing
from timebound.node.links.tcp_info import TcpReading
from timebound.units import MILLISECOND, SECOND

# Data passes through buffers that cannot be seen. Their delay is guessed from the visible ones when these
# are full (a running mean): this share of their time.
JITTER_SHARE: Final = 0.5
JITTER_MOVE: Final = 0.25
FULL_STEP: Final = 0.125
# Minimum of a sample of a busy link: shorter ones measure timers and the timing of acknowledgements; smaller
# ones the burst that a link lets through after a pause.
SAMPLE_NS_MIN: Final = 20 * MILLISECOND
SAMPLE_NS_MAX: Final = 100 * MILLISECOND  # without being busy
SAMPLE_SEGMENTS_MIN: Final = 3
SAMPLE_BYTES_MIN: Final = 4_096
# Readings have a resolution of milliseconds.
TICK_NS: Final = MILLISECOND
# A link that was idle for less than this share of a sample was busy; half of that time is subtracted.
IDLE_PART: Final = 4
# A round trip this much longer than that of an empty path means a queue at the slowest hop.
QUEUE_NS_MIN: Final = 8 * MILLISECOND
# Sending time after which a sample counts 1/e: a rate that fell to a quarter is followed in 0.6 s.
MEMORY_NS: Final = 250 * MILLISECOND

# Linux: limit of unsent data in the kernel. It is checked only before a new buffer is started, so up to
# 64 KB may be unsent; `Pacing` enforces the limit, and this option wakes the transport in time.
TCP_NOTSENT_LOWAT: Final = 25


class LinkMeter:
    """Measures one connection, and limits what may be written to it."""

    __slots__ = (
        "_ceiling",
        "_estimator",
        "_full_bytes",
        "_given",
        "_has_been_full",
        "_idle_ns",
        "_is_full",
        "_looked_acked",
        "_looked_ns",
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
        self._ceiling = ceiling  # bytes per second; 0 = no limit
        self._pacing = Pacing(ceiling)
        self._mark_ns = 0  # start of the current sample
        self._mark_acked = 0
        self._idle_ns = 0  # approximate idle time since
        self._has_been_full = False  # its rate was measured, not only a lower limit
        self._is_full = False  # data has queued at the slowest hop since
        self._looked_ns = 0
        self._looked_acked = 0
        self._full_bytes = 0.0
        self._lowat = 0
        # Not 0: with 0, uvloop considers an empty TLS transport full.
        transport.set_write_buffer_limits(1)
        self._limit_unsent()

    @property
    def wake_ns(self) -> int:
        """When to ask again, after `allow` or `written` refused."""
        return self._pacing.wake_ns

    def allow(self, wanted: int, now_ns: int) -> int:
        """Read the state of the link; return the bytes that may be written now; 0 = not before `wake_ns`."""
        buffered = int(self._transport.get_write_buffer_size())
        return self.judge(tcp_info.read(self._socket), buffered, wanted, now_ns)

    def limit_pace(self, pace_max: float, now_ns: int) -> None:
        """Limit the pace, in bytes per second; 0 = as fast as the link allows."""
        self._pacing.limit_pace(pace_max, now_ns)

    def judge(self, reading: TcpReading | None, buffered: int, wanted: int, now_ns: int) -> int:
        """Learn from a reading, and return as `allow`; `buffered` are the bytes in the transport's buffer."""
        pacing = self._pacing
        if reading is not None:
            self._learn(reading, now_ns)
        allowed = pacing.allow(reading, buffered, wanted, now_ns)
        if not allowed:
            self._full_bytes += FULL_STEP * (pacing.waiting - self._full_bytes)
        return allowed

    def written(self, count: int, wanted: int, now_ns: int) -> bool:
        """Count written bytes; return whether more may follow at once."""
        return self._pacing.written(count, wanted, now_ns)

    def release(self, buffer_bytes: int) -> None:
        """Restore the transport's own limits: its buffer size, and the kernel's default."""
        self._transport.set_write_buffer_limits(buffer_bytes)
        self._set_lowat(0)

    def ahead_ns(self) -> int:
        """Return how long the link is busy with written data, as of the last reading."""
        return int(self._time_for_s(self._pacing.waiting) * SECOND)

    def budget(self) -> int:
        """Return the bytes that may be unsent."""
        return self._pacing.budget()

    def changed_delay(self) -> LinkDelay | None:
        """Return the delay if it changed enough to matter since it was last taken, else None."""
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
        """Record what the link did since the last reading, and take a sample when that is enough.

        While data queues all the time, the link shows its rate. Otherwise it waited for data, and it is
        at least as fast as it was used.
        """
        pacing = self._pacing
        is_dry = reading.in_flight == 0 and reading.unsent == 0
        if is_dry:
            # It sent what was written since the last reading, and then was idle.
            sending_ns = int(self._time_for_s(reading.bytes_acked - self._looked_acked) * SECOND)
            self._idle_ns += max(now_ns - self._looked_ns - sending_ns, 0)
        elif reading.unsent > 0 or reading.rtt_ns > pacing.empty_ns() + QUEUE_NS_MIN:
            self._is_full = True
        self._looked_ns = now_ns
        self._looked_acked = reading.bytes_acked
        if self._mark_ns == 0 or self._take_sample(reading, now_ns, is_dry):
            self._mark_ns = now_ns
            self._mark_acked = reading.bytes_acked
            self._idle_ns = 0
            self._is_full = False

    def _take_sample(self, reading: TcpReading, now_ns: int, is_dry: bool) -> bool:
        """Learn from what was acknowledged since the last sample; return False if that is not enough."""
        carried = reading.bytes_acked - self._mark_acked
        took_ns = now_ns - self._mark_ns
        if carried < max(SAMPLE_SEGMENTS_MIN * reading.segment_bytes, SAMPLE_BYTES_MIN):
            return is_dry and took_ns >= SAMPLE_NS_MAX
        if took_ns >= SAMPLE_NS_MIN:
            if self._is_full and self._idle_ns * IDLE_PART < took_ns:
                self._has_been_full = True
                self._add(carried, took_ns - self._idle_ns // 2)
            else:
                self._add_if_faster(carried, took_ns)
            return True
        if is_dry and not self._has_been_full:
            # All of it was written and arrived within this time. Once the rate is known, such a short time
            # only shows the size of a buffer in the path.
            self._add_if_faster(carried, max(took_ns - self._pacing.round_trip_ns(), TICK_NS))
            return True
        return False

    def _add_if_faster(self, carried: int, took_ns: int) -> None:
        """Raise the estimate of a link that did not show its rate, if it was used faster."""
        if took_ns / SECOND < self._time_for_s(carried):
            self._add(carried, took_ns)

    def _add(self, carried: int, took_ns: int) -> None:
        if not self._pacing.rate or not self._has_been_full:
            # Discard the assumption before the first sample, and estimates that were only a lower limit.
            start = link_of_rate(carried * SECOND / took_ns, START_VARIATION)
            self._estimator = DelayEstimator(start, memory_ns=MEMORY_NS)
        self._estimator.add(carried, took_ns)
        self._pacing.rate = self._estimator.rate_bytes_per_s()

    def _time_for_s(self, count: float) -> float:
        return count * self._estimator.mean_s_per_kb() / KILOBYTE

    def _limit_unsent(self) -> None:
        lowat = self.budget()
        if not self._lowat or not lowat <= 2 * self._lowat <= 4 * lowat:
            self._set_lowat(lowat)

    def _set_lowat(self, lowat: int) -> None:
        self._lowat = lowat
        if self._socket is None:
            return
        # Not every socket has the option, and a closed one has no descriptor: the kernel's default applies.
        with contextlib.suppress(OSError, ValueError):
            self._socket.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, lowat)
