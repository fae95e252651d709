"""Pipes: time, order, ends, and what a full or dead one does."""

from __future__ import annotations

from timebound.sim.deployment.links import PipeMeter, Route, make_cables
from timebound.sim.kernel.kernel import Kernel
from timebound.units import MILLISECOND, SECOND


class NotingEndpoint:
    """Notes what is read, and when."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.seen: list[tuple[float, str]] = []

    def note(self, what: str) -> None:
        self.seen.append((self.kernel.now_ns / SECOND, what))

    def data_received(self, data: bytes) -> None:
        self.note(data.decode())

    def connection_lost(self) -> None:
        self.note("end")

    def pause_writing(self) -> None:
        self.note("full")

    def resume_writing(self) -> None:
        self.note("room")


class Pair:
    """Both sides of a connection with 1,000 bytes a second and 10 ms."""

    def __init__(self, buffer_bytes: int = 1_000) -> None:
        self.kernel = Kernel()
        self.route = Route(1_000, 10 * MILLISECOND)
        self.near, self.far = make_cables(self.kernel, self.route, buffer_bytes)
        self.here, self.there = NotingEndpoint(self.kernel), NotingEndpoint(self.kernel)
        self.near.attach(self.here)
        self.far.attach(self.there)


def test_bytes_take_the_time_of_the_rate_and_the_latency_and_keep_their_order() -> None:
    pair = Pair()

    pair.near.write(b"a" * 100)
    pair.near.write(b"b" * 50)
    pair.kernel.run(SECOND)

    assert pair.there.seen == [(0.11, "a" * 100), (0.16, "b" * 50)]


def test_closed_connection_delivers_what_was_written_and_then_its_end() -> None:
    pair = Pair()

    pair.near.write(b"a" * 100)
    pair.near.close()
    pair.near.write(b"late")
    pair.far.write(b"unread")
    pair.kernel.run(SECOND)

    assert pair.there.seen == [(0.11, "a" * 100), (0.11, "end")]
    assert pair.here.seen == []


def test_cut_loses_what_is_on_its_way_and_both_sides_notice() -> None:
    pair = Pair()

    pair.near.write(b"a")
    pair.near.cut()
    pair.kernel.run(SECOND)

    assert pair.there.seen == [(0.0, "end")]
    assert pair.here.seen == [(0.0, "end")]


def test_dead_route_delivers_nothing_and_tells_nobody() -> None:
    pair = Pair()

    pair.route.is_dead = True
    pair.near.write(b"a")
    pair.near.close()
    pair.kernel.run(SECOND)

    assert pair.there.seen == []


def test_reader_that_pauses_gets_all_of_it_later() -> None:
    pair = Pair()

    pair.far.pause_reading()
    pair.near.write(b"a")
    pair.near.close()
    pair.kernel.run(SECOND)
    assert pair.there.seen == []
    pair.far.resume_reading()

    assert [what for _, what in pair.there.seen] == ["a", "end"]


def test_full_pipe_says_so_once_and_again_when_it_is_empty() -> None:
    pair = Pair(buffer_bytes=100)

    pair.near.write(b"a" * 100)
    pair.near.write(b"b" * 100)
    pair.near.write(b"c" * 100)
    pair.kernel.run(SECOND)

    assert pair.here.seen == [(0.0, "full"), (0.2, "room")]


def test_slow_route_takes_longer_until_it_is_restored() -> None:
    pair = Pair()

    pair.route.slow(10.0)
    pair.near.write(b"a" * 10)
    pair.kernel.run(SECOND)
    pair.route.restore()
    pair.near.write(b"b" * 10)
    pair.kernel.run(2 * SECOND)

    assert pair.there.seen == [(0.11, "a" * 10), (0.13, "b" * 10)]


def test_meter_tells_the_rate_once_and_nothing_while_enough_is_ahead() -> None:
    pair = Pair()
    meter = PipeMeter(pair.near.out)

    delay = meter.changed_delay()
    assert delay is not None
    assert delay.mean_s_per_kb == 1.024
    assert meter.changed_delay() is None
    assert meter.allow(1, 0) == 512
    pair.near.write(b"a" * 100)

    assert meter.allow(1, 0) == 0
    assert meter.wake_ns == 80 * MILLISECOND
    assert not meter.written(100, 1, 0)
