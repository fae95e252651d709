"""EB against values worked out by hand: Φ(1) = 0.841344746, Φ(2) = 0.977249868."""

from __future__ import annotations

import pytest

from timebound.core.link.strategy.audience import LinkModel, Term
from timebound.core.link.strategy.base import DECAYING
from timebound.core.link.strategy.eb import KIND, ExpectedBenefit
from timebound.core.values.delay import LinkDelay, Path

from .published import MS, SECOND, entry_of, published_link


def test_eb_is_price_times_success() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0), Term(11 * SECOND, 2.0))

    # At age 6 s: slack 4 and 5 s, less 3 s of sending, over 1 s: z = 1 and 2; 3·Φ(1) + 2·Φ(2).
    assert ExpectedBenefit().value(entry, 6 * SECOND, link) == pytest.approx(4.478_533_974, abs=1e-7)


def test_the_clock_counts_from_publication() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0), published_ns=100 * SECOND)

    assert ExpectedBenefit().value(entry, 106 * SECOND, link) == pytest.approx(2.524_034_238, abs=1e-7)


def test_a_sure_message_is_worth_its_price_and_a_lost_one_nothing() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0, 5.0))

    assert ExpectedBenefit().value(entry, 0, link) == 3.0
    assert ExpectedBenefit().value(entry, 60 * SECOND, link) == 0.0


def test_brokers_and_last_mile_take_from_the_slack() -> None:
    link = published_link()
    # 250 brokers at 2 ms and 500 ms: one second less, so z falls from 1 to 0 on the same link.
    entry = entry_of(link, Term(10 * SECOND, 1.0, 0.0, Path(0.0, 0.0, 250, 500 * MS)))

    assert ExpectedBenefit().value(entry, 6 * SECOND, link) == pytest.approx(0.5, abs=1e-7)


def test_path_beyond_the_link_adds_mean_and_variance() -> None:
    link = published_link()
    # 2 ms/KB more is 0.1 s; σ = 25 ms/KB (20² + 15²) is 1.25 s: z = 0.9/1.25, Φ(0.72) = 0.764237502.
    entry = entry_of(link, Term(10 * SECOND, 1.0, 0.0, Path(0.002, 0.015**2)))

    assert ExpectedBenefit().value(entry, 6 * SECOND, link) == pytest.approx(0.764_237_502, abs=1e-7)


def test_link_without_deviation_makes_success_a_step() -> None:
    link = LinkModel(LinkDelay(0.060, 0.0), 0.0005, 0, 0)
    entry = entry_of(link, Term(10 * SECOND, 1.0))

    assert ExpectedBenefit().value(entry, 7 * SECOND - 100, link) == 1.0
    assert ExpectedBenefit().value(entry, 7 * SECOND + 100, link) == 0.0


def test_kind_makes_an_eb_that_never_grows() -> None:
    made = KIND.make(-1.0)

    assert isinstance(made, ExpectedBenefit)
    assert (KIND.name, KIND.order, KIND.takes_mix, KIND.uses_priority) == ("eb", 40, False, False)
    assert (made.name, made.kind, made.weighs_worth, made.knows_levels) == ("eb", DECAYING, True, False)
