"""The burst that a flow needs for a rate, against the definition, however the arrivals are cut."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.traces import SECOND, START

from timebound.pipeline.jobs.envelope import RATES, merged, segment_of, segments

TIMES = st.lists(st.integers(0, 20 * SECOND), min_size=1, max_size=30).map(sorted)


def naive_burst(times_ns: list[int], rate: float) -> float:
    """The largest excess over all intervals that begin and end with an arrival."""
    return max(
        (j - i + 1) - rate * (times_ns[j] - times_ns[i]) / SECOND
        for i in range(len(times_ns))
        for j in range(i, len(times_ns))
    )


def batches(rows: list[tuple[int, int, int, int]], sizes: list[int]) -> list[pa.RecordBatch]:
    """Rows (flow, published_ns, message_id, hop) in batches of some sizes, the last one with the rest."""
    names = ["flow", "published_ns", "message_id", "hop"]
    cut: list[pa.RecordBatch] = []
    for size in [*sizes, len(rows)]:
        part, rows = rows[:size], rows[size:]
        columns = [pa.array([one[i] for one in part], pa.int64()) for i in range(4)]
        cut.append(pa.RecordBatch.from_arrays(columns, names=names))
    return cut


def table(found: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [one for batch in found for one in batch.to_pylist()]


@given(TIMES)
def test_a_segment_has_the_burst_of_the_definition(times: list[int]) -> None:
    absolute = [START + one for one in times]

    found = segment_of(np.array(absolute), 0)

    for number in (0, 16, 20, 24, 32, 56):
        assert found.best[number] == pytest.approx(naive_burst(absolute, RATES[number]), abs=1e-6)


@given(TIMES, st.lists(st.integers(0, 8), max_size=6))
def test_cutting_arrivals_into_batches_changes_nothing(times: list[int], sizes: list[int]) -> None:
    rows = [(7, START + one, number, 0) for number, one in enumerate(times)]

    [cut] = table(list(segments(batches(rows, sizes))))
    [whole] = table(list(segments(batches(rows, []))))

    assert {name: cut[name] for name in ("flow", "first_ns", "last_ns", "messages", "receipts")} == {
        "flow": 7,
        "first_ns": START + times[0],
        "last_ns": START + times[-1],
        "messages": len(times),
        "receipts": len(times),
    }
    for name in ("prefix", "suffix", "best"):
        assert cut[name] == pytest.approx(whole[name], abs=1e-6)


@given(TIMES, st.integers(1, 29))
def test_segments_of_two_days_merge_into_that_of_both(times: list[int], place: int) -> None:
    place = min(place, len(times))
    rows = [(7, START + one, number, 0) for number, one in enumerate(times)]
    days = [list(segments(batches(part, []))) for part in (rows[:place], rows[place:])]

    [found] = table(list(merged([batch for day in days for batch in day])))

    assert found["messages"] == len(times)
    assert found["best"] == pytest.approx(table(list(segments(batches(rows, []))))[0]["best"], abs=1e-6)


def test_flows_follow_each_other_and_copies_count_once() -> None:
    # Two flows; message 1 has three rows, the first with the most hops, cut apart by a batch.
    rows = [(1, 10, 1, 2), (1, 10, 1, 0), (1, 10, 1, 0), (1, 10, 2, 0), (2, 5, 1, 1)]

    found = table(list(segments(batches(rows, [2, 0, 2]))))

    kept = [(one["flow"], one["messages"], one["receipts"]) for one in found]
    assert kept == [(1, 2, 4), (2, 1, 2)]


def test_no_rows_give_no_segments() -> None:
    assert list(segments([])) == []
    assert list(segments(batches([], [0]))) == []
    assert list(merged([])) == []


def test_a_periodic_flow_needs_a_burst_of_one_from_its_rate_on() -> None:
    found = segment_of(START + np.arange(100) * (SECOND // 10), 0)

    bursts = [math.ceil(best - 1e-6) for best in found.best]
    ten = int(np.argmin(np.abs(RATES - 10.0)))
    assert bursts[ten:] == [1] * (len(RATES) - ten)
    assert bursts[ten - 1] > 1
    assert bursts[0] == 100
