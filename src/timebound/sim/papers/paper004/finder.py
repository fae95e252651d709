"""What all ways to find paths have in common: requests, answers, and what they cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

from timebound.core.mesh.reservation.network_map import Link
from timebound.sim.papers.paper004.network import LinkLoad, Network
from timebound.sim.papers.paper004.readings import Assumptions

NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PathRequest:
    """A subscriber's request for a type; `flow` tells apart what has a path of its own."""

    number: int
    subscriber: str  # its broker
    publisher: str
    type_name: str
    flow: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of a request."""

    is_accepted: bool
    latency_ns: int = 0


class Finder(ABC):
    """One way to find and reserve paths; `messages` counts what brokers told each other."""

    name: ClassVar[str]

    def __init__(self, network: Network, assumed: Assumptions) -> None:
        self.network = network
        self.assumed = assumed
        self.load = LinkLoad(network, assumed)
        self.messages = 0

    @abstractmethod
    def ask(self, request: PathRequest) -> Attempt:
        """Find a path and reserve it."""

    @abstractmethod
    def end(self, request: PathRequest) -> None:
        """Release what an accepted request has."""

    def utilisation(self) -> float:
        return self.load.utilisation()


class FlowTree:
    """The tree of one flow over links: from its publisher's broker to those of subscribers."""

    __slots__ = ("_count", "latency_ns", "parents", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self.parents: dict[str, str] = {}
        self.latency_ns: dict[str, int] = {root: 0}
        self._count: dict[str, int] = {}  # users and children of each broker

    def has(self, broker: str) -> bool:
        return broker in self.latency_ns

    def add(self, path: list[str], network: Network) -> None:
        """Add a path that begins on the tree, for a user at its end."""
        for source, target in links_of(path):
            self.parents[target] = source
            self.latency_ns[target] = self.latency_ns[source] + network.map.latency_ns(source, target)
            self._count[source] = self._count.get(source, 0) + 1
        self._count[path[-1]] = self._count.get(path[-1], 0) + 1

    def remove(self, broker: str) -> list[Link]:
        """Remove a user; return the links that nobody needs any more."""
        freed: list[Link] = []
        self._count[broker] -= 1
        while broker != self.root and not self._count[broker]:
            parent = self.parents.pop(broker)
            del self.latency_ns[broker]
            freed.append((parent, broker))
            self._count[parent] -= 1
            broker = parent
        return freed


def links_of(path: list[str]) -> list[Link]:
    return [(path[index], path[index + 1]) for index in range(len(path) - 1)]
