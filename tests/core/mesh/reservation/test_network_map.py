"""The static map: paths of least latency, with and without links, against all paths there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.mesh.reservation.network_map import Link, NetworkMap

NAMES = "abcdef"
latencies = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda ends: ends[0] != ends[1]),
    st.integers(0, 5),
    min_size=1,
)


def map_of(links: dict[Link, int]) -> NetworkMap:
    found = NetworkMap()
    for (source, target), latency_ns in links.items():
        found.set_link(source, target, latency_ns)
    return found


def all_paths(links: dict[Link, int], source: str, target: str) -> list[list[str]]:
    found = []
    unfinished = [[source]]
    while unfinished:
        path = unfinished.pop()
        if path[-1] == target:
            found.append(path)
            continue
        unfinished += [[*path, end] for start, end in links if start == path[-1] and end not in path]
    return found


def length(links: dict[Link, int], path: list[str]) -> int:
    return sum(links[ends] for ends in zip(path, path[1:], strict=False))  # noqa: RUF007 - of lists


@given(latencies, st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=4))
def test_a_path_is_the_shortest_of_all_that_avoid_what_is_excluded(
    links: dict[Link, int], without: set[Link]
) -> None:
    found = map_of(links)
    left = {ends: latency_ns for ends, latency_ns in links.items() if ends not in without}
    for source in found.brokers():
        for target in found.brokers():
            path = found.path(source, target, frozenset(without))
            paths = all_paths(left, source, target)
            best = min(((length(left, one), len(one)) for one in paths), default=None)
            assert (not path) == (best is None)
            if path:
                assert path in paths
                assert (length(left, path), len(path)) == best


@given(latencies)
def test_a_distance_is_the_length_of_the_path(links: dict[Link, int]) -> None:
    found = map_of(links)
    for source in found.brokers():
        for target in found.brokers():
            path = found.path(source, target)
            assert found.distance_ns(source, target) == (length(links, path) if path else -1)


def test_what_was_removed_is_not_used_any_more() -> None:
    found = map_of({("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 9})
    assert found.distance_ns("a", "c") == 2

    found.remove_link("b", "c")
    found.remove_link("b", "c")

    assert (found.path("a", "c"), found.distance_ns("a", "c")) == (["a", "c"], 9)
    assert found.links() == [("a", "b"), ("a", "c")]
    assert found.neighbours("a") == ["b", "c"]


@pytest.mark.parametrize(("source", "target", "latency_ns"), [("a", "a", 1), ("a", "b", -1)])
def test_a_link_that_cannot_be_is_refused(source: str, target: str, latency_ns: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        NetworkMap().set_link(source, target, latency_ns)
