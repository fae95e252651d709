"""How much may be written to a link now, and when to come back: numbers in, numbers out.

What was written can no longer be reordered or dropped, wherever it waits: in the kernel, or in the buffer
of the slowest hop. So no more is kept on the way than the link carries in its round trip and a little
longer, and of that no more than a budget is unsent. The little longer does three things: the link does not
run dry between two looks, the bottleneck shows its rate, and a link that has become faster is found out,
since what is on the way arrives sooner than expected, so that the measured rate rises from look to look.

The round trip is that of an empty way. It is timed whenever a write finds nothing on the way. On a link
that is always full, writing stops now and then until all is acknowledged. Otherwise a way that has become
longer would be taken for one that carries less, for ever.
"""

from __future__ import annotations

from typing import Final

from timebound.node.links.tcp_info import TcpReading
from timebound.units import MILLISECOND, SECOND

# On the way beyond what the round trip holds.
SPARE_NS: Final = 15 * MILLISECOND
# On long ways more, or a link that has become faster would be found out too slowly: this part of the trip.
SPARE_SHARE: Final = 0.2
# Handed over at once, at least and at most; in between what the link carries in this time.
BUDGET_NS: Final = 10 * MILLISECOND
BUDGET_BYTES_MAX: Final = 256 * 1024
# Written at once where more waits: smaller writes cost the processor more, larger ones make others wait.
QUANTUM_NS: Final = 5 * MILLISECOND
# A way that is given all it may hold at once returns it at once, for ever, and seems longer than it is. So
# writes are spread at this multiple of the rate, unless the link is too fast for timers.
GAIN: Final = 1.25
# Two segments on the way, as the receiver may acknowledge only every second one, and one on top.
SEGMENTS_MIN: Final = 3
# Nothing is known of a link yet, so a slow one must not be filled. Twice as much each time that all of it was
# acknowledged without having waited for longer than it may, until the rate is known.
START_SEGMENTS: Final = 2
# Before a reading tells, and where none can be had.
SEGMENT_BYTES: Final = 1_448
# Come back not sooner, as loops count in milliseconds; and at the latest. Where nothing was acknowledged for
# long, this part of that time later: so a link that stands still costs next to nothing.
WAIT_NS_MIN: Final = MILLISECOND
WAIT_NS_MAX: Final = 50 * MILLISECOND
SILENCE_PART: Final = 16
# The shortest round trip of this and the last such time counts. Routes change.
WAY_WINDOW_NS: Final = 10 * SECOND
# What was written at a slow pace keeps what is more urgent waiting for no longer than this.
DEBT_NS_MAX: Final = SECOND
# A timer that came late may be made up for, by this much.
LATE_NS_MAX: Final = 20 * MILLISECOND


