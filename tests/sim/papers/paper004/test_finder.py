"""The tree of a flow: it grows by paths, and what nobody needs any more is given back."""

from __future__ import annotations

from timebound.sim.papers.paper004.finder import FlowTree, links_of
from timebound.sim.papers.paper004.network import Network


def line() -> Network:
    network = Network()
    for number, (one, other) in enumerate(("ab", "bc", "cd", "be")):
        network.map.set_link(one, other, number + 1)
    return network


def test_a_tree_grows_and_shrinks_by_its_users() -> None:
    network, tree = line(), FlowTree("a")
    tree.add(["a", "b", "c", "d"], network)
    tree.add(["b", "e"], network)
    tree.add(["c"], network)

    assert tree.latency_ns == {"a": 0, "b": 1, "c": 3, "d": 6, "e": 5}
    assert tree.remove("d") == [("c", "d")]
    assert tree.has("c")
    assert tree.remove("e") == [("b", "e")]
    assert tree.remove("c") == [("b", "c"), ("a", "b")]
    assert tree.latency_ns == {"a": 0}


def test_links_of_a_path() -> None:
    assert links_of(["a", "b", "c"]) == [("a", "b"), ("b", "c")]
    assert links_of(["a"]) == []
