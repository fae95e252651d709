"""Readings: which broker each one makes."""

from __future__ import annotations

from functools import partial

import pytest

from timebound.core.link.strategy.fifo import Fifo
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGY_NAMES
from timebound.core.link.strategy.remaining_lifetime import RemainingLifetime
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.options import LATE, TREE
from timebound.sim.papers.brokers.forwarding import PaperForwarder
from timebound.sim.papers.brokers.lifetime import AliveLifetime
from timebound.sim.papers.brokers.reading import ReadBroker, Reading, read_broker

EPSILON = 0.04


def read(name: str, **words: str) -> ReadBroker:
    return read_broker(Reading(**words), name, -1.0, EPSILON)


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_literal_reading_is_the_broker_itself(name: str) -> None:
    broker = read(name)

    assert broker.strategy.name == name
    assert (broker.routing, broker.epsilon) == (TREE, EPSILON)
    assert broker.make_forwarder is Forwarder


@pytest.mark.parametrize(
    ("routing", "kind", "forwards_duplicates"),
    [("match", TREE, False), ("match-all", TREE, True)],
)
def test_brokers_that_match_again_have_forwarders_of_their_own(
    routing: str, kind: int, forwards_duplicates: bool
) -> None:
    broker = read("eb", routing=routing)

    make = broker.make_forwarder
    assert broker.routing == kind
    assert isinstance(make, partial)
    assert make.func is PaperForwarder
    assert make.keywords == {
        "matches_again": True,
        "forwards_duplicates": forwards_duplicates,
        "order": None,
    }


def test_late_binding_is_the_broker_itself() -> None:
    broker = read("eb", routing="late")

    assert broker.routing == LATE
    assert broker.make_forwarder is Forwarder


def test_without_drops_queues_keep_the_order_of_the_strategy() -> None:
    broker = read("fifo", drops="none")

    make = broker.make_forwarder
    assert isinstance(broker.strategy, Fixed)
    assert isinstance(make, partial)
    assert isinstance(make.keywords["order"], Fifo)
    assert not make.keywords["matches_again"]


def test_with_expired_only_epsilon_is_next_to_nothing() -> None:
    broker = read("fifo", drops="expired")

    assert isinstance(broker.strategy, Fifo)
    assert 0.0 < broker.epsilon < 1e-100


@pytest.mark.parametrize("drops", ["expired", "none"])
def test_strategies_that_know_probabilities_drop_what_is_hopeless(drops: str) -> None:
    broker = read(DEFAULT_STRATEGY, drops=drops)

    assert broker.strategy.name == DEFAULT_STRATEGY
    assert broker.epsilon == EPSILON
    assert broker.make_forwarder is Forwarder


def test_lifetimes_of_those_alive_concern_one_strategy_alone() -> None:
    assert isinstance(read("remaining-lifetime", lifetime="alive").strategy, AliveLifetime)
    assert isinstance(read("remaining-lifetime").strategy, RemainingLifetime)
    assert isinstance(read("fifo", lifetime="alive").strategy, Fifo)


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="strategy 'best' is unknown"):
        read("best")
