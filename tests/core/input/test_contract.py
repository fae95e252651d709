"""Contracts, counter-offers, and the decisions that name them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.input.admission_doubles import MS, contract

from timebound.core.input.bounds import OTHER_TOPICS, OVERLOAD, UNBOUNDED, Bound
from timebound.core.input.contract import (
    CounterOffer,
    accept,
    rate_of,
    refuse,
    refuse_change,
    refuse_full,
    refuse_share,
)


@given(st.integers(1, 99_999), st.integers(0, 4))
def test_a_rate_is_returned_as_it_was_given(number: int, decimals: int) -> None:
    rate = Fraction(number, 10**decimals)

    assert rate_of(int(1_000 * MS / rate)) == pytest.approx(float(rate), rel=1e-9 if rate < 1_000 else 1e-4)
    assert rate_of(1_382_361) == 723.4
    assert rate_of(20 * MS) == 50


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"interval_ns": 0}, "interval 0 ns is not positive"),
        ({"burst": 0}, r"burst 0 is out of range \(1 to 10000\)"),
        ({"weight": 1024}, "weight 1024 is out of range"),
        ({"size": -1}, "must not be negative"),
    ],
)
def test_impossible_contract_is_refused(terms: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        contract("c", "t", **terms)


@pytest.mark.parametrize(("size", "parts"), [(0, 1), (1, 1), (100, 1), (101, 2), (250, 3)])
def test_a_message_takes_a_quantum_for_each_part(size: int, parts: int) -> None:
    assert contract("c", "t", size=size).parts(100) == parts


def test_another_interval_leaves_the_other_terms() -> None:
    asked = contract("c", "t", interval_ns=5, burst=3, size=7, weight=2, delay_ns=9)

    slower = asked.with_interval(11)

    assert (slower.client, slower.topic, slower.interval_ns) == ("c", "t", 11)
    assert (slower.burst, slower.size, slower.weight, slower.delay_ns) == (3, 7, 2, 9)
    assert asked.interval_ns == 5


@pytest.mark.parametrize(
    ("counter_offer", "text"),
    [
        (CounterOffer(1_000_001, 0), "a period of 1.001 ms would fit"),  # rounded up: it must fit
        (CounterOffer(0, 7), "a weight of 7 would fit"),
        (CounterOffer(2 * MS, 7), "a period of 2.000 ms or a weight of 7 would fit"),
        (CounterOffer(0, 0), "no other period or weight would fit"),
        (CounterOffer(0, 0, False), "no other period or weight that fits was found in time"),
    ],
)
def test_a_counter_offer_says_what_would_fit(counter_offer: CounterOffer, text: str) -> None:
    assert counter_offer.text() == text


def test_an_accepted_flow_is_told_its_bound_and_the_scheduler_its_slot() -> None:
    decision = accept(contract("c", "t"), 1_234_567, 5, 2)

    assert decision.accepted
    assert (decision.bound_ns, decision.weight, decision.slot) == (1_234_567, 5, 2)
    assert decision.reason == "flow 't' of client 'c' waits at most 1.235 ms"
    assert accept(None, UNBOUNDED, 1, 0).reason == "background topic planned"


def test_a_refusal_names_the_flow_that_would_wait_too_long_and_the_counter_offer() -> None:
    bound = Bound(7 * MS, 1, OTHER_TOPICS)

    decision = refuse(contract("c", "t"), bound, 5 * MS, counter_offer=CounterOffer(0, 3))

    assert not decision.accepted
    assert (decision.broken_client, decision.broken_topic) == ("c", "t")
    assert (decision.bound_ns, decision.limit_ns, decision.counter_offer.weight) == (7 * MS, 5 * MS, 3)
    assert decision.reason == (
        "flow 't' of client 'c' would wait up to 7.000 ms, longer than its 5.000 ms; a weight of 3 would fit"
    )


def test_a_refusal_says_when_no_queue_is_to_blame() -> None:
    decision = refuse(contract("c", "t"), Bound(7 * MS, 1, OTHER_TOPICS), 5 * MS, outside_ns=6 * MS)

    assert decision.reason.endswith("5.000 ms: reading, writing, stalls alone take 6.000 ms")
    assert (decision.counter_offer.interval_ns, decision.counter_offer.weight) == (0, 0)


def test_a_flow_beyond_its_share_is_told_its_share() -> None:
    bound = Bound(UNBOUNDED, 0, OVERLOAD, 2 * MS)

    decision = refuse(contract("c", "t", interval_ns=MS), bound, 0)

    assert decision.bound_ns == UNBOUNDED
    assert "sends 1000 messages/s, but its share, which must be larger, would be 500" in decision.reason


def test_other_refusals_name_the_limit() -> None:
    asked = contract("c", "t")

    full = refuse_full(asked, "flows_max", 9)
    changing = refuse_change(asked, 4)
    share = refuse_share(asked, 0.25, -0.1, 0.5, CounterOffer(0, 0))

    assert full.reason == "flow 't' of client 'c' exceeds the limit of flows (flows_max=9)"
    assert "cannot raise its topic's weight now: 4 earlier changes" in changing.reason
    assert "needs 25.0% of the service rate, but 0.0% of the 50% reserved for flows is left" in share.reason
    assert (share.broken_client, share.broken_topic) == ("c", "t")
    assert [one.accepted for one in (full, changing, share)] == [False] * 3
