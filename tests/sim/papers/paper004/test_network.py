"""The network of paper 004: connected, the same for a seed, with classes of latencies and room on links."""

from __future__ import annotations

import pytest

from timebound.sim.papers.paper004.network import (
    DOMAIN,
    DOMAINS,
    SLOTS,
    STUB,
    TO_STUB,
    WIDE,
    LinkLoad,
    make_network,
)
from timebound.sim.papers.paper004.readings import GRAPHS, Assumptions, assumptions

LITERAL = Assumptions()


@pytest.mark.parametrize("kind", ["single", "multi"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_all_brokers_are_joined_both_ways(graph: str, kind: str) -> None:
    network = make_network(kind, Assumptions(graph=graph), 1)
    brokers = network.brokers()

    assert len(brokers) == 252
    assert all(network.map.distance_ns(brokers[0], name) >= 0 for name in brokers)
    assert all(network.kinds[target, source] == kind for (source, target), kind in network.kinds.items())


def test_a_seed_draws_the_same_network_and_extra_links_are_added_to_it() -> None:
    single, again, multi = (make_network(kind, LITERAL, 3) for kind in ("single", "single", "multi"))

    assert single.kinds == again.kinds
    assert single.map.links() == again.map.links()
    assert set(single.kinds) < set(multi.kinds)
    assert 2 * 40 <= len(multi.kinds) - len(single.kinds) <= 2 * 48
    assert make_network("single", LITERAL, 4).kinds != single.kinds


def test_latencies_are_those_of_the_class() -> None:
    means = {DOMAINS: 50.0, DOMAIN: 20.0, TO_STUB: 10.0, STUB: 2.0}
    network = make_network("single", LITERAL, 1)
    for link, kind in network.kinds.items():
        assert 0.5 * means[kind] <= network.map.latency_ns(*link) / 1e6 <= 1.5 * means[kind]

    flat = make_network("single", assumptions("flat-latencies"), 1)
    assert {flat.map.latency_ns(*link) for link in flat.kinds} == {10_000_000}


def test_a_link_takes_eight_and_utilisation_is_the_mean_share() -> None:
    network = make_network("single", LITERAL, 1)
    load = LinkLoad(network, LITERAL)
    link = network.map.links()[0]

    assert load.fits([link] * SLOTS)
    assert not load.fits([link] * (SLOTS + 1))
    load.take([link] * SLOTS)
    assert load.is_full(link)
    assert not load.is_full((link[1], link[0]))
    assert load.utilisation() == pytest.approx(1 / len(network.kinds))
    load.give_back([link])
    assert (load.free(link), load.used(link)) == (1, SLOTS - 1)


def test_directions_share_and_transit_is_wide_where_it_is_read_so() -> None:
    shared = assumptions("shared-directions")
    network = make_network("single", shared, 1)
    load = LinkLoad(network, shared)
    link = network.map.links()[0]
    load.take([link] * SLOTS)
    assert load.is_full((link[1], link[0]))

    wide = assumptions("wide-transit")
    capacities = {network.kinds[link]: network.capacity(link, wide) for link in network.kinds}
    assert capacities == {DOMAINS: SLOTS * WIDE, DOMAIN: SLOTS * WIDE, TO_STUB: SLOTS, STUB: SLOTS}
