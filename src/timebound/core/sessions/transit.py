"""What is on its way to one receiver, known by its acknowledgements.

Behind the socket lie buffers that nobody tells about: in a relay, a radio, the receiver itself. QoS 1
and 2 show them, as every acknowledgement says that all that was sent before has arrived. From them
follow how fast the way is (`changed_delay`), how long what is sent now will take (`delay_ns`), and how much
may be on the way at once (`has_room`): what the receiver has acknowledged within the least time an
answer takes, and a little more. So the buffers stay nearly empty, and what waits does so where it can
still be chosen or dropped.

The window works like that of a transport protocol: it grows with what is acknowledged until answers are
slow, and follows what was acknowledged lately from then on. It counts bursts of answers as
they come, so a receiver that answers in batches is not held back. Where answers stop, it does not count.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from timebound.core.values.delay import NS_PER_S, DelayEstimator, LinkDelay

# What may be on the way before anything is known: as much as a transport protocol begins with.
START_BYTES: Final = 16_384
# Answers may take this much longer than the quickest: so long is the queue behind the socket at most.
TARGET_NS: Final = 50_000_000
# A window is this much larger than what was acknowledged: so the link stays busy, and a faster one shows.
GAIN: Final = 1.25
# What needs no answer is sent at this part of the speed while answers are slow, so that the buffers drain.
SLOW_GAIN: Final = 0.8
# A receiver may take its time for some answers. Only where all of these were slow, the way is to blame.
TOOK_COUNT: Final = 6
# What was acknowledged at best counts for one to two of these, the quickest answer for ten to twenty.
ROUND_NS: Final = 1_000_000_000
BASE_ROUNDS: Final = 10
# No answer for this time, and four times the usual one: the receiver does not answer, for whatever reason.
SILENCE_NS: Final = 1_000_000_000
SILENCE_DELAYS: Final = 4
# A speed is measured over at least this time, in which there always was more to send.
BUSY_NS: Final = 100_000_000
# An answer that takes so much longer than the quickest has waited on the way.
QUEUED_NS: Final = 5_000_000
# Of sending time, after which a measured speed counts 1/e.
SPEED_MEMORY_NS: Final = 250_000_000
# A speed counts for this time after the last answer.
SPEED_NS_MAX: Final = 10_000_000_000
# Weights of a new answer in the mean and in its deviation, as transport protocols have them.
MEAN_STEP: Final = 0.125
DEVIATION_STEP: Final = 0.25


class SentDelivery:
    """One delivery that will be acknowledged: where it ends in all that was sent, and when it was."""

    __slots__ = ("end_bytes", "sent_ns", "start_ns")

    def __init__(self, end_bytes: int, sent_ns: int, start_ns: int) -> None:
        self.end_bytes = end_bytes
        self.sent_ns = sent_ns
        self.start_ns = start_ns


class Transit:
    """What one connection was given and has not answered yet."""

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

    def __init__(self) -> None:
        self._sent: dict[int, SentDelivery] = {}  # by packet id, in order
        self._sent_bytes = 0
        self._asking_bytes = 0  # where the last one ends that will be answered
        self._answered_bytes = 0  # where the last one ends that was answered
        self._answered_ns = 0
        self._arrived_bytes = 0  # taken to have arrived: what was answered, or has had its time
        self._window_bytes = float(START_BYTES)
        self._has_slowed = False  # answers have been slow: how much is right is known
        self._is_full = False  # the window keeps something back
        self._is_draining = False  # nothing is sent until all is answered, to see the quickest answer
        self._is_silent = False
        # A receiver may have slept, or its way be longer than was known. So what was sent before the end of
        # the last silence counts as no longer on the way than was waited for it.
        self._heard_ns = 0
        self._silence_ns = 0
        self._is_slow = False  # the last answer took longer than it should: too much waits on the way
        self._took: deque[int] = deque(maxlen=TOOK_COUNT)  # what the last answers took
        self._mean_ns = -1.0  # of what an answer takes longer than the link alone explains
        self._deviation_ns = 0.0
        self._base_ns = -1  # the quickest answer in this round and in the one before
        self._base_before_ns = -1
        self._base_rounds = 0
        self._recent: deque[tuple[int, int]] = deque()  # when, and how many bytes were answered
        self._recent_bytes = 0
        self._best_bytes = 0
        self._best_before_bytes = 0
        self._round_ns = 0
        self._estimator = DelayEstimator(memory_ns=SPEED_MEMORY_NS)
        self._given: LinkDelay | None = None
        self._busy_ns = 0  # an answer since which there was always more to send; 0 = there was not
        self._busy_bytes = 0  # what was answered by then
        self._busy_is_queued = False  # whether it had waited on the way, and the window was full

    def record_sent(self, packet_id: int, size_bytes: int, now_ns: int, start_ns: int) -> None:
        """Count a delivery that is handed over now and believed to leave at `start_ns`.

        `packet_id` is 0 for one that will not be acknowledged.
        """
        self._sent_bytes += size_bytes
        if packet_id:
            if not self._sent:
                self._arrived_bytes += self._carried_bytes(self._sent_bytes - size_bytes, now_ns)
                self._answered_ns = now_ns
            self._asking_bytes = self._sent_bytes
            self._sent[packet_id] = SentDelivery(self._sent_bytes, now_ns, start_ns)

    def forget(self, packet_id: int) -> None:
        """A delivery was not sent after all."""
        self._sent.pop(packet_id, None)

    def run_dry(self) -> None:
        """Nothing more is waiting to be sent: the way may be idle from now on."""
        self._busy_ns = 0

    def answer(self, packet_id: int, now_ns: int) -> None:
        """Take the first acknowledgement of a delivery."""
        sent = self._sent.pop(packet_id, None)
        if sent is None:
            return
        if self._is_silent:
            self._is_silent = False
            self._heard_ns = now_ns
            self._busy_ns = 0
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
            # An answer says that all that was sent before has arrived, whatever is still unanswered.
            self._is_draining = False
        limit_ns = self.base_ns() + TARGET_NS
        self._count_recent(new_bytes, limit_ns, now_ns)
        late_ns = max(now_ns - sent.start_ns, 0)
        if sent.sent_ns < self._heard_ns:
            late_ns = min(late_ns, self._silence_ns)
        self._learn_delay(float(late_ns))
        # Before anything is known the first slow answer counts, else the buffers would be full by the time.
        quickest_ns = min(self._took) if self._estimator.samples else took_ns
        self._measure(quickest_ns > self.base_ns() + QUEUED_NS, now_ns)
        best = GAIN * max(self._best_bytes, self._best_before_bytes)
        self._is_slow = quickest_ns > limit_ns
        if self._is_slow:
            self._has_slowed = True
            self._window_bytes = min(self._window_bytes, best)
        elif self._is_full and (not self._has_slowed or self._window_bytes < best):
            self._window_bytes += new_bytes

    def has_room(self) -> bool:
        """Whether more may be on the way than is."""
        if not self._sent or self._is_silent:
            return True
        if self._is_draining or self._sent_bytes - self._arrived_bytes >= self._window_bytes:
            self._is_full = True
            return False
        return True

    def room_bytes(self, bytes_max: int) -> int:
        """How much of `bytes_max` may be given now; at least one byte, which is one message, if any."""
        if not self.has_room():
            return 0
        if self._is_silent or (self._sent_bytes and not self._answered_ns):
            return bytes_max  # nothing it was sent so far needed an answer, or it gives none
        on_the_way = self._sent_bytes - self._arrived_bytes if self._sent else 0
        room = int(self._window_bytes) - on_the_way
        if room < bytes_max:
            self._is_full = True
            return max(room, 1)
        self._is_full = False
        return bytes_max

    def pace(self) -> float:
        """Bytes per second at which to send what needs no answer; 0: as fast as it goes."""
        if self._sent_bytes <= self._asking_bytes or not self._estimator.samples or self._is_silent:
            return 0.0
        gain = SLOW_GAIN if self._is_slow else GAIN
        return gain * self._estimator.rate_bytes_per_s()

    def watch(self, now_ns: int) -> None:
        """Called about once a second: does the receiver answer at all?"""
        if self._estimator.samples and now_ns - self._answered_ns > SPEED_NS_MAX:
            self._estimator = DelayEstimator(memory_ns=SPEED_MEMORY_NS)
            self._given = None
        wait_ns = max(SILENCE_NS, SILENCE_DELAYS * self.delay_ns())
        if self._sent and now_ns - self._answered_ns > wait_ns:
            self._is_silent = True
            self._silence_ns = wait_ns
            self._is_draining = False

    def has_speed(self) -> bool:
        """Whether the speed of the way is known, and not for too long."""
        return self._estimator.samples > 0

    def base_ns(self) -> int:
        """The quickest answer of late: nothing waited on the way."""
        if self._base_before_ns < 0:
            return max(self._base_ns, 0)
        return min(self._base_ns, self._base_before_ns) if self._base_ns >= 0 else self._base_before_ns

    def delay_ns(self) -> int:
        """How much longer than the link alone explains what is sent now will take; 0 = not known.

        With nothing on the way nothing waits there. A receiver that has stopped answering says nothing.
        """
        if self._mean_ns < 0.0 or self._is_silent:
            return 0
        usual = int(self._mean_ns + self._deviation_ns)
        return usual if self._sent else min(usual, self.base_ns())

    def changed_delay(self) -> LinkDelay | None:
        """The speed of the way, where it is known and has moved enough to matter since it was last taken."""
        if not self._estimator.samples:
            return None
        if self._given is not None and not self._estimator.has_moved(self._given):
            return None
        self._given = self._estimator.link_delay()
        return self._given

    def _carried_bytes(self, until_bytes: int, now_ns: int) -> int:
        """What has arrived since the last answer of what needed none, as far as the speed tells."""
        unanswered = until_bytes - self._arrived_bytes
        if not self._estimator.samples:
            return unanswered
        elapsed_s = (now_ns - self._answered_ns) / NS_PER_S
        return min(unanswered, int(elapsed_s * self._estimator.rate_bytes_per_s()))

    def _measure(self, is_queued: bool, now_ns: int) -> None:
        """Measure the speed between answers that had to wait on the way while the window was full.

        Else it is at least as fast as it was used: it may have been idle, or we too slow.
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
            # With always something on the way the quickest answer would grow with what waits there.
            self._is_draining = self._is_full or self._sent_bytes > self._asking_bytes

    def _count_recent(self, new_bytes: int, limit_ns: int, now_ns: int) -> None:
        """Keep the most that was answered within the time that answers may take."""
        recent = self._recent
        recent.append((now_ns, new_bytes))
        self._recent_bytes += new_bytes
        while now_ns - recent[0][0] > limit_ns:
            self._recent_bytes -= recent.popleft()[1]
        if self._recent_bytes > self._best_bytes:
            self._best_bytes = self._recent_bytes
