"""Topologies: the papers' layers, trees, rings, transit-stub and link lists."""

from __future__ import annotations

from random import Random

import pytest

from timebound.core.mesh.overlay import LinkState
from timebound.core.values.delay import LinkDelay
from timebound.sim.mesh.topology import Topology, from_links, layered, ring, transit_stub, tree


def reaches_all(topology: Topology, origin: str) -> bool:
    state = LinkState()
    for source, target in topology.links:
        state.set_link(source, target, LinkDelay(0.1, 0.0))
    return len(state.tree(origin).parents) == len(topology.brokers) - 1


def test_the_layers_of_the_first_mesh_have_64_links() -> None:
    topology = layered([4, 4, 8, 16], 2, Random(1))

    assert len(topology.brokers) == 32
    assert len(topology.links) == 16 + 16 + 32
    assert len(topology.at_layer(0)) == 4
    assert len(topology.at_layer(-1)) == 16


def test_every_later_broker_has_two_different_parents_one_layer_above() -> None:
    topology = layered([4, 4, 8, 16, 32, 64], 2, Random(7))
    layer = dict(zip(topology.brokers, topology.layers, strict=True))

    assert len(topology.brokers) == 128
    for broker in topology.brokers:
        parents = [source for source, target in topology.links if target == broker]
        assert len(set(parents)) == {0: 0, 1: 4}.get(layer[broker], 2)
        assert all(layer[parent] == layer[broker] - 1 for parent in parents)


def test_layered_meshes_differ_by_seed_only() -> None:
    assert layered([4, 4, 8], 2, Random(1)) == layered([4, 4, 8], 2, Random(1))
    assert layered([4, 4, 8], 2, Random(1)) != layered([4, 4, 8], 2, Random(2))


def test_a_tree_is_acyclic_and_reaches_all_both_ways() -> None:
    topology = tree(7, 2)

    assert len(topology.links) == 2 * 6
    assert topology.layers == (0, 1, 1, 2, 2, 2, 2)
    assert reaches_all(topology, "b7")


def test_a_ring_has_two_links_per_broker() -> None:
    assert len(ring(5).links) == 10
    assert len(ring(2).links) == 2
    assert reaches_all(ring(5), "b3")


def test_transit_stub_joins_every_domain_to_the_core() -> None:
    topology = transit_stub(4, 3, 5, Random(3))

    assert len(topology.brokers) == 4 + 4 * 3 * 5
    assert topology.layers.count(0) == 4
    assert reaches_all(topology, "b60")


def test_links_from_a_list_count_layers_from_where_none_leads() -> None:
    topology = from_links([("x", "y"), ("y", "z")], both_ways=False)

    assert topology.brokers == ("x", "y", "z")
    assert topology.layers == (0, 1, 2)
    assert from_links([("x", "y")], both_ways=True).layers == (0, 0)


def test_too_many_brokers_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 to"):
        ring(1_000_000)
