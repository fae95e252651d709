"""Named random streams: repeatable by seed and name, and independent of each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.sim.kernel.streams import Streams


def test_streams_repeat_by_name_and_seed_and_differ_otherwise() -> None:
    draws = Streams(1).stream("links").random()

    assert Streams(1).stream("links").random() == draws
    assert Streams(1).stream("publishers").random() != draws
    assert Streams(2).stream("links").random() != draws


def test_numbers_are_the_same_on_every_machine() -> None:
    stream = Streams(1).stream("links")

    assert [stream.randrange(1_000) for _ in range(5)] == [939, 777, 453, 505, 315]


@given(st.integers(), st.lists(st.text(min_size=1), min_size=2, max_size=5, unique=True))
def test_drawing_from_one_stream_leaves_the_others_unchanged(seed: int, names: list[str]) -> None:
    alone = [Streams(seed).stream(name).random() for name in names]
    streams = Streams(seed)

    beside = []
    for name in names:
        stream = streams.stream(name)
        beside.append(stream.random())
        stream.random()

    assert beside == alone
    assert len(set(beside)) == len(names)
