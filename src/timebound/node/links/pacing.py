"""Pacing of a link: how much may be written now, and when to ask again. Numbers in, numbers out.

What was written can no longer be reordered or dropped, whether it waits in the kernel or in the buffer of
the slowest hop. So no more is kept in transit than the link carries in its round trip plus a small surplus,
and of that no more than a budget is unsent. The surplus does three things: the link does not run dry
between two readings, the bottleneck shows its rate, and a link that has become faster is noticed, since
data arrives sooner than expected and the measured rate rises from reading to reading.

The round trip is that of an empty path. It is timed whenever a write finds nothing in transit. On a link
that is always full, writing pauses now and then until everything is acknowledged. Otherwise a path that has
become longer would be mistaken for one with a lower rate, permanently.
"""

from __future__ import annotations

from typing import Final

from timebound.node.links.tcp_info import TcpReading
from timebound.units import MILLISECOND, SECOND

# Surplus in transit beyond the round trip.
SPARE_NS: Final = 15 * MILLISECOND
# On long paths this share of the round trip, or a faster link would be noticed too slowly.
SPARE_SHARE: Final = 0.2
# Amount of a write: at least, at most, and in between what the link carries in this time.
BUDGET_NS: Final = 10 * MILLISECOND
BUDGET_BYTES_MAX: Final = 256 * 1024
# Amount of a write when more waits: smaller writes cost more processor time, larger ones delay others.
QUANTUM_NS: Final = 5 * MILLISECOND
# A path that is filled at once is acknowledged at once, again and again, and seems longer than it is. So
# writes are spread at this multiple of the rate, unless the link is too fast for timers.
GAIN: Final = 1.25
# Two segments in transit, as the receiver may acknowledge only every second one, and one more.
SEGMENTS_MIN: Final = 3
# At first nothing is known of a link, and a slow one must not be filled. The amount doubles each time all of
# it was acknowledged within its time, until the rate is known.
START_SEGMENTS: Final = 2
# Before the first reading, and where there are none.
SEGMENT_BYTES: Final = 1_448
# Shortest wait, as loops count in milliseconds, and longest. If nothing was acknowledged for long, the wait
# is this share of that time: so a link that stands still costs almost nothing.
WAIT_NS_MIN: Final = MILLISECOND
WAIT_NS_MAX: Final = 50 * MILLISECOND
SILENCE_PART: Final = 16
# The shortest round trip of this and the last window counts. Routes change.
WAY_WINDOW_NS: Final = 10 * SECOND
# Data written at a slow pace delays more urgent data for at most this time.
DEBT_NS_MAX: Final = SECOND
# Lateness of a timer that is compensated, at most.
LATE_NS_MAX: Final = 20 * MILLISECOND


