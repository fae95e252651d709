"""MTEP against values worked out by hand: Φ(1) = 0.841344746, Φ(-2) = 0.022750132."""

from __future__ import annotations

import pytest

from timebound.core.link.strategy.audience import Term
from timebound.core.link.strategy.base import WINDOWED
from timebound.core.link.strategy.mtep import KIND, MIX_DEFAULT, TotalEarning

from .published import SECOND, entry_of, published_link


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        (0.0, 2.748_958_802),  # 3·Φ(1) - 3·Φ(-2) + 0.3·(1 - Φ(-2))
        (0.4, 2.658_988_977),
        (1.0, 2.524_034_238),  # 3·Φ(1)
    ],
)
def test_mtep_weighs_earning_against_postponing_and_penalty(mix: float, expected: float) -> None:
    link = published_link(epsilon=0.02)
    entry = entry_of(link, Term(10 * SECOND, 3.0, 0.3))

    assert TotalEarning(mix).value(entry, 6 * SECOND, link) == pytest.approx(expected, abs=1e-7)


def test_sent_second_a_subscription_counts_only_from_epsilon_on() -> None:
    # Sent second its success is Φ(-2) = 2.3 %, below ε = 4 %: neither EE' nor EP' counts it.
    link = published_link(epsilon=0.04)
    entry = entry_of(link, Term(10 * SECOND, 3.0, 0.3))

    assert TotalEarning(0.4).value(entry, 6 * SECOND, link) == pytest.approx(2.524_034_238, abs=1e-7)


def test_sent_now_a_subscription_counts_only_from_epsilon_on() -> None:
    # At 9 s z = -2 and success 2.3 %.
    link = published_link(epsilon=0.04)
    entry = entry_of(link, Term(10 * SECOND, 3.0, 0.3))

    assert TotalEarning(1.0).value(entry, 9 * SECOND, link) == 0.0


def test_an_outlook_counts_penalties() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0, 2.0))

    _, bound, _ = TotalEarning(0.0).outlook(entry, 0, 5.1, link)

    assert 5.0 <= bound <= 5.1


@pytest.mark.parametrize("mix", [-0.5, 1.1, float("nan")])
def test_a_mix_that_is_not_a_part_is_refused(mix: float) -> None:
    with pytest.raises(ValueError, match=f"mix={mix} is not between 0 and 1"):
        TotalEarning(mix)


def test_kind_makes_an_mtep_with_the_mix_given() -> None:
    made = KIND.make(0.75)

    assert isinstance(made, TotalEarning)
    assert (KIND.name, KIND.order, KIND.mix_default, MIX_DEFAULT) == ("mtep", 70, 0.4, 0.4)
    assert (made.name, made.kind, made.weighs_worth) == ("mtep", WINDOWED, True)
    assert (made.mix, made.shape.part, made.shape.has_penalty) == (0.75, 0.75, True)
