"""The round trip of an empty way: what times it, and what does not. The rest is tested in `test_link.py`."""

from __future__ import annotations

from timebound.node.pacing import WAY_WINDOW_NS, Pacing
from timebound.node.tcp_info import TcpReading
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
