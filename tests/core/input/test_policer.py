"""The GCRA: what conforms to a contract, and what is excess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.input.admission_doubles import contract

from timebound.core.input.policer import LOWER, Gcra


def test_burst_then_one_per_interval() -> None:
    policer = Gcra(contract("c", "t", burst=2, interval_ns=100, size=10))

    times = [0, 0, 0, 99, 100, 200, 300, 300]

    assert [policer.conforms(10, t) for t in times] == [True, True, False, False, True, True, True, False]
    assert policer.excess == 3


def test_message_larger_than_agreed_is_excess() -> None:
    policer = Gcra(contract("c", "t", size=10))

    assert not policer.conforms(11, 0)
    assert policer.conforms(10, 0)


def test_jitter_lets_a_message_come_early() -> None:
    policer = Gcra(contract("c", "t", interval_ns=100), jitter_ns=30)

    assert [policer.conforms(1, t) for t in (0, 69, 70, 170, 240)] == [True, False, True, True, False]


def test_more_jitter_counts_from_then_on() -> None:
    policer = Gcra(contract("c", "t", interval_ns=100, burst=2), jitter_ns=0)

    before = [policer.conforms(1, t) for t in (0, 0, 0)]
    policer.set_jitter(50)

    assert before == [True, True, False]
    assert [policer.conforms(1, t) for t in (49, 50, 50)] == [False, True, False]


@given(st.integers(1, 4), st.lists(st.integers(0, 300), max_size=30))
def test_no_interval_ever_holds_more_than_agreed(burst: int, gaps: list[int]) -> None:
    policer = Gcra(contract("c", "t", burst=burst, interval_ns=100))
    passed = []
    now = 0
    for gap in gaps:
        now += gap
        if policer.conforms(1, now):
            passed.append(now)

    for first, start in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + (passed[last] - start) / 100


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="excess mode 'drop' is unknown; use lower or refuse"):
        Gcra(contract("c", "t"), mode="drop")


@given(
    st.integers(1, 4),
    st.integers(0, 150),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 12)), max_size=30),
)
def test_a_message_is_excess_only_if_its_contract_forbids_it(
    burst: int, jitter_ns: int, messages: list[tuple[int, int]]
) -> None:
    """The leaky bucket, in fractions of messages, is the other form of the same algorithm."""
    policer = Gcra(contract("c", "t", burst=burst, interval_ns=100, size=10), jitter_ns=jitter_ns)
    level = last = now = excess = 0
    for gap, size in messages:
        now += gap
        level = max(0, level - (now - last))
        last = now
        conforms = size <= 10 and level <= (burst - 1) * 100 + jitter_ns
        assert policer.conforms(size, now) == conforms
        if conforms:
            level += 100
        else:
            excess += 1
    assert policer.excess == excess


def test_excess_is_lowered_unless_it_is_to_be_refused() -> None:
    assert Gcra(contract("c", "t")).mode == LOWER
    assert Gcra(contract("c", "t"), mode="refuse").mode == "refuse"
