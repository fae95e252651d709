"""Crankback, by the very objects that brokers use (`core/mesh/reservation`); messages arrive in order."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from timebound.core.mesh.reservation.crankback import Reserver
from timebound.core.mesh.reservation.messages import Demand, ReservationMessage
from timebound.core.mesh.reservation.network_map import Link
from timebound.sim.papers.paper004.finder import Attempt, Finder, PathRequest
from timebound.sim.papers.paper004.network import Network
from timebound.sim.papers.paper004.overlay import DirectOverlay, id_of
from timebound.sim.papers.paper004.readings import Assumptions


class Crankback(Finder):
    """Subscribers' brokers find paths on a map without load, and try others where a link is full."""

    name: ClassVar[str] = "crankback"

    def __init__(self, network: Network, assumed: Assumptions) -> None:
        super().__init__(network, assumed)
        self._brokers = {name: Reserver(name, network.map) for name in network.brokers()}
        for source, target in network.kinds:
            there, back = (network.capacity(link, assumed) for link in ((source, target), (target, source)))
            self._brokers[source].set_link(target, there, back)
        self._directory = DirectOverlay(network)  # which broker knows the publisher of a type
        self._known: set[tuple[str, str]] = set()  # who has asked for a type: he knows its publisher now

    def ask(self, request: PathRequest) -> Attempt:
        self._look_up(request)
        broker = self._brokers[request.subscriber]
        broker.request(str(request.number), Demand(request.flow, request.publisher, 1))
        self._settle(request.subscriber)
        [found] = broker.answers
        broker.answers.clear()
        return Attempt(found.is_granted, found.latency_ns)

    def end(self, request: PathRequest) -> None:
        self._brokers[request.subscriber].cancel(str(request.number), request.flow)
        self._settle(request.subscriber)

    def utilisation(self) -> float:
        shares = [self._share(link) for link in self.network.kinds]
        return sum(shares) / len(shares)

    def _share(self, link: Link) -> float:
        resources = self._brokers[link[0]].links[link[1]]
        return resources.reserved / resources.capacity

    def _look_up(self, request: PathRequest) -> None:
        """Ask the broker that knows the publisher of a type, and count the messages there and back."""
        if (request.subscriber, request.type_name) in self._known:
            return
        self._known.add((request.subscriber, request.type_name))
        way = self._directory.route(request.subscriber, id_of(request.type_name))
        if len(way) > 1:
            self.messages += 2 * (len(self.network.map.path(way[0], way[1])) - 1)

    def _settle(self, start: str) -> None:
        """Deliver what brokers say, until nobody says anything."""
        wire: deque[tuple[str, str, ReservationMessage]] = deque()
        speakers = [start]
        while True:
            for name in speakers:
                sends = self._brokers[name].sends
                wire.extend([(name, target, message) for target, message in sends])
                sends.clear()
            if not wire:
                return
            source, target, message = wire.popleft()
            self.messages += 1
            self._brokers[target].receive(source, message)
            speakers = [target]
