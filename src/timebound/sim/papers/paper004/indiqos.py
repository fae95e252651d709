"""IndiQoS: paths through rendezvous brokers, found by the overlay; several replicas, and the best answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from timebound.core.mesh.reservation.network_map import Link
from timebound.sim.papers.paper004.finder import Attempt, Finder, PathRequest, links_of
from timebound.sim.papers.paper004.network import Network
from timebound.sim.papers.paper004.overlay import id_of, make_overlay
from timebound.sim.papers.paper004.readings import Assumptions


@dataclass(frozen=True, slots=True)
class Offer:
    """A way from a publisher's tree to a subscriber over one replica: overlay brokers, tree first."""

    replica: int
    way: list[str]
    latency_ns: int
    links: list[Link]  # to reserve


class HopTree:
    """The tree of one flow and replica over overlay hops; without users it has nothing but its root."""

    __slots__ = ("count", "latency_ns", "links", "parents", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self.parents: dict[str, str] = {}
        self.latency_ns: dict[str, int] = {root: 0}
        self.links: dict[str, list[Link]] = {}  # reserved for the hop to a broker
        self.count: dict[str, int] = {}

    def remove(self, broker: str) -> list[Link]:
        """Remove a user; return the links of hops that nobody needs any more."""
        freed: list[Link] = []
        self.count[broker] -= 1
        while broker != self.root and not self.count[broker]:
            freed += self.links.pop(broker)
            del self.latency_ns[broker]
            broker = self.parents.pop(broker)
            self.count[broker] -= 1
        return freed


class IndiQos(Finder):
    """The paper's own way."""

    name: ClassVar[str] = "indiqos"

    def __init__(self, network: Network, assumed: Assumptions, replicas: int) -> None:
        super().__init__(network, assumed)
        self._overlay = make_overlay(network, assumed.dht)
        self._replicas = replicas
        self._trees: dict[tuple[str, int], HopTree] = {}
        self._chosen: dict[int, tuple[str, int]] = {}  # by request
        self._registered: set[str] = set()
        self._routes: dict[tuple[str, str, int], list[str]] = {}
        self._hops: dict[Link, list[str]] = {}

    def ask(self, request: PathRequest) -> Attempt:
        self._register(request)
        offers = [self._offer(request, replica) for replica in range(self._replicas)]
        fitting = [offer for offer in offers if offer is not None]
        if not fitting:
            return Attempt(False)
        best = min(fitting, key=lambda offer: (offer.latency_ns, offer.replica))
        self._reserve(request, best)
        return Attempt(True, best.latency_ns)

    def end(self, request: PathRequest) -> None:
        tree = self._trees[self._chosen.pop(request.number)]
        freed = tree.remove(request.subscriber)
        self.load.give_back(freed)
        self.messages += len(freed)

    def _register(self, request: PathRequest) -> None:
        """Count what it takes the publisher of a type to register with all replicas, once."""
        if request.type_name not in self._registered:
            self._registered.add(request.type_name)
            for replica in range(self._replicas):
                self.messages += self._cost(self._route(request.publisher, request.type_name, replica))

    def _route(self, start: str, type_name: str, replica: int) -> list[str]:
        key = (start, type_name, replica)
        known = self._routes.get(key)
        if known is None:
            known = self._routes[key] = self._overlay.route(start, id_of(f"{type_name}/{replica}"))
        return known

    def _offer(self, request: PathRequest, replica: int) -> Offer | None:
        """Ask a replica; return a way with room, over the first broker that has the flow already."""
        tree = self._trees.get((request.flow, replica)) or HopTree(request.publisher)
        upwards = self._route(request.subscriber, request.type_name, replica)
        met = next((place for place, name in enumerate(upwards) if name in tree.latency_ns), -1)
        if met >= 0:
            way = upwards[: met + 1][::-1]
            self.messages += 2 * self._cost(way)
        else:
            self.messages += 2 * self._cost(upwards)  # the rendezvous knows the way to the publisher
            way = self._joined(tree, self._route(request.publisher, request.type_name, replica), upwards)
        links = self._links(tree, way)
        if not self.load.fits(links):
            return None
        latency_ns = tree.latency_ns[way[0]]
        for hop in links_of(way):
            latency_ns += sum(self.network.map.latency_ns(*link) for link in links_of(self._hop(hop)))
        return Offer(replica, way, latency_ns, links)

    def _joined(self, tree: HopTree, down: list[str], upwards: list[str]) -> list[str]:
        """Join the way from the publisher to the rendezvous with that to the subscriber, without loops."""
        start = max(place for place, name in enumerate(down) if name in tree.latency_ns)
        way = down[start:]
        for name in reversed(upwards[:-1]):
            way = way[: way.index(name) + 1] if name in way else [*way, name]
        return way

    def _links(self, tree: HopTree, way: list[str]) -> list[Link]:
        """Return the links to reserve, each as often as hops lead over it, as sharing has it."""
        links = [link for hop in links_of(way) for link in links_of(self._hop(hop))]
        if self.assumed.sharing == "link":
            used = {link for reserved in tree.links.values() for link in reserved}
            return list(dict.fromkeys(link for link in links if link not in used))
        return links

    def _reserve(self, request: PathRequest, offer: Offer) -> None:
        key = (request.flow, offer.replica)
        tree = self._trees.setdefault(key, HopTree(request.publisher))
        self._chosen[request.number] = key
        self.load.take(offer.links)
        self.messages += self._cost(offer.way)
        left = list(offer.links)
        for source, target in links_of(offer.way):
            hop = links_of(self._hop((source, target)))
            tree.parents[target] = source
            step_ns = sum(self.network.map.latency_ns(*link) for link in hop)
            tree.latency_ns[target] = tree.latency_ns[source] + step_ns
            tree.links[target] = [link for link in hop if link in left]
            for link in tree.links[target]:
                left.remove(link)
            tree.count[source] = tree.count.get(source, 0) + 1
        tree.count[request.subscriber] = tree.count.get(request.subscriber, 0) + 1

    def _hop(self, hop: Link) -> list[str]:
        """Return the brokers that an overlay hop passes."""
        known = self._hops.get(hop)
        if known is None:
            known = self._hops[hop] = self.network.map.path(*hop)
        return known

    def _cost(self, way: list[str]) -> int:
        """Return the messages of passing something along overlay brokers, either way."""
        if self.assumed.counting == "overlay":
            return len(way) - 1
        return sum(len(self._hop(hop)) - 1 for hop in links_of(way))
