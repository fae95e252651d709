"""PC against values worked out by hand: Φ(1) = 0.841344746, Φ(-2) = 0.022750132."""

from __future__ import annotations

import math

import pytest

from timebound.core.link.strategy.audience import Term
from timebound.core.link.strategy.base import WINDOWED
from timebound.core.link.strategy.pc import KIND, PostponingCost

from .published import SECOND, entry_of, published_link


def test_pc_is_what_being_second_loses() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0))

    # z = 1 sent first, -2 sent second, one message time of 3 s later: 3·(Φ(1) - Φ(-2)).
    assert PostponingCost().value(entry, 6 * SECOND, link) == pytest.approx(2.455_783_842, abs=1e-7)


def test_pc_is_nothing_while_both_are_sure_and_once_both_are_lost() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0))

    assert PostponingCost().value(entry, 0, link) == 0.0
    assert PostponingCost().value(entry, 60 * SECOND, link) == 0.0


def test_pc_does_not_count_penalties() -> None:
    link = published_link()

    free = PostponingCost().value(entry_of(link, Term(10 * SECOND, 3.0)), 6 * SECOND, link)
    penalised = PostponingCost().value(entry_of(link, Term(10 * SECOND, 3.0, 9.0)), 6 * SECOND, link)

    assert free == penalised


def test_an_outlook_above_all_prices_has_no_end() -> None:
    link = published_link()
    entry = entry_of(link, Term(30 * SECOND, 3.0))

    until, bound, _ = PostponingCost().outlook(entry, 0, 3.1, link)

    assert until == math.inf
    assert 3.0 <= bound <= 3.1


def test_kind_makes_a_pc_that_may_grow() -> None:
    made = KIND.make(-1.0)

    assert isinstance(made, PostponingCost)
    assert (KIND.name, KIND.order, KIND.takes_mix, KIND.uses_priority) == ("pc", 50, False, False)
    assert (made.name, made.kind, made.weighs_worth) == ("pc", WINDOWED, True)
    assert (made.shape.part, made.shape.has_penalty) == (0.0, False)
