"""Data in transit to one receiver, a client or a neighbour broker, estimated from its acknowledgements.

Behind the socket are buffers that the broker cannot see: in a relay, a radio, the receiver itself. QoS 1
and 2 reveal them, since an acknowledgement shows that everything sent before has arrived; a link between
brokers asks for it by a hello now and then. They give the
speed of the path (`changed_delay`), the time that a message sent now will take (`delay_ns`), and how much
may be in transit at once (`has_room`): what the receiver acknowledges within the shortest answer time,
and a little more. So the buffers stay nearly empty, and messages wait where they can still be reordered
or dropped.

The window works like that of a transport protocol: it grows with each acknowledgement until answers are
slow, and then follows what was acknowledged lately. Bursts of answers count as they come, so a receiver
that answers in batches is not slowed down. While a receiver does not answer, the window is not applied.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from timebound.core.values.delay import NS_PER_S, DelayEstimator, LinkDelay

# Bytes in transit before anything is known: as much as a transport protocol begins with.
START_BYTES: Final = 16_384
# Answers may take this much longer than the quickest: it limits the queue behind the socket.
TARGET_NS: Final = 50_000_000
# The window exceeds what was acknowledged by this factor: it keeps the link busy and reveals a faster one.
GAIN: Final = 1.25
# While answers are slow, QoS 0 is sent at this share of the speed, so that the buffers drain.
SLOW_GAIN: Final = 0.8
# A receiver may be slow with some answers. Only if this many in a row were slow, the path is congested.
TOOK_COUNT: Final = 6
# The most that was acknowledged is kept for one to two rounds, the quickest answer for ten to twenty.
ROUND_NS: Final = 1_000_000_000
BASE_ROUNDS: Final = 10
# A receiver that has not answered for this time, and for four times the usual one, counts as silent.
SILENCE_NS: Final = 1_000_000_000
SILENCE_DELAYS: Final = 4
# A speed is measured over at least this time, with more to send throughout.
BUSY_NS: Final = 100_000_000
# An answer that takes this much longer than the quickest has been queued in transit.
QUEUED_NS: Final = 5_000_000
# Sending time after which a measured speed has the weight 1/e.
SPEED_MEMORY_NS: Final = 250_000_000
# A measured speed is kept for this time after the last answer.
SPEED_NS_MAX: Final = 10_000_000_000
# A new estimate of the path is applied only if it differs by this share: it changes all drop times.
MARGIN_MOVE: Final = 0.25
MARGIN_MOVE_NS: Final = 10_000_000
# Weights of a new answer in the mean and in its deviation, as in transport protocols.
MEAN_STEP: Final = 0.125
DEVIATION_STEP: Final = 0.25


class SentDelivery:
    """One delivery that will be acknowledged: size, end in the stream of bytes sent, and times."""

    __slots__ = ("end_bytes", "sent_ns", "size_bytes", "start_ns")

    def __init__(self, size_bytes: int, end_bytes: int, sent_ns: int, start_ns: int) -> None:
        self.size_bytes = size_bytes
        self.end_bytes = end_bytes
        self.sent_ns = sent_ns
        self.start_ns = start_ns


class Transit:
    """What was sent on one connection and is not acknowledged yet.

    `took_count` is how many answers in a row must be slow to show that the path is.
    """

    __slots__ = (
        "_answered_bytes",
        "_answered_ns",
        "_arrived_bytes",
        "_asking_bytes",
        "_base_before_ns",
        "_base_ns",
        "_base_rounds",
        "_best_before_bytes",
        "_best_bytes",
        "_busy_bytes",
        "_busy_is_queued",
        "_busy_ns",
        "_deviation_ns",
        "_estimator",
        "_given",
        "_has_slowed",
        "_heard_ns",
        "_is_draining",
        "_is_full",
        "_is_silent",
        "_is_slow",
        "_mean_ns",
        "_recent",
        "_recent_bytes",
        "_round_ns",
        "_sent",
        "_sent_bytes",
        "_silence_ns",
        "_took",
        "_window_bytes",
    )

    def __init__(self, took_count: int = TOOK_COUNT) -> None:
        self._sent: dict[int, SentDelivery] = {}  # by packet id, in order
        self._sent_bytes = 0
        self._asking_bytes = 0  # end of the last delivery that will be acknowledged
        self._answered_bytes = 0  # end of the last delivery that was acknowledged
        self._answered_ns = 0
        self._arrived_bytes = 0  # assumed to have arrived: acknowledged, or sent long enough ago
        self._window_bytes = float(START_BYTES)
        self._has_slowed = False  # answers have been slow, so the right window is known
        self._is_full = False  # the window holds something back
        self._is_draining = False  # nothing is sent until all is answered, to measure the quickest answer
        self._is_silent = False
        # A receiver may have slept, or its path be longer than assumed. So for what was sent before the end
        # of the last silence, the time in transit is limited to that silence.
        self._heard_ns = 0
        self._silence_ns = 0
        self._is_slow = False  # the last answers were slow: too much is queued in transit
        self._took: deque[int] = deque(maxlen=took_count)  # how long the last answers took
        self._mean_ns = -1.0  # mean time of an answer beyond what the link alone explains
        self._deviation_ns = 0.0
        self._base_ns = -1  # the quickest answer in this round and in the one before
        self._base_before_ns = -1
        self._base_rounds = 0
        self._recent: deque[tuple[int, int]] = deque()  # times, and bytes acknowledged at each
        self._recent_bytes = 0
        self._best_bytes = 0
        self._best_before_bytes = 0
        self._round_ns = 0
        self._estimator = DelayEstimator(memory_ns=SPEED_MEMORY_NS)
        self._given: LinkDelay | None = None
        self._busy_ns = 0  # time of an answer since which there was always more to send; 0 = none
        self._busy_bytes = 0  # bytes acknowledged by then
        self._busy_is_queued = False  # whether that answer had been queued while the window was full

    def record_sent(self, packet_id: int, size_bytes: int, now_ns: int, start_ns: int) -> None:
        """Record a delivery that is written now and expected to leave at `start_ns`.

        `packet_id` is 0 for one that will not be acknowledged.
        """
        self._sent_bytes += size_bytes
        if packet_id:
            if not self._sent:
                self._arrived_bytes += self._carried_bytes(self._sent_bytes - size_bytes, now_ns)
                self._answered_ns = now_ns
            self._asking_bytes = self._sent_bytes
            self._sent[packet_id] = SentDelivery(size_bytes, self._sent_bytes, now_ns, start_ns)

    def forget(self, packet_id: int) -> None:
        """Remove a delivery that was not sent after all."""
        self._sent.pop(packet_id, None)

    def run_dry(self) -> None:
        """Note that nothing more is waiting, so the path may be idle."""
        self._busy_ns = 0

    def answer(self, packet_id: int, now_ns: int) -> bool:
        """Handle the first acknowledgement of a delivery; return whether one was recorded under this id."""
        sent = self._sent.pop(packet_id, None)
        if sent is None:
            return False
        if self._is_silent:
            self._is_silent = False
            self._heard_ns = now_ns
            self._busy_ns = 0
        elapsed_ns = now_ns - self._answered_ns
        self._answered_ns = now_ns
        took_ns = now_ns - sent.sent_ns
        self._took.append(took_ns)
        self._start_round(now_ns)
        if self._base_ns < 0 or took_ns < self._base_ns:
            self._base_ns = took_ns
        self._answered_bytes = max(self._answered_bytes, sent.end_bytes)
        new_bytes = max(sent.end_bytes - self._arrived_bytes, 0)
        self._arrived_bytes += new_bytes
        if self._answered_bytes >= self._asking_bytes or not self._sent:
            # An answer shows that everything sent before has arrived, even if some is not acknowledged.
            self._is_draining = False
        limit_ns = self.base_ns() + TARGET_NS
        # At first a single slow answer counts: the buffers would be full before there are several.
        quickest_ns = min(self._took) if self._estimator.samples else took_ns
        self._is_slow = quickest_ns > limit_ns
        if self._is_slow and elapsed_ns > limit_ns:
            # On a full path, what nobody acknowledges came little by little since the last answer.
            unasked_bytes = max(new_bytes - sent.size_bytes, 0)
            new_bytes -= unasked_bytes - unasked_bytes * limit_ns // elapsed_ns
        self._count_recent(new_bytes, limit_ns, now_ns)
        late_ns = max(now_ns - sent.start_ns, 0)
        if sent.sent_ns < self._heard_ns:
            late_ns = min(late_ns, self._silence_ns)
        self._learn_delay(float(late_ns))
        self._measure(quickest_ns > self.base_ns() + QUEUED_NS, now_ns)
        best = GAIN * max(self._best_bytes, self._best_before_bytes)
        if self._is_slow:
            self._has_slowed = True
            self._window_bytes = min(self._window_bytes, best)
        elif self._is_full and (not self._has_slowed or self._window_bytes < best):
            self._window_bytes += new_bytes
        return True

    def has_room(self) -> bool:
        """Whether more may be sent now."""
        if not self._sent or self._is_silent:
            return True
        if self._is_draining or self._sent_bytes - self._arrived_bytes >= self._window_bytes:
            self._is_full = True
            return False
        return True

    def room_bytes(self, bytes_max: int) -> int:
        """Return how much of `bytes_max` may be sent now: 0, or at least one byte, which is one message."""
        if not self.has_room():
            return 0
        if self._is_silent or (self._sent_bytes and not self._answered_ns):
            return bytes_max  # nothing sent so far needs an acknowledgement, or the receiver is silent
        in_transit = self._sent_bytes - self._arrived_bytes if self._sent else 0
        room = int(self._window_bytes) - in_transit
        if room < bytes_max:
            self._is_full = True
            return max(room, 1)
        self._is_full = False
        return bytes_max

    def pace(self) -> float:
        """Return the rate for QoS 0 in bytes per second; 0 = no limit."""
        if self._sent_bytes <= self._asking_bytes or not self._estimator.samples or self._is_silent:
            return 0.0
        gain = SLOW_GAIN if self._is_slow else GAIN
        return gain * self._estimator.rate_bytes_per_s()

    def watch(self, now_ns: int) -> None:
        """Check, about once a second, whether the receiver still answers."""
        if self._estimator.samples and now_ns - self._answered_ns > SPEED_NS_MAX:
            self._estimator = DelayEstimator(memory_ns=SPEED_MEMORY_NS)
            self._given = None
        wait_ns = max(SILENCE_NS, SILENCE_DELAYS * self.delay_ns())
        if self._sent and now_ns - self._answered_ns > wait_ns:
            self._is_silent = True
            self._silence_ns = wait_ns
            self._is_draining = False

    def queued_ns(self) -> int:
        """Return how long what arrived last had been queued in transit: what all recent answers show."""
        if not self._took or self._is_silent:
            return 0
        return max(min(self._took) - self.base_ns(), 0)

    def has_speed(self) -> bool:
        """Whether the speed of the path is known and not outdated."""
        return self._estimator.samples > 0

    def base_ns(self) -> int:
        """Return the quickest recent answer: nothing was queued in transit."""
        if self._base_before_ns < 0:
            return max(self._base_ns, 0)
        return min(self._base_ns, self._base_before_ns) if self._base_ns >= 0 else self._base_before_ns

    def delay_ns(self) -> int:
        """Return how much longer than on the link alone a message sent now will take; 0 = not known.

        With nothing in transit, nothing is queued there. A silent receiver gives no estimate.
        """
        if self._mean_ns < 0.0 or self._is_silent:
            return 0
        usual = int(self._mean_ns + self._deviation_ns)
        return usual if self._sent else min(usual, self.base_ns())

    def changed_delay(self) -> LinkDelay | None:
        """Return the delay of the path if it is known and has changed enough since the last call."""
        if not self._estimator.samples:
            return None
        if self._given is not None and not self._estimator.has_moved(self._given):
            return None
        self._given = self._estimator.link_delay()
        return self._given

    def _carried_bytes(self, until_bytes: int, now_ns: int) -> int:
        """Estimate by the speed how much QoS 0 has arrived since the last answer."""
        unanswered = until_bytes - self._arrived_bytes
        if not self._estimator.samples:
            return unanswered
        elapsed_s = (now_ns - self._answered_ns) / NS_PER_S
        return min(unanswered, int(elapsed_s * self._estimator.rate_bytes_per_s()))

    def _measure(self, is_queued: bool, now_ns: int) -> None:
        """Measure the speed between answers that were queued in transit while the window was full.

        Otherwise only a faster speed is taken: the path may have been idle, or the sender too slow.
        """
        if self._busy_ns:
            count = self._answered_bytes - self._busy_bytes
            took_ns = now_ns - self._busy_ns
            if took_ns < BUSY_NS:
                return
            usual_ns = count * NS_PER_S / self._estimator.rate_bytes_per_s()
            is_faster = self._estimator.samples > 0 and took_ns < usual_ns
            is_slower = is_queued and self._busy_is_queued and (self._is_full or not self._estimator.samples)
            if is_faster or is_slower:
                self._estimator.add(count, took_ns)
        self._busy_ns = now_ns
        self._busy_bytes = self._answered_bytes
        self._busy_is_queued = is_queued and (self._is_full or not self._estimator.samples)

    def _learn_delay(self, took_ns: float) -> None:
        if self._mean_ns < 0.0:
            self._mean_ns = took_ns
            return
        step = took_ns - self._mean_ns
        self._mean_ns += MEAN_STEP * step
        self._deviation_ns += DEVIATION_STEP * (abs(step) - self._deviation_ns)

    def _start_round(self, now_ns: int) -> None:
        if now_ns - self._round_ns < ROUND_NS:
            return
        self._round_ns = now_ns
        self._best_before_bytes = self._best_bytes
        self._best_bytes = 0
        self._base_rounds += 1
        if self._base_rounds >= BASE_ROUNDS:
            self._base_rounds = 0
            self._base_before_ns = self._base_ns
            self._base_ns = -1
            # With data always in transit, the quickest answer would grow with the queue there.
            self._is_draining = self._is_full or self._sent_bytes > self._asking_bytes

    def _count_recent(self, new_bytes: int, limit_ns: int, now_ns: int) -> None:
        """Update the most bytes that were acknowledged within the time that an answer may take."""
        recent = self._recent
        recent.append((now_ns, new_bytes))
        self._recent_bytes += new_bytes
        while now_ns - recent[0][0] > limit_ns:
            self._recent_bytes -= recent.popleft()[1]
        if self._recent_bytes > self._best_bytes:
            self._best_bytes = self._recent_bytes
