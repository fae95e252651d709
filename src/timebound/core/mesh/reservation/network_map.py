"""The static map of a mesh: brokers, and links with their latencies, without any load.

Every broker has it, since link state is flooded anyway, and it changes only when links come and go. A path on
it is the one of least latency; ties go to fewer links, then to names, so that all brokers agree.
"""

from __future__ import annotations

import heapq

Link = tuple[str, str]  # from, to
NOTHING: frozenset[Link] = frozenset()


class NetworkMap:
    """Directed links with latencies in ns."""

    __slots__ = ("_distances", "_into", "_out")

    def __init__(self) -> None:
        self._out: dict[str, dict[str, int]] = {}
        self._into: dict[str, dict[str, int]] = {}
        self._distances: dict[str, dict[str, int]] = {}  # from a source, until a link changes

    def set_link(self, source: str, target: str, latency_ns: int) -> None:
        """Add a link, or change its latency.

        Raises:
            ValueError: it leads to its own source, or takes negative time.
        """
        if source == target or latency_ns < 0:
            raise ValueError(f"link {source!r} -> {target!r} with latency {latency_ns} ns cannot be")
        for name in (source, target):
            self._out.setdefault(name, {})
            self._into.setdefault(name, {})
        self._out[source][target] = latency_ns
        self._into[target][source] = latency_ns
        self._distances = {}

    def remove_link(self, source: str, target: str) -> None:
        """Remove a link, if there is one."""
        if target in self._out.get(source, {}):
            del self._out[source][target]
            del self._into[target][source]
            self._distances = {}

    def brokers(self) -> list[str]:
        return sorted(self._out)

    def links(self) -> list[Link]:
        return [(source, target) for source in sorted(self._out) for target in sorted(self._out[source])]

    def neighbours(self, broker: str) -> list[str]:
        """Return the brokers to which this one has a link, by name."""
        return sorted(self._out.get(broker, {}))

    def latency_ns(self, source: str, target: str) -> int:
        return self._out[source][target]

    def distance_ns(self, source: str, target: str) -> int:
        """Return the latency of the best path; -1 if there is none."""
        known = self._distances.get(source)
        if known is None:
            known = self._distances[source] = self._settle(source)
        return known.get(target, -1)

    def path(self, source: str, target: str, without: frozenset[Link] = NOTHING) -> list[str]:
        """Return the brokers of the best path that uses none of these links; empty if there is none.

        The search runs from the target, by whose side links are usually excluded.
        """
        heap: list[tuple[int, int, str, str]] = [(0, 0, target, "")]
        following: dict[str, str] = {}
        while heap:
            latency_ns, hops, broker, after = heapq.heappop(heap)
            if broker in following:
                continue
            following[broker] = after
            if broker == source:
                return _chain(source, following)
            for before, link_ns in self._into.get(broker, {}).items():
                if before not in following and (before, broker) not in without:
                    heapq.heappush(heap, (latency_ns + link_ns, hops + 1, before, broker))
        return []

    def _settle(self, source: str) -> dict[str, int]:
        found: dict[str, int] = {}
        heap: list[tuple[int, str]] = [(0, source)]
        while heap:
            latency_ns, broker = heapq.heappop(heap)
            if broker in found:
                continue
            found[broker] = latency_ns
            for target, link_ns in self._out.get(broker, {}).items():
                if target not in found:
                    heapq.heappush(heap, (latency_ns + link_ns, target))
        return found


def _chain(source: str, following: dict[str, str]) -> list[str]:
    path = [source]
    while following[path[-1]]:
        path.append(following[path[-1]])
    return path
