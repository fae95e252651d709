"""EBPC against values worked out by hand: Φ(1) = 0.841344746, Φ(-2) = 0.022750132."""

from __future__ import annotations

import pytest

from timebound.core.link.strategy.audience import Term
from timebound.core.link.strategy.base import WINDOWED
from timebound.core.link.strategy.ebpc import KIND, MIX_DEFAULT, BenefitAndCost

from .published import SECOND, entry_of, published_link


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        (0.0, 2.455_783_842),  # PC alone: 3·(Φ(1) - Φ(-2))
        (0.25, 2.472_846_441),
        (1.0, 2.524_034_238),  # EB alone: 3·Φ(1)
    ],
)
def test_ebpc_weighs_benefit_and_cost(mix: float, expected: float) -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0))

    assert BenefitAndCost(mix).value(entry, 6 * SECOND, link) == pytest.approx(expected, abs=1e-7)


def test_the_benefit_of_a_sure_message_counts_by_its_part() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0))

    assert BenefitAndCost(0.25).value(entry, 0, link) == 0.75


def test_an_outlook_counts_the_same_part_of_the_benefit() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0))

    until, bound, is_exact = BenefitAndCost(0.25).outlook(entry, 0, 0.5, link)

    # Above the level already, and still until the deadline comes into doubt.
    assert bound == pytest.approx(0.75, abs=1e-9)
    assert is_exact
    assert 0 < until < 30 * SECOND


@pytest.mark.parametrize("mix", [-0.1, 1.5, float("nan")])
def test_a_mix_that_is_not_a_part_is_refused(mix: float) -> None:
    with pytest.raises(ValueError, match=f"mix={mix} is not between 0 and 1"):
        BenefitAndCost(mix)


def test_kind_makes_an_ebpc_with_the_mix_given() -> None:
    made = KIND.make(0.75)

    assert isinstance(made, BenefitAndCost)
    assert (KIND.name, KIND.order, KIND.mix_default, MIX_DEFAULT) == ("ebpc", 60, 0.5, 0.5)
    assert (made.name, made.kind, made.weighs_worth) == ("ebpc", WINDOWED, True)
    assert (made.mix, made.shape.part, made.shape.has_penalty) == (0.75, 0.75, False)
