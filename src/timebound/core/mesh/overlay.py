"""The overlay as every broker sees it, and the ways through it.

Brokers tell each other the mean μ and variance σ² of their links. From that each works out the
same ways: a path of smallest Σμ, ties broken by fewer brokers, then by name. Sums of means are
integers, so that two brokers which add in a different order still agree. A `PathTree` is the
union of the best ways from one broker: a message that follows it reaches no broker twice.
`downhill` gives every neighbour that is strictly nearer to a destination: whoever goes only
downhill cannot loop either, and has a choice.
"""

from __future__ import annotations

import heapq
from typing import Final

from timebound.core.values.delay import LinkDelay, Path

# Costs count in picoseconds per KB: exact to add, and finer than any measurement.
_PICO: Final = 1_000_000_000_000
# More ways than this to one destination bring nothing, and every message would wait in all of them.
WAYS_MAX: Final = 8

Cost = tuple[int, int]  # Σμ in picoseconds per KB, links


class Way:
    """How to reach a destination: over which neighbour, and the path beyond that neighbour's link."""

    __slots__ = ("neighbour", "path")

    def __init__(self, neighbour: str, path: Path) -> None:
        self.neighbour = neighbour
        self.path = path


class PathTree:
    """The best way from one broker to every broker it can reach."""

    __slots__ = ("_links", "_ways", "origin", "parents")

    def __init__(self, origin: str, parents: dict[str, str], links: dict[str, dict[str, LinkDelay]]) -> None:
        self.origin = origin
        self.parents = parents  # in order of distance; the origin itself has none
        self._links = links
        self._ways: dict[str, dict[str, Way]] = {}

    def ways_from(self, broker: str) -> dict[str, Way]:
        """For every broker beyond this one in the tree, the way that leads there."""
        ways = self._ways.get(broker)
        if ways is None:
            ways = {}
            for destination, parent in self.parents.items():
                if parent == broker:
                    ways[destination] = Way(destination, Path(brokers=1))
                elif parent in ways:
                    before = ways[parent]
                    path = before.path.behind(self._links[parent][destination])
                    ways[destination] = Way(before.neighbour, path)
            self._ways[broker] = ways
        return ways


class LinkState:
    """All links of the overlay, each in its direction, with their delay as last announced."""

    __slots__ = ("_downhill", "_links", "_trees", "version")

    def __init__(self) -> None:
        self._links: dict[str, dict[str, LinkDelay]] = {}
        self._trees: dict[str, PathTree] = {}
        self._downhill: dict[str, dict[str, list[Way]]] = {}
        self.version = 0

    def set_link(self, source: str, target: str, delay: LinkDelay) -> None:
        """Add a link, or change its delay."""
        if source == target:
            raise ValueError(f"link from {source!r} leads to itself")
        if source not in self._links:
            self._links[source] = {}
        if target not in self._links:
            self._links[target] = {}
        self._links[source][target] = delay
        self._forget()

    def remove_link(self, source: str, target: str) -> None:
        """Take a link out; nothing happens if there is none."""
        if source in self._links and target in self._links[source]:
            del self._links[source][target]
            self._forget()

    def brokers(self) -> list[str]:
        return sorted(self._links)

    def neighbours(self, broker: str) -> list[str]:
        """Where links lead from a broker, by name."""
        return sorted(self._links.get(broker, {}))

    def delay(self, source: str, target: str) -> LinkDelay | None:
        return self._links.get(source, {}).get(target)

    def tree(self, origin: str) -> PathTree:
        """The path tree of a broker; kept until a link changes."""
        tree = self._trees.get(origin)
        if tree is None:
            tree = PathTree(origin, self._settle(origin), self._links)
            self._trees[origin] = tree
        return tree

    def downhill(self, broker: str) -> dict[str, list[Way]]:
        """For every broker that can be reached, the neighbours nearer to it, best way first."""
        found = self._downhill.get(broker)
        if found is None:
            found = {}
            own = self._costs(broker)
            for neighbour in self.neighbours(broker):
                self._add_ways(broker, neighbour, own, found)
            order = _Cheapest(self._links[broker])
            for ways in found.values():
                ways.sort(key=order.cost)
                del ways[WAYS_MAX:]
            self._downhill[broker] = found
        return found

    def _add_ways(
        self, broker: str, neighbour: str, own: dict[str, Cost], found: dict[str, list[Way]]
    ) -> None:
        theirs = self._costs(neighbour)
        beyond = self.tree(neighbour).ways_from(neighbour)
        for destination, cost in own.items():
            if destination == broker or destination not in theirs or theirs[destination] >= cost:
                continue
            path = Path(brokers=1)
            if destination != neighbour:
                way = beyond[destination]
                path = way.path.behind(self._links[neighbour][way.neighbour])
            found.setdefault(destination, []).append(Way(neighbour, path))

    def _costs(self, origin: str) -> dict[str, Cost]:
        costs: dict[str, Cost] = {origin: (0, 0)}
        for broker, parent in self.tree(origin).parents.items():
            total, links = costs[parent]
            costs[broker] = (total + _cost(self._links[parent][broker]), links + 1)
        return costs

    def _settle(self, origin: str) -> dict[str, str]:
        """Dijkstra: the parent of every broker that can be reached, nearest first."""
        parents: dict[str, str] = {}
        heap: list[tuple[int, int, str, str]] = [(0, 0, "", origin)]
        while heap:
            total, links, parent, broker = heapq.heappop(heap)
            if broker in parents or (broker == origin and parent):
                continue
            if parent:
                parents[broker] = parent
            for target, delay in self._links.get(broker, {}).items():
                if target not in parents and target != origin:
                    heapq.heappush(heap, (total + _cost(delay), links + 1, broker, target))
        return parents

    def _forget(self) -> None:
        self._trees = {}
        self._downhill = {}
        self.version += 1


class _Cheapest:
    """Orders ways by the whole mean from one broker, then brokers, then name."""

    __slots__ = ("_links",)

    def __init__(self, links: dict[str, LinkDelay]) -> None:
        self._links = links

    def cost(self, way: Way) -> tuple[int, int, str]:
        total = round(way.path.mean_s_per_kb * _PICO) + _cost(self._links[way.neighbour])
        return (total, way.path.brokers, way.neighbour)


def _cost(delay: LinkDelay) -> int:
    return round(delay.mean_s_per_kb * _PICO)
