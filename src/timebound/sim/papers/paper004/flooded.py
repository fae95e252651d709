"""The two ways the paper compares itself with: full network state at every broker, and flooded requests."""

from __future__ import annotations

import heapq
from typing import ClassVar

from timebound.core.mesh.reservation.network_map import Link
from timebound.sim.papers.paper004.finder import Attempt, Finder, FlowTree, PathRequest, links_of
from timebound.sim.papers.paper004.network import SLOTS, Network
from timebound.sim.papers.paper004.readings import Assumptions


class _BestPath(Finder):
    """Takes the best of all paths that have room, joined to the flow's tree."""

    def __init__(self, network: Network, assumed: Assumptions) -> None:
        super().__init__(network, assumed)
        self.trees: dict[str, FlowTree] = {}

    def ask(self, request: PathRequest) -> Attempt:
        tree = self.trees.get(request.flow) or FlowTree(request.publisher)
        path = self._best_path(tree, request.subscriber)
        self.count_search(tree, request, path)
        if not path:
            return Attempt(False)
        self.trees[request.flow] = tree
        links = links_of(path)
        self.load.take(links)
        tree.add(path, self.network)
        self.messages += len(links)  # back along the path, to reserve it
        self.count_changes(links, 1)
        return Attempt(True, tree.latency_ns[request.subscriber])

    def end(self, request: PathRequest) -> None:
        links = self.trees[request.flow].remove(request.subscriber)
        self.load.give_back(links)
        self.messages += len(links)
        self.count_changes(links, -1)

    def _best_path(self, tree: FlowTree, subscriber: str) -> list[str]:
        """Return the way of least latency from the publisher, from where it leaves the tree; empty: none."""
        before: dict[str, str] = {}
        heap = [(latency_ns, broker, "") for broker, latency_ns in tree.latency_ns.items()]
        heapq.heapify(heap)
        while heap:
            latency_ns, broker, source = heapq.heappop(heap)
            if broker in before:
                continue
            before[broker] = source
            if broker == subscriber:
                break
            for target in self.network.map.neighbours(broker):
                is_open = not tree.has(target) and target not in before
                if is_open and not self.load.is_full((broker, target)):
                    step_ns = self.network.map.latency_ns(broker, target)
                    heapq.heappush(heap, (latency_ns + step_ns, target, broker))
        if subscriber not in before:
            return []
        path = [subscriber]
        while before[path[-1]]:
            path.append(before[path[-1]])
        return path[::-1]

    def count_search(self, tree: FlowTree, request: PathRequest, path: list[str]) -> None:
        """Count the messages of looking for a path."""

    def count_changes(self, links: list[Link], change: int) -> None:
        """Count the messages of links whose load has changed."""


class FullState(_BestPath):
    """FNS: every broker knows the load of every link, since changes are flooded."""

    name: ClassVar[str] = "fns"

    def __init__(self, network: Network, assumed: Assumptions) -> None:
        super().__init__(network, assumed)
        self._told: dict[Link, int] = {}  # used when it was last flooded

    def count_changes(self, links: list[Link], change: int) -> None:
        for link in links:
            if self._is_told(link, change):
                self._told[link] = self.load.used(link)
                self.messages += self.network.flood_messages()

    def _is_told(self, link: Link, change: int) -> bool:
        if self.assumed.floods == "every":
            return True
        if self.assumed.floods == "half":
            return abs(self.load.used(link) - self._told.get(link, 0)) >= SLOTS // 2
        # It has just become full, or has just room again.
        return self.load.free(link) == (0 if change > 0 else 1)


class FloodedRequests(_BestPath):
    """FR: a request goes to every broker, and the best path is answered."""

    name: ClassVar[str] = "fr"

    def count_search(self, tree: FlowTree, request: PathRequest, path: list[str]) -> None:
        both_ways = len(self.network.kinds)
        if self.assumed.requests == "twice":
            self.messages += both_ways
        else:
            self.messages += self.network.flood_messages()
        if path:
            self.messages += len(path) - 1  # the answer
