"""The entry of largest value, against valuing every entry at every choice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.base import LeastWorth, Strategy
from timebound.core.link.strategy.eb import ExpectedBenefit
from timebound.core.link.strategy.ebpc import BenefitAndCost
from timebound.core.link.strategy.entry import Entry, HeapNode
from timebound.core.link.strategy.fifo import Fifo
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.link.strategy.mtep import TotalEarning
from timebound.core.link.strategy.pc import PostponingCost
from timebound.core.link.strategy.ranking import Ranking
from timebound.core.link.strategy.remaining_lifetime import RemainingLifetime
from timebound.core.values.delay import LinkDelay

from .naive import MS, SECOND, random_audience, random_entry

# Of every kind; values of these are exact, those of `worth` only nearly.
STRATEGIES: list[Strategy] = [
    Fifo(),
    Fixed(),
    RemainingLifetime(),
    ExpectedBenefit(),
    PostponingCost(),
    BenefitAndCost(),
    TotalEarning(),
    LeastWorth(ExpectedBenefit()),
    LeastWorth(Fixed()),
]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)


def link_of() -> LinkModel:
    link = LinkModel(LinkDelay(0.010, 0.003**2), 0.01, 0, 0)
    link.first_ns = 20.0 * MS
    return link


def scan(ranking: Ranking, nodes: list[HeapNode], now_ns: int) -> HeapNode | None:
    """The node of largest value, of equals that of the smallest tie-break."""
    strategy, link = ranking.strategy, ranking.link
    return min(nodes, key=lambda node: (-strategy.value(node.entry, now_ns, link), node.tie), default=None)


def next_entry(source: random.Random, link: LinkModel, audiences: list[Audience], now_ns: int) -> Entry:
    entry = random_entry(source, audiences, now_ns)
    entry.fit(link)
    return entry


@every_strategy
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 100),
    pace_ms=st.sampled_from([0, 1, 20, 400]),
    newest_first=st.booleans(),
)
def test_best_is_that_of_a_scan(
    strategy: Strategy, seed: int, steps: int, pace_ms: int, newest_first: bool
) -> None:
    source = random.Random(seed)
    link = link_of()
    ranking = Ranking(strategy, link, newest_first)
    audiences = [random_audience(source) for _ in range(4)]
    nodes: list[HeapNode] = []
    now_ns = 0
    for sequence in range(steps):
        now_ns += source.randint(0, pace_ms * MS)
        entry = next_entry(source, link, audiences, now_ns)
        entry.sequence = sequence
        nodes.append(ranking.insert(entry, now_ns))
        if source.random() < 0.3:
            ranking.remove(nodes.pop(source.randrange(len(nodes))))

        best = ranking.best(now_ns, None)

        assert best is scan(ranking, nodes, now_ns)
        if best is not None:
            assert best.value == strategy.value(best.entry, now_ns, link)
        assert len(ranking) == len(nodes)
        assert {id(node) for node in ranking.nodes()} == {id(node) for node in nodes}
        ranking._check()


@every_strategy
def test_of_several_rankings_the_best_of_all_is_found_by_passing_it_on(strategy: Strategy) -> None:
    source = random.Random(5)
    link = link_of()
    rankings = [Ranking(strategy, link) for _ in range(3)]
    audiences = [random_audience(source) for _ in range(4)]
    nodes: list[HeapNode] = []
    for sequence in range(60):
        entry = next_entry(source, link, audiences, 0)
        entry.sequence = sequence
        nodes.append(rankings[source.randrange(3)].insert(entry, 0))

    for now_ns in range(0, 2 * SECOND, 37 * MS):
        best: HeapNode | None = None
        for ranking in rankings:
            best = ranking.best(now_ns, best)
        assert best is scan(rankings[0], nodes, now_ns)


@every_strategy
def test_rebuilding_keeps_every_entry_and_follows_the_new_order(strategy: Strategy) -> None:
    source = random.Random(6)
    link = link_of()
    ranking = Ranking(Fifo(), link)
    audiences = [random_audience(source) for _ in range(4)]
    nodes: list[HeapNode] = []
    for sequence in range(40):
        entry = next_entry(source, link, audiences, 0)
        entry.sequence = sequence
        nodes.append(ranking.insert(entry, 0))
    assert ranking.best(0, None) is nodes[0]

    ranking.rebuild(strategy, 10 * MS)

    ranking._check()
    assert ranking.strategy is strategy
    assert ranking.best(10 * MS, None) is scan(ranking, nodes, 10 * MS)
    link.set_delay(LinkDelay(0.040, 0.003**2))
    for node in nodes:
        node.entry.fit(link)
    ranking.rebuild(strategy, 20 * MS)
    ranking._check()
    assert len(ranking) == 40
    assert ranking.best(20 * MS, None) is scan(ranking, nodes, 20 * MS)


def test_equals_go_in_order_of_arrival_or_the_other_way_round() -> None:
    link = link_of()
    audience = Audience([Term(0)])
    oldest_first, newest_first = Ranking(Fifo(), link), Ranking(Fifo(), link, True)
    for ranking in (oldest_first, newest_first):
        for sequence in range(5):
            entry = Entry(sequence, 100, 0, audience)
            entry.sequence = sequence
            entry.fit(link)
            ranking.insert(entry, 0)

    found = [ranking.best(0, None) for ranking in (oldest_first, newest_first)]

    assert [node.entry.item if node else None for node in found] == [0, 4]


def test_nothing_ranked_leaves_the_rival() -> None:
    link = link_of()
    rival = HeapNode(Entry(None, 100, 0, Audience([Term()])), 0.0, 0)

    for strategy in STRATEGIES:
        assert Ranking(strategy, link).best(0, None) is None
        assert Ranking(strategy, link).best(0, rival) is rival


@pytest.mark.parametrize("strategy", [PostponingCost(), TotalEarning()], ids=lambda one: one.name)
def test_a_choice_values_few_of_many(strategy: Strategy) -> None:
    link = link_of()
    ranking = Ranking(strategy, link)
    for sequence in range(1_000):
        entry = Entry(None, 1_024, 0, Audience([Term((1 + sequence) * SECOND)]))
        entry.sequence = sequence
        entry.fit(link)
        ranking.insert(entry, 0)
    ranking.best(0, None)
    valued = ranking.valued

    for step in range(1, 101):
        ranking.best(step * MS, None)

    # All that lies seconds ahead is left alone.
    assert ranking.valued - valued < 100 * 20
