"""RL against lifetimes worked out by hand."""

from __future__ import annotations

import math

from timebound.core.link.strategy.audience import LinkModel, Term
from timebound.core.link.strategy.base import STATIC
from timebound.core.link.strategy.remaining_lifetime import KIND, RemainingLifetime
from timebound.core.values.delay import LinkDelay

from .published import SECOND, entry_of, published_link


def test_lifetime_is_averaged_over_subscriptions() -> None:
    link = published_link()
    # (10 + 10 + 40)/3 = 20 s; merged terms still count as two subscriptions.
    averaged = entry_of(link, Term(10 * SECOND), Term(10 * SECOND), Term(40 * SECOND))

    assert RemainingLifetime().value(averaged, 0, link) == -20.0 * SECOND
    assert RemainingLifetime().value(entry_of(link, Term(19 * SECOND)), 0, link) == -19.0 * SECOND


def test_the_smaller_of_timeout_and_deadline_counts() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND), Term(0), timeout_ns=20 * SECOND)

    assert RemainingLifetime().value(entry, 0, link) == -15.0 * SECOND


def test_what_some_subscription_takes_for_ever_comes_last() -> None:
    link = published_link()

    value = RemainingLifetime().value(entry_of(link, Term(10 * SECOND), Term(0)), 0, link)

    assert value == -math.inf


def test_the_end_of_a_lifetime_counts_from_the_origin_of_the_queue_and_stands_still() -> None:
    link = LinkModel(LinkDelay(0.060, 0.0), 0.0005, 0, 100 * SECOND)
    entry = entry_of(link, Term(10 * SECOND), published_ns=103 * SECOND)

    assert RemainingLifetime().value(entry, 103 * SECOND, link) == -13.0 * SECOND
    assert RemainingLifetime().value(entry, 110 * SECOND, link) == -13.0 * SECOND


def test_kind_makes_a_remaining_lifetime() -> None:
    made = KIND.make(-1.0)

    assert isinstance(made, RemainingLifetime)
    assert (KIND.name, KIND.order, KIND.takes_mix, KIND.uses_priority) == (
        "remaining-lifetime",
        30,
        False,
        False,
    )
    assert (made.name, made.kind, made.weighs_worth) == ("remaining-lifetime", STATIC, False)