class Pacing:
    """One link: what is in transit, and what may follow. `rate` is in bytes per second; 0 = unknown."""

    __slots__ = (
        "_acked",
        "_ceiling",
        "_free_ns",
        "_is_draining",
        "_moved_ns",
        "_pace_max",
        "_probe_acked",
        "_probe_bytes",
        "_probe_ns",
        "_segment",
        "_start_acked",
        "_start_bytes",
        "_start_ns",
        "_unsent",
        "_way_before_ns",
        "_way_ns",
        "_window_end_ns",
        "rate",
        "waiting",
        "wake_ns",
    )

    def __init__(self, ceiling: float = 0.0) -> None:
        self._ceiling = ceiling  # bytes per second that are never exceeded; 0 = no limit
        self.rate = 0.0
        self._pace_max = 0.0  # bytes per second, by knowledge of the path beyond the link; 0 = no limit
        self.waiting = 0  # written and not acknowledged, all buffers together
        self.wake_ns = 0  # nothing may be written before; 0 = now
        self._unsent = 0
        self._segment = SEGMENT_BYTES
        self._acked = 0
        self._start_bytes = 0  # limit in transit before the rate is known
        self._start_acked = 0  # acknowledged bytes at which it may grow; 0 = not used up yet
        self._start_ns = 0
        self._moved_ns = 0  # last time with an acknowledgement, or with nothing in transit
        self._free_ns = 0  # when written data is through, by the rate
        self._way_ns = -1  # shortest round trip of this window and the one before; -1 = none
        self._way_before_ns = -1
        self._window_end_ns = 0
        self._is_draining = False
        self._probe_acked = 0  # acknowledged bytes at which a timed write is complete; 0 = none is timed
        self._probe_bytes = 0
        self._probe_ns = 0

    def allow(self, reading: TcpReading | None, buffered: int, wanted: int, now_ns: int) -> int:
        """Return the bytes that may be written now; 0 = not before `wake_ns`.

        `buffered` are the bytes in the transport's buffer; `rate` has to be up to date.
        """
        if reading is None:
            self.waiting = self._unsent = buffered
        else:
            self._unsent = reading.unsent + buffered
            self.waiting = reading.in_flight + self._unsent
            self._segment = reading.segment_bytes or SEGMENT_BYTES
            self._time_way(reading, now_ns)
            if reading.bytes_acked != self._acked:
                self._acked = reading.bytes_acked
                self._moved_ns = now_ns
                if not self.rate:
                    self._grow(reading.bytes_acked, now_ns)
        return self._room(wanted, now_ns)

    def written(self, count: int, wanted: int, now_ns: int) -> bool:
        """Count written bytes; return whether more may follow at once, else not before `wake_ns`."""
        if count and self.waiting == 0 and self._probe_acked == 0 and self.rate:
            self._probe_acked = self._acked + count
            self._probe_bytes = count
            self._probe_ns = now_ns
        if self.waiting == 0:
            self._moved_ns = now_ns
        self.waiting += count
        if not self.rate and not self._start_acked and 2 * self.waiting > self.limit():
            self._start_acked = self._acked + self.waiting
            self._start_ns = now_ns
        rate = self._pace()
        if rate:
            start_ns = max(self._free_ns, now_ns - LATE_NS_MAX)
            self._free_ns = min(start_ns + int(count * SECOND / rate), now_ns + DEBT_NS_MAX)
        return self._room(wanted, now_ns) > 0

    def limit_pace(self, pace_max: float, now_ns: int) -> None:
        """Limit the pace from now on, in bytes per second; 0 = as fast as the link allows.

        Data written before gets the time it takes at the new pace.
        """
        if pace_max == self._pace_max:
            return
        before = self._pace()
        self._pace_max = pace_max
        after = self._pace()
        owed_ns = max(self._free_ns - now_ns, 0)
        self._free_ns = now_ns + min(int(owed_ns * before / after), DEBT_NS_MAX) if after else 0

    def budget(self) -> int:
        """Return the bytes that may be unsent: what the link carries in a short time, at least a segment."""
        rate = self._rate()
        carried = int(rate * BUDGET_NS / SECOND) if rate else self.limit()
        return min(max(carried, self._segment), BUDGET_BYTES_MAX)

    def limit(self) -> int:
        """Return the bytes that may be in transit, unsent ones included."""
        rate = self._rate()
        if not rate:
            return max(self._start_bytes, START_SEGMENTS * self._segment)
        way_ns = self.round_trip_ns()
        carried = int(rate * (way_ns + _spare_ns(way_ns)) / SECOND)
        # One more, as the last bit of a segment arrives later than its first; whole segments only.
        segments = carried // self._segment + 2
        return max(segments, SEGMENTS_MIN) * self._segment

    def empty_ns(self) -> int:
        """Return the round trip of a full segment on an empty path."""
        return self.round_trip_ns() + (int(self._segment * SECOND / self.rate) if self.rate else 0)

    def _grow(self, acked: int, now_ns: int) -> None:
        """Raise the limit at the start, once it was used up and acknowledged in time."""
        if self._start_acked and acked >= self._start_acked:
            self._start_acked = 0
            way_ns = self.round_trip_ns()
            if now_ns - self._start_ns <= way_ns + _spare_ns(way_ns):
                self._start_bytes = 2 * self.limit()

    def _rate(self) -> float:
        if self._ceiling and (self.rate > self._ceiling or not self.rate):
            return self._ceiling
        return self.rate

    def _pace(self) -> float:
        """Return the pace of writing in bytes per second; 0 = no pacing."""
        pace = GAIN * self.rate
        if self._pace_max and (self._pace_max < pace or not pace):
            pace = self._pace_max
        if self._ceiling and (self._ceiling < pace or not pace):
            return self._ceiling
        return pace if pace * QUANTUM_NS < BUDGET_BYTES_MAX * SECOND else 0.0

    def _room(self, wanted: int, now_ns: int) -> int:
        """Return the bytes to write now; with 0, set `wake_ns`."""
        if self._free_ns > now_ns:
            self.wake_ns = min(self._free_ns, now_ns + WAIT_NS_MAX)
            return 0
        limit = self.limit()
        rate = self._rate()
        carried = int(rate * QUANTUM_NS / SECOND) if rate else limit // 2
        # Of two numbers each, which compiled code compares itself.
        quantum = min(max(carried, self._segment), min(limit, max(wanted, 1)))
        if self._must_drain(now_ns):
            excess = self.waiting
        else:
            excess = max(self.waiting + quantum - limit, self._unsent + quantum - self.budget())
        if excess <= 0 or self.waiting == 0:
            self.wake_ns = 0
            return max(min(limit - self.waiting, self.budget() - self._unsent), quantum)
        wait_ns = int(excess * SECOND / rate) if rate else WAIT_NS_MIN
        wait_ns = max(max(wait_ns, WAIT_NS_MIN), (now_ns - self._moved_ns) // SILENCE_PART)
        self.wake_ns = now_ns + min(wait_ns, WAIT_NS_MAX)
        return 0

    # --- the round trip of an empty path ------------------------------------------------

    def round_trip_ns(self) -> int:
        """Return the round trip of an empty path; 0 = unknown."""
        if self._way_before_ns < 0 or self._way_ns < 0:
            return max(max(self._way_before_ns, self._way_ns), 0)
        return min(self._way_before_ns, self._way_ns)

    def _time_way(self, reading: TcpReading, now_ns: int) -> None:
        if self._window_end_ns == 0:
            # The kernel has timed the handshake, when nothing was in transit.
            self._way_before_ns = reading.rtt_min_ns
            self._window_end_ns = now_ns + WAY_WINDOW_NS
        if self._probe_acked and reading.bytes_acked >= self._probe_acked:
            sending_ns = int(self._probe_bytes * SECOND / self.rate)
            took_ns = now_ns - self._probe_ns - sending_ns
            if reading.rtt_ns:
                # This reading may be much later than the acknowledgement; the kernel has timed it.
                took_ns = min(took_ns, reading.rtt_ns)
            took_ns = max(took_ns, reading.rtt_min_ns)
            self._way_ns = took_ns if self._way_ns < 0 else min(self._way_ns, took_ns)
            self._probe_acked = 0

    def _must_drain(self, now_ns: int) -> bool:
        """Whether to pause until everything is acknowledged, so that the next write times the path."""
        if now_ns >= self._window_end_ns > 0:
            if self._way_ns >= 0:
                self._way_before_ns = self._way_ns
                self._way_ns = -1
                self._window_end_ns = now_ns + WAY_WINDOW_NS
                self._is_draining = False
            elif not self._probe_acked:
                self._is_draining = True
        if self.waiting == 0:
            self._is_draining = False
        return self._is_draining


def _spare_ns(way_ns: int) -> int:
    return max(SPARE_NS, int(SPARE_SHARE * way_ns))
