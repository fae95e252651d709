"""The sums that strategies share, the order in which a full queue gives up, and what a kind says."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.strategy.audience import LinkModel, Term
from timebound.core.link.strategy.base import (
    ORDER_LAST,
    STATIC,
    WINDOWED,
    LeastWorth,
    StrategyKind,
    benefit,
    benefit_and_cost,
    expected_gain,
    success,
)
from timebound.core.link.strategy.eb import ExpectedBenefit
from timebound.core.link.strategy.fifo import Fifo
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.values.delay import LinkDelay

from . import naive
from .published import MS, SECOND, entry_of, published_link

# Φ by table.
PHI_1 = 0.841_344_746
PHI_MINUS_2 = 0.022_750_132


def test_success_is_the_chance_of_what_is_to_spare() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND))
    [term] = entry.audience.terms

    # Sending takes 3 s ± 1 s: z = 1, 0 and -2.
    assert success(entry, term, 6.0 * SECOND) == pytest.approx(PHI_1, abs=1e-8)
    assert success(entry, term, 7.0 * SECOND) == pytest.approx(0.5, abs=1e-8)
    assert success(entry, term, 9.0 * SECOND) == pytest.approx(PHI_MINUS_2, abs=1e-8)


def test_success_goes_by_the_timeout_where_that_is_less() -> None:
    link = published_link()
    entry = entry_of(link, Term(20 * SECOND), timeout_ns=10 * SECOND)

    assert success(entry, entry.audience.terms[0], 6.0 * SECOND) == pytest.approx(PHI_1, abs=1e-8)


def test_of_jitter_and_the_deviation_by_size_the_larger_counts() -> None:
    # 8 ms/KB ± 1 ms/KB, and ± 10 ms whatever the size.
    link = LinkModel(LinkDelay(0.008, 0.001**2, 0.010), 0.0005, 0, 0)
    # At 82 ms of 100 are 10 ms to spare after 8 ms of sending: one deviation of the jitter.
    small = entry_of(link, Term(100 * MS, 2.0, 1.0), size_kb=1)
    # 20 KB take 160 ± 20 ms: at 20 ms of 200 there are 20 to spare, one deviation of their own.
    large = entry_of(link, Term(200 * MS, 2.0, 1.0), size_kb=20)

    assert success(small, small.audience.terms[0], 82.0 * MS) == pytest.approx(PHI_1, abs=1e-8)
    assert success(large, large.audience.terms[0], 20.0 * MS) == pytest.approx(PHI_1, abs=1e-8)
    assert benefit(small, 82.0 * MS) == pytest.approx(2.0 * PHI_1, abs=1e-7)
    assert expected_gain(small, 82.0 * MS) == pytest.approx(3.0 * PHI_1, abs=1e-7)


def test_without_jitter_a_message_goes_by_its_size_alone() -> None:
    link = LinkModel(LinkDelay(0.008, 0.001**2), 0.0005, 0, 0)
    entry = entry_of(link, Term(100 * MS), size_kb=1)

    assert success(entry, entry.audience.terms[0], 91.0 * MS) == pytest.approx(PHI_1, abs=1e-8)


@given(seed=st.integers(0, 2**32), now_ms=st.integers(0, 2_000), weight=st.sampled_from([0.0, 0.25, 1.0]))
def test_sums_are_those_over_every_single_subscription(seed: int, now_ms: int, weight: float) -> None:
    source = random.Random(seed)
    delay = LinkDelay(0.010, 0.003**2)
    link = LinkModel(delay, 0.04, 2 * MS, 0)
    audience = naive.random_audience(source)
    entry = naive.random_entry(source, [audience], 0)
    entry.published_ns = 0
    entry.fit(link)
    price = gain = price_later = 0.0
    for term in audience.terms:
        chance = naive.success(entry, term, now_ms * MS, delay, 2 * MS, 0.0)
        price += term.price * chance
        gain += (term.price + term.penalty) * chance
        price_later += term.price * naive.success(entry, term, now_ms * MS, delay, 2 * MS, 0.025)
    age = float(now_ms * MS)

    # Each Φ is good to 7e-9.
    assert benefit(entry, age) == pytest.approx(price, abs=1e-6)
    assert expected_gain(entry, age) == pytest.approx(gain, abs=1e-6)
    both = weight * price + (1 - weight) * (price - price_later)
    assert benefit_and_cost(entry, age, age + 25.0 * MS, weight) == pytest.approx(both, abs=1e-6)


def test_worth_is_gain_per_byte_where_worth_is_weighed_and_the_value_elsewhere() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0, 2.0), priority=4)

    assert ExpectedBenefit().worth(entry, 0, link) == pytest.approx(5.0 / 51_200)
    assert Fixed().worth(entry, 0, link) == 4.0


def test_a_value_that_stands_still_is_its_own_bound_for_ever() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0), priority=4)

    assert Fixed().outlook(entry, 0, 0.0, link) == (math.inf, 4.0, True)
    assert ExpectedBenefit().outlook(entry, 0, 0.0, link) == (math.inf, 3.0, False)


def test_least_worth_turns_the_worth_of_another_strategy_round() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0, 2.0), priority=4)

    weighing, other = LeastWorth(ExpectedBenefit()), LeastWorth(Fixed())

    assert weighing.value(entry, 0, link) == pytest.approx(-5.0 / 51_200)
    assert other.value(entry, 0, link) == -4.0
    assert (weighing.kind, other.kind) == (WINDOWED, STATIC)


def test_least_worth_looks_two_messages_ahead_at_what_is_in_doubt() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0))

    # At 1 s and 6 s later z = 0: half of the price is left.
    until, bound, is_exact = LeastWorth(ExpectedBenefit()).outlook(entry, 1 * SECOND, 0.0, link)

    assert until == 7.0 * SECOND
    assert bound == pytest.approx(-1.5 / 51_200)
    assert not is_exact


def test_a_kind_has_no_mix_and_no_place_unless_it_names_them() -> None:
    plain = StrategyKind("newest", "the one that came last", lambda mix: Fifo())
    mixing = StrategyKind("mixed", "some of both", lambda mix: Fifo(), mix_default=0.0, order=5)

    assert (plain.takes_mix, plain.order, plain.uses_priority) == (False, ORDER_LAST, False)
    assert (mixing.takes_mix, mixing.order) == (True, 5)
