"""Brokers that reserve paths with each other; their messages arrive one at a time, links in any order."""

from __future__ import annotations

from collections import deque
from random import Random

from timebound.core.mesh.reservation.crankback import Reserver
from timebound.core.mesh.reservation.messages import Demand, ReservationMessage, Resolution
from timebound.core.mesh.reservation.network_map import NetworkMap

MS = 1_000_000
AMOUNT = 10


class Net:
    """Brokers joined in both directions; `answers` are all that subscribers have heard."""

    def __init__(self, links: dict[tuple[str, str], int], capacity: int = 8 * AMOUNT) -> None:
        """Links of so many ms, each with the same capacity for either direction."""
        self.map = NetworkMap()
        for (one, other), latency_ms in links.items():
            self.map.set_link(one, other, latency_ms * MS)
            self.map.set_link(other, one, latency_ms * MS)
        self.brokers = {name: Reserver(name, self.map) for name in self.map.brokers()}
        for source, target in self.map.links():
            self.brokers[source].set_link(target, capacity)
        self.wires: dict[tuple[str, str], deque[ReservationMessage]] = {}
        self.answers: dict[str, Resolution] = {}
        self.passed = 0  # messages over links

    def ask(self, name: str, request: str, demand: Demand) -> None:
        self.brokers[name].request(request, demand)
        self._collect(name)

    def cancel(self, name: str, request: str, flow: str) -> None:
        self.brokers[name].cancel(request, flow)
        self._collect(name)

    def fail(self, one: str, other: str) -> None:
        """A link fails: what is under way on it is lost, and both ends know."""
        for source, target in ((one, other), (other, one)):
            self.map.remove_link(source, target)
            self.wires.pop((source, target), None)
        for source, target in ((one, other), (other, one)):
            self.brokers[source].link_down(target)
            self._collect(source)

    def step(self, random: Random) -> bool:
        """Deliver one message; return False if none is under way."""
        busy = sorted(ends for ends, wire in self.wires.items() if wire)
        if not busy:
            return False
        ends = random.choice(busy)
        self.brokers[ends[1]].receive(ends[0], self.wires[ends].popleft())
        self.passed += 1
        self._collect(ends[1])
        return True

    def settle(self, random: Random | None = None) -> None:
        random = random or Random(0)
        while self.step(random):
            pass

    def _collect(self, name: str) -> None:
        broker = self.brokers[name]
        for target, message in broker.sends:
            if target in broker.links:
                self.wires.setdefault((name, target), deque()).append(message)
        broker.sends = []
        for answer in broker.answers:
            assert answer.request not in self.answers, "an answer comes once"
            self.answers[answer.request] = answer
        broker.answers = []

    def reserved(self) -> dict[tuple[str, str], int]:
        """What is reserved on each link, where something is."""
        return {
            (name, neighbour): resources.reserved
            for name, broker in self.brokers.items()
            for neighbour, resources in broker.links.items()
            if resources.reserved
        }

    def tree(self, flow: str) -> dict[str, str]:
        """The parent of each broker that a flow comes to, as both ends of each link say."""
        parents = {name: one.parent(flow) for name, one in self.brokers.items() if one.parent(flow)}
        branches = {(name, child) for name, one in self.brokers.items() for child in one.branches(flow)}
        assert branches == {(parent, name) for name, parent in parents.items()}, flow
        return parents
