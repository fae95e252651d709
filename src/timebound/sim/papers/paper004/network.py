"""The network of 252 brokers: a transit-stub graph, what its links take, and what is reserved on them."""

from __future__ import annotations

import itertools
from random import Random
from typing import Final

from timebound.core.mesh.reservation.network_map import Link, NetworkMap
from timebound.sim.papers.paper004.readings import GRAPHS, LATENCIES, Assumptions

NETWORKS: Final = ("single", "multi")
TRANSIT_EDGES: Final = 0.6  # chance of a link between two brokers of a transit domain
STUB_EDGES: Final = 0.42
EXTRA_LINKS: Final = 24  # of a multi-homed network: to transit, and between stubs, so many each
SLOTS: Final = 8  # reservations of 12.5 % that fit on a link
WIDE: Final = 4
DOMAINS, DOMAIN, TO_STUB, STUB = range(4)  # classes of links
NS_PER_MS: Final = 1_000_000


class Network:
    """Brokers and links with their classes; `capacity` is in reservations, by link and direction."""

    def __init__(self) -> None:
        self.map = NetworkMap()
        self.transit: list[str] = []
        self.stubs: list[list[str]] = []
        self.kinds: dict[Link, int] = {}

    def brokers(self) -> list[str]:
        return self.map.brokers()

    def capacity(self, link: Link, assumed: Assumptions) -> int:
        is_wide = assumed.capacity == "wide" and self.kinds[link] in (DOMAINS, DOMAIN)
        return SLOTS * WIDE if is_wide else SLOTS

    def flood_messages(self) -> int:
        """Return the messages of one flood: every broker passes it on to all neighbours but the sender."""
        return len(self.kinds) - len(self.brokers()) + 1


def make_network(kind: str, assumed: Assumptions, seed: int) -> Network:
    """Draw a network; the same seed gives the same one, with extra links if it is multi-homed."""
    random = Random(f"{seed} network {assumed.graph} {assumed.latencies}")
    maker = _Maker(assumed, random)
    maker.join_all()
    if kind == "multi":
        maker.add_extra_links()
    return maker.network


class _Maker:
    def __init__(self, assumed: Assumptions, random: Random) -> None:
        self.network = Network()
        self._random = random
        self._shape = GRAPHS[assumed.graph]
        self._latencies, self._spread = LATENCIES[assumed.latencies]

    def join_all(self) -> None:
        domains, size, stubs, stub_size = self._shape
        heads = []
        for domain in range(domains):
            members = [f"t{domain}.{number}" for number in range(size)]
            self.network.transit += members
            self._join_among(members, TRANSIT_EDGES, DOMAIN)
            heads.append(members)
            for member, number in itertools.product(members, range(stubs)):
                stub = [f"s{member[1:]}.{number}.{place}" for place in range(stub_size)]
                self.network.stubs.append(stub)
                self._join_among(stub, STUB_EDGES, STUB)
                self._join(member, self._random.choice(stub), TO_STUB)
        self._join_domains(heads)

    def _join_domains(self, heads: list[list[str]]) -> None:
        """Join all domains with each other, if there are several: a tree, then half of the other pairs."""
        for index in range(1, len(heads)):
            self._join_two(heads[self._random.randrange(index)], heads[index])
        for one, other in itertools.combinations(heads, 2):
            if self._random.random() < 0.5:
                self._join_two(one, other)

    def _join_two(self, one: list[str], other: list[str]) -> None:
        self._join(self._random.choice(one), self._random.choice(other), DOMAINS)

    def _join_among(self, members: list[str], chance: float, kind: int) -> None:
        """Join brokers to a connected graph: a random tree, and each other pair with this chance."""
        for index in range(1, len(members)):
            self._join(members[self._random.randrange(index)], members[index], kind)
        for one, other in itertools.combinations(members, 2):
            if self._random.random() < chance:
                self._join(one, other, kind)

    def add_extra_links(self) -> None:
        """Add links from stubs to other transit brokers, and between stubs."""
        stubs = self.network.stubs
        for _ in range(EXTRA_LINKS):
            stub = self._random.choice(stubs)
            self._join(self._random.choice(self.network.transit), self._random.choice(stub), TO_STUB)
            one, other = self._random.sample(stubs, 2)
            self._join(self._random.choice(one), self._random.choice(other), TO_STUB)

    def _join(self, one: str, other: str, kind: int) -> None:
        if (one, other) in self.network.kinds:
            return
        low, high = 1.0 - self._spread, 1.0 + self._spread
        latency_ns = int(self._latencies[kind] * self._random.uniform(low, high) * NS_PER_MS)
        for link in ((one, other), (other, one)):
            self.network.map.set_link(*link, latency_ns)
            self.network.kinds[link] = kind


class LinkLoad:
    """What is reserved on the links of a network, in reservations."""

    def __init__(self, network: Network, assumed: Assumptions) -> None:
        self._is_shared = assumed.capacity == "both"
        self._capacity = {self._key(link): network.capacity(link, assumed) for link in network.kinds}
        self._used = dict.fromkeys(self._capacity, 0)

    def _key(self, link: Link) -> Link:
        return (min(link), max(link)) if self._is_shared else link

    def free(self, link: Link) -> int:
        key = self._key(link)
        return self._capacity[key] - self._used[key]

    def is_full(self, link: Link) -> bool:
        return self.free(link) <= 0

    def fits(self, links: list[Link]) -> bool:
        """Whether one reservation more fits for each time that a link is listed."""
        wanted: dict[Link, int] = {}
        for link in links:
            key = self._key(link)
            wanted[key] = wanted.get(key, 0) + 1
        return all(self._capacity[key] - self._used[key] >= count for key, count in wanted.items())

    def take(self, links: list[Link]) -> None:
        for link in links:
            self._used[self._key(link)] += 1

    def give_back(self, links: list[Link]) -> None:
        for link in links:
            self._used[self._key(link)] -= 1

    def used(self, link: Link) -> int:
        return self._used[self._key(link)]

    def utilisation(self) -> float:
        """Return the mean share of links that is reserved."""
        return sum(self._used[key] / total for key, total in self._capacity.items()) / len(self._capacity)
