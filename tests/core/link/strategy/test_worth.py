"""The worth of a message against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from timebound.core.link.strategy.audience import LinkModel, Term
from timebound.core.link.strategy.base import DECAYING
from timebound.core.link.strategy.entry import Entry, level_of
from timebound.core.link.strategy.worth import KIND, LOOKAHEAD, Worth
from timebound.core.values.delay import LinkDelay

from .published import SECOND, entry_of, published_link


def test_value_is_the_logarithm_of_gain_per_byte_less_the_start_in_lookaheads() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0, 2.0))

    # ln(5 / 51200) = -9.234056899; it has to start at 10 - 3 = 7 s, and K is 2·3 s: 7/6 = 1.166666667.
    assert Worth(lookahead=2.0).value(entry, 0, link) == pytest.approx(-10.400_723_565, abs=1e-8)


def test_the_clock_counts_from_the_origin_of_the_queue() -> None:
    link = LinkModel(LinkDelay(0.060, 0.020**2), 0.0005, 0, 100 * SECOND)
    link.first_ns = 3.0 * SECOND
    entry = entry_of(link, Term(10 * SECOND, 5.0), published_ns=103 * SECOND)

    # As above, and published three seconds, half a K, after the origin.
    assert Worth(lookahead=2.0).value(entry, 103 * SECOND, link) == pytest.approx(-10.900_723_565, abs=1e-8)


def test_worth_is_stake_per_byte_discounted_by_the_time_left() -> None:
    link = published_link()
    strategy = Worth(lookahead=1.0)
    urgent = entry_of(link, Term(10 * SECOND, 1.0))
    patient = entry_of(link, Term(16 * SECOND, 1.0))
    small = entry_of(link, Term(10 * SECOND, 1.0), size_kb=25)

    def at(entry: Entry, now_ns: int) -> float:
        return strategy.value(entry, now_ns, link)

    # Both certain: six seconds more are two times K = 3 s.
    assert at(urgent, 0) - at(patient, 0) == pytest.approx(2.0)
    # Half the size is twice the worth, but it may also start 1.5 s later.
    assert at(small, 0) - at(urgent, 0) == pytest.approx(0.693147 - 0.5, abs=1e-6)
    # Later both keep their places: what is stored never grows, here it stays.
    assert at(urgent, SECOND) == at(urgent, 0)
    # At the last moment half of the gain is left.
    assert at(urgent, 7 * SECOND) - at(urgent, 0) == pytest.approx(-0.693147, abs=1e-6)


def test_worth_counts_a_penalty_like_a_price() -> None:
    link = published_link()
    strategy = Worth()
    priced = entry_of(link, Term(10 * SECOND, 3.0, 0.0))
    penalised = entry_of(link, Term(10 * SECOND, 1.0, 2.0))

    assert strategy.value(priced, 0, link) == strategy.value(penalised, 0, link)


def test_worth_is_urgent_by_the_first_noticeable_loss() -> None:
    link = published_link()
    strategy = Worth(lookahead=1.0)
    # Losing 5 of 100 at 10 s is not noticed, losing 50 of 100 is.
    minor = entry_of(link, Term(10 * SECOND, 5.0), Term(40 * SECOND, 95.0))
    major = entry_of(link, Term(10 * SECOND, 50.0), Term(40 * SECOND, 50.0))

    assert strategy.value(major, 0, link) - strategy.value(minor, 0, link) == pytest.approx(10.0)


def test_worth_gives_messages_without_limit_their_patience() -> None:
    link = published_link()
    strategy = Worth(lookahead=1.0, patience_ns=7 * SECOND)
    # The timed one has to start at 10 - 3 = 7 s as well.
    assert strategy.value(entry_of(link, Term()), 0, link) == pytest.approx(
        strategy.value(entry_of(link, Term(10 * SECOND)), 0, link)
    )


def test_worth_does_not_grow_when_a_minor_loss_leaves_only_the_patient() -> None:
    # Seen once: with the first term gone the second is no longer noticed, and patience is shorter.
    link = published_link()
    strategy = Worth(lookahead=1.0, patience_ns=7 * SECOND)
    entry = entry_of(link, Term(5 * SECOND, 5.0), Term(30 * SECOND, 6.0), Term(0, 95.0))

    values = [strategy.value(entry, second * SECOND, link) for second in range(40)]

    assert values == sorted(values, reverse=True)


def test_worth_of_what_is_lost_is_least() -> None:
    link = published_link()

    assert Worth().value(entry_of(link, Term(SECOND)), 60 * SECOND, link) == -math.inf


def test_a_link_that_takes_no_time_looks_a_microsecond_ahead() -> None:
    link = LinkModel(LinkDelay(0.0, 0.0), 0.0005, 0, 0)
    near, far = entry_of(link, Term(10_000)), entry_of(link, Term(13_000))

    assert Worth().value(near, 0, link) - Worth().value(far, 0, link) == pytest.approx(3.0)


def test_on_a_congested_link_the_level_of_worth_comes_before_time() -> None:
    link = published_link()
    cheap, dear = entry_of(link, Term(4 * SECOND, 1.0)), entry_of(link, Term(3_600 * SECOND, 8.0))
    for entry in (cheap, dear):
        entry.level = level_of(entry)
    strategy = Worth(lookahead=1.0)
    assert strategy.value(cheap, 0, link) > strategy.value(dear, 0, link)

    link.is_congested = True

    # Eight times as much is three octaves, six levels.
    assert dear.level - cheap.level == 6
    assert strategy.value(dear, 0, link) > strategy.value(cheap, 0, link)


@pytest.mark.parametrize("lookahead", [0.0, -1.0, math.inf, math.nan])
def test_a_lookahead_that_is_not_positive_is_refused(lookahead: float) -> None:
    with pytest.raises(ValueError, match=f"lookahead={lookahead} is not a positive number"):
        Worth(lookahead)


def test_a_negative_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="patience_ns=-1 is negative"):
        Worth(patience_ns=-1)


def test_kind_makes_a_worth_that_knows_levels() -> None:
    made = KIND.make(-1.0)

    assert isinstance(made, Worth)
    assert (KIND.name, KIND.order, KIND.takes_mix, KIND.uses_priority) == ("worth", 80, False, False)
    assert (made.name, made.kind, made.weighs_worth, made.knows_levels) == ("worth", DECAYING, True, True)
    assert (made.lookahead, made.patience, made.loss) == (LOOKAHEAD, 1e9, 0.1)
