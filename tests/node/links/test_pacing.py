"""The round trip of an empty way, and a pace from outside. The rest is tested in `test_link.py`."""

from __future__ import annotations

import pytest

from timebound.node.links.pacing import DEBT_NS_MAX, WAIT_NS_MAX, WAY_WINDOW_NS, Pacing
from timebound.node.links.tcp_info import TcpReading
from timebound.units import MILLISECOND, SECOND

RATE = 125_000.0
SHORTEST_NS = 10 * MILLISECOND
USUAL_NS = 30 * MILLISECOND


class Way:
    """A link whose rate is known and on which nothing is, as the kernel sees it."""

    def __init__(self) -> None:
        self.now_ns = SECOND
        self.acked = 5_000
        self.pacing = Pacing()
        self.pacing.rate = RATE
        self.look()

    def look(self) -> None:
        reading = TcpReading(
            bytes_acked=self.acked, in_flight=0, rtt_ns=USUAL_NS, rtt_min_ns=SHORTEST_NS // 2
        )
        self.pacing.allow(reading, 0, 1_000, self.now_ns)

    def write(self, count: int, *, acked_after_ns: int) -> None:
        """Write, and look again when all of it was acknowledged."""
        self.pacing.written(count, 0, self.now_ns)
        self.acked += count
        self.now_ns += acked_after_ns
        self.look()

    def end_window(self) -> None:
        """What was timed in this window is from now on all that is known."""
        self.now_ns += WAY_WINDOW_NS
        self.look()


def test_a_write_that_finds_nothing_on_the_way_times_it() -> None:
    way = Way()

    way.write(1_000, acked_after_ns=SHORTEST_NS + int(1_000 * SECOND / RATE))
    way.end_window()

    assert way.pacing.round_trip_ns() == SHORTEST_NS


def test_a_look_that_comes_long_after_the_answer_does_not_make_the_way_longer() -> None:
    way = Way()

    way.write(1_000, acked_after_ns=5 * SECOND)
    way.end_window()

    assert way.pacing.round_trip_ns() == USUAL_NS


def test_a_write_of_nothing_times_nothing() -> None:
    # As where all that was taken to be written has turned out too large, or too late.
    way = Way()
    before_ns = way.pacing.round_trip_ns()

    way.write(0, acked_after_ns=5 * SECOND)
    way.end_window()

    assert way.pacing.round_trip_ns() == before_ns == SHORTEST_NS // 2


def written_in(way: Way, seconds: float) -> int:
    """Write as much as the pace allows, of a link that takes everything at once."""
    written = 0
    end_ns = way.now_ns + int(seconds * SECOND)
    while way.now_ns < end_ns:
        reading = TcpReading(bytes_acked=way.acked, in_flight=0, rtt_ns=MILLISECOND, rtt_min_ns=MILLISECOND)
        allowed = way.pacing.allow(reading, 0, 10_000, way.now_ns)
        if allowed:
            way.pacing.written(500, 10_000, way.now_ns)
            way.acked += 500
            written += 500
        way.now_ns = max(way.pacing.wake_ns, way.now_ns + MILLISECOND)
    return written


@pytest.mark.parametrize(("ceiling", "expected"), [(0.0, 20_000.0), (10_000.0, 10_000.0)])
def test_a_pace_from_outside_is_kept_and_given_up(ceiling: float, expected: float) -> None:
    way = Way()
    way.pacing = Pacing(ceiling)
    way.pacing.rate = RATE

    way.pacing.limit_pace(20_000.0, way.now_ns)
    assert written_in(way, 5.0) / 5.0 == pytest.approx(expected, rel=0.1)

    way.pacing.limit_pace(0.0, way.now_ns)
    assert written_in(way, 5.0) / 5.0 > (0.9 * ceiling or RATE)


def test_what_was_written_at_a_slow_pace_holds_nothing_up_for_long() -> None:
    way = Way()
    way.pacing.limit_pace(1_000.0, way.now_ns)
    way.pacing.written(64_000, 10_000, way.now_ns)

    assert way.pacing.wake_ns <= way.now_ns + WAIT_NS_MAX  # so that a new pace is asked for soon
    way.now_ns += DEBT_NS_MAX
    way.look()
    assert way.pacing.wake_ns == 0


def test_a_faster_pace_counts_at_once() -> None:
    way = Way()
    way.pacing.limit_pace(1_000.0, way.now_ns)
    way.pacing.written(1_000, 10_000, way.now_ns)

    way.pacing.limit_pace(100_000.0, way.now_ns)

    assert way.pacing.allow(None, 0, 1_000, way.now_ns + 11 * MILLISECOND) > 0
