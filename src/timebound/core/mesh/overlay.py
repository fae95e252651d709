"""The link state of the overlay as every broker sees it, and the paths through it.

Brokers advertise the mean μ and variance σ² of their links, and each computes the same paths from them:
smallest Σμ first, ties broken by fewer brokers, then by name. Sums of means are integers, so brokers that
add in a different order still agree. A `PathTree` is the union of the best paths from one broker: a message
that follows it reaches no broker twice. `downhill` returns every neighbour that is strictly nearer to a
destination: going only downhill cannot loop either, and leaves a choice.
"""

from __future__ import annotations

import heapq
from typing import Final

from timebound.core.values.delay import LinkDelay, Path

# Costs are in picoseconds per KB: sums are exact, and finer than any measurement.
_PICO: Final = 1_000_000_000_000
# More next hops to one destination gain nothing, and every message would wait in all their queues.
NEXT_HOPS_MAX: Final = 8

Cost = tuple[int, int]  # Σμ in picoseconds per KB, links


class NextHop:
    """The neighbour on a path to a destination, and the path beyond the link to that neighbour."""

    __slots__ = ("neighbour", "path")

    def __init__(self, neighbour: str, path: Path) -> None:
        self.neighbour = neighbour
        self.path = path


class PathTree:
    """The best path from one broker to every broker it can reach."""

    __slots__ = ("_links", "_next_hops", "origin", "parents")

    def __init__(self, origin: str, parents: dict[str, str], links: dict[str, dict[str, LinkDelay]]) -> None:
        self.origin = origin
        self.parents = parents  # in order of distance; the origin itself has none
        self._links = links
        self._next_hops: dict[str, dict[str, NextHop]] = {}

    def next_hops_from(self, broker: str) -> dict[str, NextHop]:
        """Return the next hop to every broker beyond this one in the tree."""
        next_hops = self._next_hops.get(broker)
        if next_hops is None:
            next_hops = {}
            for destination, parent in self.parents.items():
                if parent == broker:
                    next_hops[destination] = NextHop(destination, Path(brokers=1))
                elif parent in next_hops:
                    before = next_hops[parent]
                    path = before.path.behind(self._links[parent][destination])
                    next_hops[destination] = NextHop(before.neighbour, path)
            self._next_hops[broker] = next_hops
        return next_hops


class LinkState:
    """All directed links of the overlay, with their delays as last advertised."""

    __slots__ = ("_downhill", "_links", "_trees", "version")

    def __init__(self) -> None:
        self._links: dict[str, dict[str, LinkDelay]] = {}
        self._trees: dict[str, PathTree] = {}
        self._downhill: dict[str, dict[str, list[NextHop]]] = {}
        self.version = 0

    def set_link(self, source: str, target: str, delay: LinkDelay) -> None:
        """Add a link, or change its delay.

        Raises:
            ValueError: the link leads to its own source.
        """
        if source == target:
            raise ValueError(f"link from {source!r} leads to itself")
        if source not in self._links:
            self._links[source] = {}
        if target not in self._links:
            self._links[target] = {}
        self._links[source][target] = delay
        self._forget()

    def remove_link(self, source: str, target: str) -> None:
        """Remove a link, if there is one."""
        if source in self._links and target in self._links[source]:
            del self._links[source][target]
            self._forget()

    def brokers(self) -> list[str]:
        return sorted(self._links)

    def neighbours(self, broker: str) -> list[str]:
        """Return the neighbours of a broker, by name."""
        return sorted(self._links.get(broker, {}))

    def has_link_to(self, broker: str) -> bool:
        """Whether any broker has a link to this one."""
        return any([broker in targets for targets in self._links.values()])

    def delay(self, source: str, target: str) -> LinkDelay | None:
        return self._links.get(source, {}).get(target)

    def tree(self, origin: str) -> PathTree:
        """Return the path tree of a broker; cached until a link changes."""
        tree = self._trees.get(origin)
        if tree is None:
            tree = PathTree(origin, self._settle(origin), self._links)
            self._trees[origin] = tree
        return tree

    def downhill(self, broker: str) -> dict[str, list[NextHop]]:
        """Return the next hops to every reachable broker that are nearer to it, the best first."""
        found = self._downhill.get(broker)
        if found is None:
            found = {}
            own = self._costs(broker)
            for neighbour in self.neighbours(broker):
                self._add_next_hops(broker, neighbour, own, found)
            order = _Cheapest(self._links.get(broker, {}))
            for next_hops in found.values():
                next_hops.sort(key=order.cost)
                del next_hops[NEXT_HOPS_MAX:]
            self._downhill[broker] = found
        return found

    def _add_next_hops(
        self, broker: str, neighbour: str, own: dict[str, Cost], found: dict[str, list[NextHop]]
    ) -> None:
        theirs = self._costs(neighbour)
        beyond = self.tree(neighbour).next_hops_from(neighbour)
        for destination, cost in own.items():
            if destination == broker or destination not in theirs or theirs[destination] >= cost:
                continue
            path = Path(brokers=1)
            if destination != neighbour:
                hop = beyond[destination]
                path = hop.path.behind(self._links[neighbour][hop.neighbour])
            found.setdefault(destination, []).append(NextHop(neighbour, path))

    def _costs(self, origin: str) -> dict[str, Cost]:
        costs: dict[str, Cost] = {origin: (0, 0)}
        for broker, parent in self.tree(origin).parents.items():
            total, links = costs[parent]
            costs[broker] = (total + _cost(self._links[parent][broker]), links + 1)
        return costs

    def _settle(self, origin: str) -> dict[str, str]:
        """Return the parent of every reachable broker, the nearest first (Dijkstra)."""
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
    """Order next hops by the mean of the whole path from one broker, then brokers, then name."""

    __slots__ = ("_links",)

    def __init__(self, links: dict[str, LinkDelay]) -> None:
        self._links = links

    def cost(self, hop: NextHop) -> tuple[int, int, str]:
        total = round(hop.path.mean_s_per_kb * _PICO) + _cost(self._links[hop.neighbour])
        return (total, hop.path.brokers, hop.neighbour)


def _cost(delay: LinkDelay) -> int:
    return round(delay.mean_s_per_kb * _PICO)
