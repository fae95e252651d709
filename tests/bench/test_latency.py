from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.bench.latency import Latency, percentile, summarize

samples = st.lists(st.integers(0, 10**12), min_size=1, max_size=300)


@given(samples, st.integers(0, 1000))
def test_percentile_is_the_least_sample_that_enough_do_not_exceed(values: list[int], per_mille: int) -> None:
    found = percentile(sorted(values), per_mille / 10)

    enough = [
        value for value in values if sum(each <= value for each in values) * 1000 >= per_mille * len(values)
    ]
    assert found == min(enough)


def test_percentiles_of_one_to_a_thousand_are_their_ranks() -> None:
    assert summarize(range(1000, 0, -1)) == Latency(1000, 1, 500, 900, 990, 999, 1000)


def test_one_sample_is_every_percentile() -> None:
    assert summarize([7]) == Latency(1, 7, 7, 7, 7, 7, 7)


def test_no_samples_have_no_shape() -> None:
    assert summarize([]) is None


@pytest.mark.parametrize(
    ("values", "percent", "message"),
    [([], 50, "no samples to take a percentile of"), ([1], 101, "percentile 101 is out of range")],
)
def test_percentile_refuses_what_it_cannot_answer(values: list[int], percent: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        percentile(values, percent)
