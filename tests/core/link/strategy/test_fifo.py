"""FIFO gives all messages one value."""

from __future__ import annotations

from timebound.core.link.strategy.audience import Term
from timebound.core.link.strategy.base import STATIC
from timebound.core.link.strategy.fifo import KIND, Fifo

from .published import SECOND, entry_of, published_link


def test_all_messages_are_alike_at_any_time() -> None:
    link = published_link()
    plain, urgent = entry_of(link, Term()), entry_of(link, Term(4 * SECOND, 9.0, 9.0), priority=9)

    values = [Fifo().value(entry, now_ns, link) for entry in (plain, urgent) for now_ns in (0, 9 * SECOND)]

    assert values == [0.0, 0.0, 0.0, 0.0]


def test_what_leaves_a_full_queue_is_not_chosen_by_price() -> None:
    link = published_link()

    assert Fifo().worth(entry_of(link, Term(0, 9.0)), 0, link) == 0.0


def test_kind_makes_a_fifo() -> None:
    made = KIND.make(-1.0)

    assert isinstance(made, Fifo)
    assert (KIND.name, KIND.order, KIND.takes_mix, KIND.uses_priority) == ("fifo", 10, False, False)
    assert (made.name, made.kind, made.weighs_worth) == ("fifo", STATIC, False)
