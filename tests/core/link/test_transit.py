"""What acknowledgements teach: how much may be on the way, how fast it is, how long it takes."""

from __future__ import annotations

from collections import deque

import pytest

from timebound.core.link.transit import BASE_ROUNDS, START_BYTES, TARGET_NS, Transit
from timebound.units import MILLISECOND, SECOND

SIZE = 500
BACK_NS = 5 * MILLISECOND


class Way:
    """A receiver behind a buffer without end and a link; answers come in batches if asked for."""

    def __init__(
        self, rate_bytes_per_s: float, *, back_ns: int = BACK_NS, batch_ns: int = 0, plain: bool = False
    ) -> None:
        self.transit = Transit()
        self.rate = rate_bytes_per_s
        self.back_ns = back_ns
        self.batch_ns = batch_ns
        self.plain = plain  # after each delivery that is answered goes one that needs no answer
        self.lost: set[int] = set()  # packet ids that are never answered
        self.now_ns = SECOND
        self.free_ns = self.now_ns
        self.packet_id = 0
        self.answers: deque[tuple[int, int]] = deque()
        self.on_the_way_max = 0

    def run(self, seconds: float) -> int:
        """Send as much as may be; the bytes that were acknowledged."""
        end_ns = self.now_ns + int(seconds * SECOND)
        answered = 0
        while self.now_ns < end_ns:
            while self.transit.room_bytes(SIZE) > 0 and len(self.answers) < 60_000:
                self.send()
            self.on_the_way_max = max(self.on_the_way_max, len(self.answers) * SIZE)
            self.now_ns, packet_id = self.answers.popleft()
            self.transit.answer(packet_id, self.now_ns)
            answered += SIZE
        return answered

    def allowed_bytes(self) -> float:
        """Half as much again as the way carries in the quickest answer and the target, and two messages."""
        quickest_ns = self.back_ns + SIZE / self.rate * SECOND
        return 1.5 * self.rate * (quickest_ns + TARGET_NS) / SECOND + 2 * SIZE

    def send(self) -> None:
        self.packet_id += 1
        self.free_ns = max(self.free_ns, self.now_ns) + int(SIZE / self.rate * SECOND)
        answer_ns = self.free_ns + self.back_ns
        if self.batch_ns:
            answer_ns = -(-answer_ns // self.batch_ns) * self.batch_ns
        self.transit.record_sent(self.packet_id, SIZE, self.now_ns, self.now_ns)
        if self.packet_id not in self.lost:
            self.answers.append((answer_ns, self.packet_id))
        if self.plain:
            self.free_ns += int(SIZE / self.rate * SECOND)
            self.transit.record_sent(0, SIZE, self.now_ns, self.now_ns)


@pytest.mark.parametrize("rate", [32_000.0, 125_000.0, 1_250_000.0])
def test_the_way_is_kept_busy_and_its_buffer_short(rate: float) -> None:
    way = Way(rate)
    way.run(2.0)
    way.on_the_way_max = 0

    answered = way.run(10.0)

    assert answered >= 0.97 * 10.0 * rate
    assert way.on_the_way_max <= way.allowed_bytes()


def test_a_long_way_is_used_fully() -> None:
    way = Way(1_250_000.0, back_ns=300 * MILLISECOND)
    way.run(4.0)

    assert way.run(10.0) >= 0.9 * 10.0 * 1_250_000


def test_a_receiver_that_answers_in_batches_is_not_held_back() -> None:
    way = Way(125_000.0, batch_ns=500 * MILLISECOND)
    way.run(6.0)

    assert way.run(10.0) >= 0.9 * 10.0 * 125_000


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_a_rate_that_changes_is_followed(factor: float) -> None:
    way = Way(125_000.0)
    way.run(5.0)

    way.rate *= factor
    way.run(3.0)
    way.on_the_way_max = 0
    answered = way.run(5.0)

    assert answered >= 0.95 * 5.0 * way.rate
    assert way.on_the_way_max <= way.allowed_bytes()


def test_what_waits_on_the_way_does_not_pass_for_its_length() -> None:
    way = Way(125_000.0)

    way.run(4.0 * BASE_ROUNDS)

    assert way.transit.base_ns() <= BACK_NS + 10 * MILLISECOND


def test_the_speed_of_a_busy_way_is_measured() -> None:
    way = Way(125_000.0)
    way.run(2.0)

    delay = way.transit.changed_delay()

    assert delay is not None
    assert 1_024 / delay.mean_s_per_kb == pytest.approx(125_000.0, rel=0.05)
    assert way.transit.changed_delay() is None


def test_a_way_that_is_hardly_used_shows_no_speed() -> None:
    transit = Transit()
    for packet_id in range(1, 100):
        transit.record_sent(packet_id, SIZE, packet_id * SECOND, packet_id * SECOND)
        transit.answer(packet_id, packet_id * SECOND + BACK_NS)

    assert transit.changed_delay() is None
    assert transit.delay_ns() <= BACK_NS


def test_the_delay_is_what_the_link_does_not_explain() -> None:
    transit = Transit()
    for packet_id in range(1, 200):
        now_ns = packet_id * 10 * MILLISECOND
        # Twenty milliseconds in the socket, a hundred behind it.
        transit.record_sent(packet_id, SIZE, now_ns, now_ns + 20 * MILLISECOND)
        if packet_id > 12:
            transit.answer(packet_id - 12, now_ns)

    assert transit.delay_ns() == pytest.approx(100 * MILLISECOND, rel=0.1)


def test_a_receiver_that_does_not_answer_holds_nothing_back() -> None:
    transit = Transit()
    packet_id = 0
    while transit.has_room():
        packet_id += 1
        transit.record_sent(packet_id, SIZE, SECOND, SECOND)
    assert packet_id * SIZE == pytest.approx(START_BYTES, rel=0.05)

    transit.watch(SECOND + SECOND // 2)
    assert not transit.has_room()
    transit.watch(3 * SECOND)

    assert transit.has_room()
    assert transit.delay_ns() == 0


@pytest.mark.parametrize("plain", [False, True])
def test_one_answer_that_never_comes_holds_nothing_back(plain: bool) -> None:
    # Every ten rounds all is waited for, to see the quickest answer. The one that is missing is not.
    way = Way(125_000.0, plain=plain)
    way.lost = {7}

    answered = way.run(4.0 * BASE_ROUNDS)

    share = 0.5 if plain else 1.0
    assert answered >= 0.95 * share * 4.0 * BASE_ROUNDS * way.rate


def test_a_last_answer_that_never_comes_is_waited_for_until_the_receiver_counts_as_silent() -> None:
    transit = Transit()
    packet_id = answered = 0
    now_ns = SECOND
    for _ in range(BASE_ROUNDS):
        now_ns += SECOND
        while transit.has_room():
            packet_id += 1
            transit.record_sent(packet_id, SIZE, now_ns, now_ns)
        while answered < packet_id - 1:
            answered += 1
            transit.answer(answered, now_ns + BACK_NS)
    assert not transit.has_room()  # all but the last was answered, and nothing more may follow

    transit.watch(now_ns + 3 * SECOND)
    assert transit.has_room()
    for number in (1, 2):
        transit.record_sent(packet_id + number, SIZE, now_ns + 3 * SECOND, now_ns + 3 * SECOND)
    transit.answer(packet_id + 1, now_ns + 3 * SECOND + BACK_NS)

    assert transit.has_room()


def test_what_needed_no_answer_before_is_not_on_the_way() -> None:
    transit = Transit()
    transit.record_sent(0, 10 * START_BYTES, SECOND, SECOND)
    transit.record_sent(1, SIZE, 2 * SECOND, 2 * SECOND)
    assert transit.has_room()

    transit.answer(1, 2 * SECOND + BACK_NS)
    transit.record_sent(2, SIZE, 3 * SECOND, 3 * SECOND)

    # Nor has it shown how much the way carries.
    assert transit.room_bytes(10 * START_BYTES) == START_BYTES - SIZE


def test_what_needs_no_answer_counts_behind_what_does() -> None:
    transit = Transit()
    transit.record_sent(1, SIZE, SECOND, SECOND)
    transit.record_sent(0, START_BYTES, SECOND, SECOND)
    transit.record_sent(2, SIZE, SECOND, SECOND)
    assert not transit.has_room()

    transit.answer(2, SECOND + BACK_NS)

    assert transit.has_room()  # it was sent last, so all before it has arrived


def test_what_needs_no_answer_is_not_waited_for() -> None:
    transit = Transit()
    for _ in range(1_000):
        transit.record_sent(0, SIZE, SECOND, SECOND)

    assert transit.has_room()


def test_a_delivery_that_was_not_sent_is_forgotten() -> None:
    transit = Transit()
    transit.record_sent(1, 10 * START_BYTES, SECOND, SECOND)
    assert not transit.has_room()

    transit.forget(1)

    assert transit.has_room()


class MixedWay:
    """Bytes without answers, always more of them, and an alert that is answered every 40 ms."""

    def __init__(self, rate_bytes_per_s: float, hidden_bytes: int) -> None:
        self.transit = Transit()
        self.rate = rate_bytes_per_s
        self.hidden_bytes = hidden_bytes
        self.now_ns = SECOND
        self.free_ns = self.now_ns  # when the link has sent all that it was given
        self.next_ns = self.now_ns  # when the pace allows the next
        self.answers: deque[tuple[int, int]] = deque()
        self.packet_id = 0
        self.alert_delays_ns: list[int] = []

    def run(self, seconds: float, *, alerts: bool = True) -> int:
        """Go on for so long, in steps of a millisecond; the bytes that were sent."""
        sent = 0
        for _ in range(int(seconds * 1_000)):
            self.now_ns += MILLISECOND
            while self.answers and self.answers[0][0] <= self.now_ns:
                self.transit.answer(self.answers.popleft()[1], self.now_ns)
            if alerts and self.now_ns % (40 * MILLISECOND) == 0:
                self.packet_id += 1
                self._send(self.packet_id)
                self.answers.append((self.free_ns + BACK_NS, self.packet_id))
                self.alert_delays_ns.append(self.free_ns - self.now_ns)
                sent += SIZE
            while self._waits_ns() < self.hidden_bytes / self.rate * SECOND and self._may_send():
                self._send(0)
                sent += SIZE
            if self.now_ns % SECOND == 0:
                self.transit.watch(self.now_ns)
        return sent

    def _waits_ns(self) -> int:
        return max(self.free_ns - self.now_ns, 0)

    def _may_send(self) -> bool:
        return self.next_ns <= self.now_ns and self.transit.room_bytes(SIZE) > 0

    def _send(self, packet_id: int) -> None:
        self.free_ns = max(self.free_ns, self.now_ns) + int(SIZE / self.rate * SECOND)
        self.transit.record_sent(packet_id, SIZE, self.now_ns, self.now_ns)
        pace = self.transit.pace()
        start_ns = max(self.next_ns, self.now_ns - 5 * MILLISECOND)  # a step that was long may be made up for
        self.next_ns = start_ns + int(SIZE / pace * SECOND) if pace else self.now_ns


@pytest.mark.parametrize("hidden_bytes", [20_000, 100_000, 1_000_000])
def test_what_needs_no_answer_does_not_fill_the_buffers_before_what_does(hidden_bytes: int) -> None:
    way = MixedWay(125_000.0, hidden_bytes)
    way.run(3.0 + 3 * hidden_bytes / way.rate)  # it fills before the first answer, and has to drain once
    way.alert_delays_ns.clear()

    sent = way.run(10.0)

    assert max(way.alert_delays_ns) < 400 * MILLISECOND
    assert sent > 0.85 * 125_000.0 * 10.0


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_a_pace_follows_the_way(factor: float) -> None:
    way = MixedWay(125_000.0, 100_000)
    way.run(3.0)
    way.rate *= factor
    way.run(6.0)
    way.alert_delays_ns.clear()

    sent = way.run(5.0)

    assert sent > 0.8 * way.rate * 5.0
    assert sorted(way.alert_delays_ns)[len(way.alert_delays_ns) // 2] < 400 * MILLISECOND


def test_without_answers_there_is_no_pace() -> None:
    way = MixedWay(125_000.0, 100_000)
    way.run(3.0)
    assert way.transit.pace() > 0.0

    way.run(12.0, alerts=False)

    assert way.transit.pace() == 0.0


def test_a_receiver_that_answers_all_has_no_pace() -> None:
    way = Way(125_000.0)
    way.run(5.0)

    assert way.transit.changed_delay() is not None
    assert way.transit.pace() == 0.0


@pytest.mark.parametrize("answers_ms", [(20, 80, 90, 100), (100, 100, 100, 100, 5)])
def test_answers_that_come_unevenly_do_not_slow_down_what_needs_none(answers_ms: tuple[int, ...]) -> None:
    """A link without end; one alert at a time, the next waits for the answer; 100 kB/s of QoS 0."""
    transit = Transit()
    now_ns = SECOND
    next_ns = now_ns
    offered = sent = number = 0
    answer_ns = 0
    for step in range(30_000):
        now_ns += MILLISECOND
        offered += 100
        if now_ns >= answer_ns:
            if number:
                transit.answer(number, now_ns)
            number += 1
            transit.record_sent(number, 200, now_ns, now_ns)
            answer_ns = now_ns + answers_ms[number % len(answers_ms)] * MILLISECOND
        while offered - sent >= SIZE and next_ns <= now_ns and transit.room_bytes(SIZE) > 0:
            sent += SIZE
            transit.record_sent(0, SIZE, now_ns, now_ns)
            pace = transit.pace()
            start_ns = max(next_ns, now_ns - 5 * MILLISECOND)
            next_ns = start_ns + int(SIZE / pace * SECOND) if pace else now_ns
        if step % 1_000 == 0:
            transit.watch(now_ns)

    assert sent > 0.9 * offered


def test_a_receiver_that_slept_is_as_fast_and_as_near_as_before() -> None:
    way = Way(125_000.0)
    way.run(5.0)
    before = way.transit.changed_delay()
    assert before is not None
    delay_ns = way.transit.delay_ns()
    for second in range(60):
        way.transit.watch(way.now_ns + second * SECOND)
    asleep = [packet_id for _, packet_id in way.answers]
    way.answers.clear()
    way.now_ns += 60 * SECOND
    way.free_ns = way.now_ns

    for packet_id in asleep:
        way.transit.answer(packet_id, way.now_ns)
        way.now_ns += MILLISECOND
    assert way.transit.delay_ns() < 4 * max(delay_ns, SECOND)
    way.run(3.0)

    after = way.transit.changed_delay()
    assert after is None or after.mean_s_per_kb < 1.5 * before.mean_s_per_kb
    assert way.transit.delay_ns() < 4 * delay_ns
