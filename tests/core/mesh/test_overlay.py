"""Link state, path trees and downhill next_hops, against all paths tried one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.mesh.doubles import path_to

from timebound.core.mesh.overlay import NEXT_HOPS_MAX, LinkState
from timebound.core.values.delay import LinkDelay

NAMES = ("a", "b", "c", "d", "e", "f")


def link_state(links: dict[tuple[str, str], float]) -> LinkState:
    state = LinkState()
    for (source, target), mean in links.items():
        state.set_link(source, target, LinkDelay(mean, mean / 2))
    return state


def shortest(links: dict[tuple[str, str], float], source: str, target: str) -> int | None:
    """The smallest Σμ in picoseconds over all simple paths, by trying them all."""
    found: list[int] = []
    pending = [([source], 0)]
    while pending:
        path, total = pending.pop()
        if path[-1] == target:
            found.append(total)
            continue
        for (one, other), mean in links.items():
            if one == path[-1] and other not in path:
                pending.append(([*path, other], total + round(mean * 10**12)))
    return min(found) if found else None


random_links = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1]),
    st.sampled_from((0.05, 0.06, 0.07, 0.1)),
    min_size=1,
    max_size=14,
)


def test_tree_takes_the_path_of_smallest_mean() -> None:
    state = link_state({("a", "b"): 0.05, ("b", "c"): 0.05, ("a", "c"): 0.2})

    assert path_to(state.tree("a"), "c") == ["a", "b", "c"]


def test_equal_means_prefer_fewer_brokers_then_the_smaller_name() -> None:
    direct = link_state({("a", "b"): 0.05, ("b", "d"): 0.05, ("a", "d"): 0.1})
    named = link_state({("a", "c"): 0.05, ("c", "d"): 0.05, ("a", "b"): 0.05, ("b", "d"): 0.05})

    assert path_to(direct.tree("a"), "d") == ["a", "d"]
    assert path_to(named.tree("a"), "d") == ["a", "b", "d"]


def test_ways_add_up_what_lies_beyond_the_first_link() -> None:
    state = link_state({("a", "b"): 0.05, ("b", "c"): 0.06, ("c", "d"): 0.07})

    hop = state.tree("a").next_hops_from("a")["d"]

    assert hop.neighbour == "b"
    assert hop.path.brokers == 3
    assert hop.path.mean_s_per_kb == pytest.approx(0.13)
    assert hop.path.variance == pytest.approx(0.065)


def test_a_link_to_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="leads to itself"):
        LinkState().set_link("a", "a", LinkDelay(1.0, 0.0))


def test_removing_a_link_changes_the_paths() -> None:
    state = link_state({("a", "b"): 0.05, ("b", "c"): 0.05, ("a", "c"): 0.2})
    before = state.version

    state.remove_link("a", "b")

    assert state.version > before
    assert path_to(state.tree("a"), "c") == ["a", "c"]
    assert "b" not in state.tree("a").parents


def test_downhill_offers_every_nearer_neighbour_best_first() -> None:
    state = link_state(
        {("a", "b"): 0.05, ("a", "c"): 0.1, ("b", "d"): 0.05, ("c", "d"): 0.05, ("a", "e"): 0.01}
    )

    assert [hop.neighbour for hop in state.downhill("a")["d"]] == ["b", "c"]


def test_a_broker_without_links_has_no_way_anywhere() -> None:
    links = LinkState()
    assert links.downhill("alone") == {}

    links.set_link("b", "c", LinkDelay(0.1, 0.0))

    assert links.downhill("alone") == {}
    assert links.tree("alone").parents == {}


def test_ways_are_limited() -> None:
    links = {("a", f"n{number}"): 0.05 for number in range(NEXT_HOPS_MAX + 3)}
    links |= {(f"n{number}", "z"): 0.05 for number in range(NEXT_HOPS_MAX + 3)}

    assert len(link_state(links).downhill("a")["z"]) == NEXT_HOPS_MAX


@given(random_links)
def test_trees_hold_the_shortest_paths(links: dict[tuple[str, str], float]) -> None:
    state = link_state(links)

    for origin in state.brokers():
        tree = state.tree(origin)
        for broker in state.brokers():
            best = shortest(links, origin, broker)
            if broker == origin or best is None:
                assert broker not in tree.parents
                continue
            path = path_to(tree, broker)
            total = sum(round(links[pair] * 10**12) for pair in pairwise(path))
            assert total == best


@given(random_links)
def test_going_only_downhill_always_arrives(links: dict[tuple[str, str], float]) -> None:
    state = link_state(links)

    for start in state.brokers():
        for destination in state.downhill(start):
            pending = [(start, 0)]
            while pending:
                broker, steps = pending.pop()
                assert steps <= len(NAMES), "a message goes in circles"
                if broker == destination:
                    continue
                next_hops = state.downhill(broker)[destination]
                assert next_hops, "a message is stuck"
                pending += [(hop.neighbour, steps + 1) for hop in next_hops]
