"""Three ways to share the wire to the broker."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.sim.input.link_layers import (
    COLLISION_WINDOW_NS,
    FRAME_NS,
    JAM_NS,
    LINK_LAYERS,
    LOST,
    Can,
    Frame,
    LinkLayer,
    SharedEthernet,
    SwitchedEthernet,
)

frame_lists = st.lists(
    st.builds(Frame, st.integers(0, 2_000_000), st.integers(0, 5), st.integers(0, 19)), max_size=40
).map(sorted)


def test_frame_takes_51_2_microseconds() -> None:
    assert FRAME_NS == 51_200


@pytest.mark.parametrize("layer", LINK_LAYERS[:2], ids=lambda layer: layer.name)
def test_lone_frame_takes_its_length(layer: LinkLayer) -> None:
    assert layer.deliver([Frame(100, 0, 0)], Random(1)) == [100 + FRAME_NS]


def test_switch_sends_a_frame_on_once_it_has_all_of_it() -> None:
    assert SwitchedEthernet().deliver([Frame(100, 0, 0)], Random(1)) == [100 + 2 * FRAME_NS]


def test_switch_lets_stations_send_at_once_and_queues_at_the_port() -> None:
    frames = [Frame(0, 0, 0), Frame(0, 1, 0), Frame(0, 0, 0)]

    assert SwitchedEthernet().deliver(frames, Random(1)) == [2 * FRAME_NS, 3 * FRAME_NS, 4 * FRAME_NS]


def test_lowest_identifier_wins_the_can_bus() -> None:
    frames = [Frame(0, 0, 5), Frame(1, 1, 9), Frame(1, 2, 3)]

    assert Can().deliver(frames, Random(1)) == [FRAME_NS, 3 * FRAME_NS, 2 * FRAME_NS]


def test_station_that_hears_another_waits_until_it_is_done() -> None:
    frames = [Frame(0, 0, 0), Frame(COLLISION_WINDOW_NS + 1, 1, 0)]

    assert SharedEthernet().deliver(frames, Random(1)) == [FRAME_NS, 2 * FRAME_NS]


def test_stations_that_start_together_collide_and_both_get_through_later() -> None:
    received = SharedEthernet().deliver([Frame(0, 0, 0), Frame(0, 1, 0)], Random(1))

    assert min(received) >= COLLISION_WINDOW_NS + JAM_NS + FRAME_NS
    assert abs(received[0] - received[1]) >= FRAME_NS


def test_frame_is_given_up_after_sixteen_collisions() -> None:
    class Stubborn(Random):
        def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
            return 0

    assert SharedEthernet().deliver([Frame(0, 0, 0), Frame(0, 1, 0)], Stubborn()) == [LOST, LOST]


@given(frame_lists, st.sampled_from(LINK_LAYERS), st.integers(0, 3))
def test_no_two_frames_arrive_within_one_frame_and_stations_keep_their_order(
    frames: list[Frame], layer: LinkLayer, seed: int
) -> None:
    received = layer.deliver(frames, Random(seed))

    times = sorted(time for time in received if time != LOST)
    assert all(later - earlier >= FRAME_NS for earlier, later in pairwise(times))
    for station in range(6):
        own = [time for time, frame in zip(received, frames, strict=True) if frame.station == station]
        arrived = [time for time in own if time != LOST]
        assert arrived == sorted(arrived)
    assert layer.deliver(frames, Random(seed)) == received
