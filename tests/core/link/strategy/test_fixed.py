"""FIX takes the priority of a message for its value."""

from __future__ import annotations

from timebound.core.link.strategy.audience import Term
from timebound.core.link.strategy.base import STATIC
from timebound.core.link.strategy.fixed import KIND, Fixed

from .published import SECOND, entry_of, published_link


def test_the_value_is_the_priority_at_any_time() -> None:
    link = published_link()
    low, high = entry_of(link, Term(4 * SECOND, 9.0)), entry_of(link, Term(), priority=7)

    values = [Fixed().value(entry, now_ns, link) for entry in (low, high) for now_ns in (0, 9 * SECOND)]

    assert values == [0.0, 0.0, 7.0, 7.0]


def test_the_lowest_priority_leaves_a_full_queue() -> None:
    link = published_link()

    assert Fixed().worth(entry_of(link, Term(0, 9.0), priority=2), 0, link) == 2.0


def test_kind_makes_a_fixed_that_uses_priorities() -> None:
    made = KIND.make(-1.0)

    assert isinstance(made, Fixed)
    assert (KIND.name, KIND.order, KIND.takes_mix, KIND.uses_priority) == ("fixed", 20, False, True)
    assert (made.name, made.kind, made.weighs_worth) == ("fixed", STATIC, False)
