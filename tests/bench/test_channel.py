"""The channel's experiments really run, and one that fails does not take the others with it."""

from __future__ import annotations

import pytest

from timebound.bench import channel

# Beside each other they would delay each other, at the same priorities of one processor.
pytestmark = pytest.mark.xdist_group("real-time")

TINY = channel.RunLengths(events=3, speed_events=500, step_s=0.1)


def test_unknown_experiment_is_refused() -> None:
    with pytest.raises(ValueError, match="choose from speed, collocated"):
        channel.run(["nonsense"])


def test_speed_is_measured() -> None:
    told: list[str] = []

    results = channel.run(["speed"], lengths=TINY, progress=told.append)

    assert told == ["speed"]
    assert results.speed is not None
    assert 0 < results.speed.reactive_to_1_us < results.speed.reactive_to_20_us
    assert results.speed.lanes_hand_over.count == 15


def test_every_cell_of_table_1_is_measured_for_each_dispatching() -> None:
    rows = channel.run(["collocated"], lengths=TINY).collocated

    assert len(rows) == 24
    assert all(row.near.count == row.far.count == 3 * row.suppliers for row in rows)
    assert all(0 < row.near.min_us <= row.near.mean_us <= row.near.max_us for row in rows)


def test_spacing_is_measured_for_each_dispatching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SPACINGS_NS", (100_000,))

    steps = channel.measure_spacing()

    assert [step.dispatching for step in steps] == ["reactive", "lanes"]
    assert all(0 < step.ratio <= 1 for step in steps)
