"""One run: subscribers ask for types until the network is full, or as long as the reading says."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from timebound.sim.papers.paper004.finder import NS_PER_MS, Finder, PathRequest
from timebound.sim.papers.paper004.flooded import FloodedRequests, FullState
from timebound.sim.papers.paper004.indiqos import IndiQos
from timebound.sim.papers.paper004.network import Network, make_network
from timebound.sim.papers.paper004.probing import Crankback
from timebound.sim.papers.paper004.readings import Assumptions

FINDERS: Final = ("indiqos", "crankback", "fns", "fr")
SUBSCRIBERS: Final = 0.3  # of brokers
REFUSALS: Final = 100  # in a row end a run
REQUESTS_MAX: Final = 100_000
# With departures: so many requests, each accepted one kept for a time that is this many arrivals in the mean.
ARRIVALS: Final = 3_000
KEPT: Final = 600.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a run came to; latency is the mean of the accepted, messages are per accepted request."""

    accepted: int
    refused: int
    utilisation: float
    latency_ms: float
    messages_per_accepted: float
    messages_all_per_accepted: float


def make_finder(name: str, network: Network, assumed: Assumptions, replicas: int) -> Finder:
    if name == "indiqos":
        return IndiQos(network, assumed, replicas)
    if name == "crankback":
        return Crankback(network, assumed)
    return FullState(network, assumed) if name == "fns" else FloodedRequests(network, assumed)


def run_once(
    finder_name: str, network_kind: str, types: int, replicas: int, assumed: Assumptions, seed: int
) -> RunOutcome:
    """Carry out one run; all finders get the same network and the same requests."""
    network = make_network(network_kind, assumed, seed)
    finder = make_finder(finder_name, network, assumed, replicas)
    return _Run(finder, _Requests(network, types, assumed, seed)).carry_out()


class _Requests:
    """Who asks for what, in which order; the same for every finder."""

    def __init__(self, network: Network, types: int, assumed: Assumptions, seed: int) -> None:
        random = Random(f"{seed} requests {types}")
        brokers = network.brokers()
        self.subscribers = random.sample(brokers, round(SUBSCRIBERS * len(brokers)))
        self.publishers = {f"type{number}": random.choice(brokers) for number in range(types)}
        self.assumed = assumed
        self.random = random

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Give a subscriber and a type again and again, or each pair once."""
        types = list(self.publishers)
        if self.assumed.end == "offered":
            offered = [(subscriber, one) for subscriber in self.subscribers for one in types]
            self.random.shuffle(offered)
            yield from offered
            return
        for _ in range(ARRIVALS if self.assumed.end == "departures" else REQUESTS_MAX):
            yield self.random.choice(self.subscribers), self.random.choice(types)


class _Run:
    def __init__(self, finder: Finder, requests: _Requests) -> None:
        self._finder = finder
        self._requests = requests
        self._granted: set[tuple[str, str]] = set()
        self._leaving: list[tuple[float, int, PathRequest]] = []
        self._accepted = 0
        self._refused = 0
        self._in_a_row = 0
        self._latency_ns = 0
        self._spent_on_accepted = 0

    def carry_out(self) -> RunOutcome:
        ends_when_full = self._requests.assumed.end == "refusals"
        for number, (subscriber, type_name) in enumerate(self._requests.pairs()):
            self._let_leave(number)
            self._ask(number, subscriber, type_name)
            if ends_when_full and self._in_a_row >= REFUSALS:
                break
        accepted = max(self._accepted, 1)
        return RunOutcome(
            self._accepted,
            self._refused,
            self._finder.utilisation(),
            self._latency_ns / accepted / NS_PER_MS,
            self._spent_on_accepted / accepted,
            self._finder.messages / accepted,
        )

    def _ask(self, number: int, subscriber: str, type_name: str) -> None:
        is_repeat = (subscriber, type_name) in self._granted
        if is_repeat and self._requests.assumed.repeat == "refused":
            self._note_refusal()
            return
        alone = is_repeat or self._requests.assumed.sharing == "nothing"
        flow = f"{type_name}#{number}" if alone else type_name
        publisher = self._requests.publishers[type_name]
        request = PathRequest(number, subscriber, publisher, type_name, flow)
        before = self._finder.messages
        outcome = self._finder.ask(request)
        if not outcome.is_accepted:
            self._note_refusal()
            return
        self._accepted += 1
        self._in_a_row = 0
        self._latency_ns += outcome.latency_ns
        self._spent_on_accepted += self._finder.messages - before
        self._granted.add((subscriber, type_name))
        if self._requests.assumed.end == "departures":
            kept = self._requests.random.expovariate(1.0 / KEPT)
            heapq.heappush(self._leaving, (number + kept, number, request))

    def _note_refusal(self) -> None:
        self._refused += 1
        self._in_a_row += 1

    def _let_leave(self, now: int) -> None:
        while self._leaving and self._leaving[0][0] <= now:
            request = heapq.heappop(self._leaving)[2]
            self._finder.end(request)
            if "#" not in request.flow:
                self._granted.discard((request.subscriber, request.type_name))