class Pacing:
    """One link: what is on its way, and what may follow. `rate` is in bytes per second; 0: not known."""

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
        self._ceiling = ceiling  # bytes per second that are never exceeded; 0: none is set
        self.rate = 0.0
        self._pace_max = 0.0  # bytes per second, where more is known of the way than the link shows; 0: none
        self.waiting = 0  # written and not acknowledged, all buffers together
        self.wake_ns = 0  # nothing may be written before; 0: now
        self._unsent = 0
        self._segment = SEGMENT_BYTES
        self._acked = 0
        self._start_bytes = 0  # what may be on the way before the rate is known
        self._start_acked = 0  # when so much was acknowledged, it may be more; 0: it was not used up yet
        self._start_ns = 0
        self._moved_ns = 0  # when something was last seen to be acknowledged, or nothing was on the way
        self._free_ns = 0  # when what was written has had its time, by the rate
        self._way_ns = -1  # shortest round trip of this window and the one before; -1: none was seen
        self._way_before_ns = -1
        self._window_end_ns = 0
        self._is_draining = False
        self._probe_acked = 0  # a write that found an empty way is complete at this count; 0: none is timed
        self._probe_bytes = 0
        self._probe_ns = 0

    def allow(self, reading: TcpReading | None, buffered: int, wanted: int, now_ns: int) -> int:
        """Bytes that may be written now of those that wait; 0: not before `wake_ns`.

        `buffered` is what the transport itself holds, `rate` has to be up to date.
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
        """Count what was just written; whether more may follow at once. Else not before `wake_ns`."""
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
        """Write no faster than this from now on, in bytes per second; 0: as fast as the link allows.

        What was written before is given the time that it takes at the new pace.
        """
        if pace_max == self._pace_max:
            return
        before = self._pace()
        self._pace_max = pace_max
        after = self._pace()
        owed_ns = max(self._free_ns - now_ns, 0)
        self._free_ns = now_ns + min(int(owed_ns * before / after), DEBT_NS_MAX) if after else 0

    def budget(self) -> int:
        """Bytes that may be unsent: what the link carries in a short time, and at least a full segment."""
        rate = self._rate()
        carried = int(rate * BUDGET_NS / SECOND) if rate else self.limit()
        return min(max(carried, self._segment), BUDGET_BYTES_MAX)

    def limit(self) -> int:
        """Bytes that may be on the way, unsent ones included."""
        rate = self._rate()
        if not rate:
            return max(self._start_bytes, START_SEGMENTS * self._segment)
        way_ns = self.round_trip_ns()
        carried = int(rate * (way_ns + _spare_ns(way_ns)) / SECOND)
        # One more, as the last bit of a segment arrives later than its first; and only whole ones.
        segments = carried // self._segment + 2
        return max(segments, SEGMENTS_MIN) * self._segment

    def empty_ns(self) -> int:
        """What a full segment takes there and back where nothing waits on the way."""
        return self.round_trip_ns() + (int(self._segment * SECOND / self.rate) if self.rate else 0)

    def _grow(self, acked: int, now_ns: int) -> None:
        """Have more on the way at the start, once all that may be there was, and was soon acknowledged."""
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
        """Bytes per second at which to write; 0: as they come."""
        pace = GAIN * self.rate
        if self._pace_max and (self._pace_max < pace or not pace):
            pace = self._pace_max
        if self._ceiling and (self._ceiling < pace or not pace):
            return self._ceiling
        return pace if pace * QUANTUM_NS < BUDGET_BYTES_MAX * SECOND else 0.0

    def _room(self, wanted: int, now_ns: int) -> int:
        """Bytes to write now; with 0, `wake_ns` is set."""
        if self._free_ns > now_ns:
            self.wake_ns = min(self._free_ns, now_ns + WAIT_NS_MAX)
            return 0
        limit = self.limit()
        rate = self._rate()
        carried = int(rate * QUANTUM_NS / SECOND) if rate else limit // 2
        quantum = min(max(carried, self._segment), limit, max(wanted, 1))
        if self._must_drain(now_ns):
            excess = self.waiting
        else:
            excess = max(self.waiting + quantum - limit, self._unsent + quantum - self.budget())
        if excess <= 0 or self.waiting == 0:
            self.wake_ns = 0
            return max(min(limit - self.waiting, self.budget() - self._unsent), quantum)
        wait_ns = int(excess * SECOND / rate) if rate else WAIT_NS_MIN
        wait_ns = max(wait_ns, WAIT_NS_MIN, (now_ns - self._moved_ns) // SILENCE_PART)
        self.wake_ns = now_ns + min(wait_ns, WAIT_NS_MAX)
        return 0

    # --- the round trip of an empty way -------------------------------------------------

    def round_trip_ns(self) -> int:
        """Of an empty way; 0 before anything is known of it."""
        if self._way_before_ns < 0 or self._way_ns < 0:
            return max(self._way_before_ns, self._way_ns, 0)
        return min(self._way_before_ns, self._way_ns)

    def _time_way(self, reading: TcpReading, now_ns: int) -> None:
        if self._window_end_ns == 0:
            # The kernel has timed the handshake, and nothing was on the way then.
            self._way_before_ns = reading.rtt_min_ns
            self._window_end_ns = now_ns + WAY_WINDOW_NS
        if self._probe_acked and reading.bytes_acked >= self._probe_acked:
            sending_ns = int(self._probe_bytes * SECOND / self.rate)
            took_ns = now_ns - self._probe_ns - sending_ns
            if reading.rtt_ns:
                # The next look may have come long after the answer; the kernel has timed it.
                took_ns = min(took_ns, reading.rtt_ns)
            took_ns = max(took_ns, reading.rtt_min_ns)
            self._way_ns = took_ns if self._way_ns < 0 else min(self._way_ns, took_ns)
            self._probe_acked = 0

    def _must_drain(self, now_ns: int) -> bool:
        """Whether to write nothing until all is acknowledged, so that the next write times the way."""
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
