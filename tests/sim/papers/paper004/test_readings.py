"""Readings of paper 004: every one changes something, and a wrong one is named."""

from __future__ import annotations

import pytest

from timebound.sim.papers.paper004.readings import ALTERNATIVES, GRAPHS, LITERAL, Assumptions, assumptions


def test_the_literal_reading_is_the_first_answer_to_everything() -> None:
    assert assumptions(LITERAL) == Assumptions()


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_every_name_stands_for_another_answer(name: str) -> None:
    assert assumptions(name) != Assumptions()


def test_names_are_joined_and_unknown_ones_named() -> None:
    joined = assumptions("offered+dht-base2+literal")
    assert (joined.end, joined.dht) == ("offered", "base2")
    with pytest.raises(ValueError, match="'colour' is unknown; choose from literal, graph-"):
        assumptions("offered+colour")


@pytest.mark.parametrize("shape", GRAPHS.values())
def test_every_graph_has_252_brokers(shape: tuple[int, int, int, int]) -> None:
    domains, transit, stubs, size = shape
    assert domains * transit * (1 + stubs * size) == 252
