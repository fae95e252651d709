"""The next hops of a copy from one broker of a mesh, and what it is worth over each of them.

A router knows the overlay and the subscriptions as its broker sees them. It places a copy on links (`place`)
by one of two routings, and computes what lies behind a link (`reach`, `audience`):

* `TREE`: along the path tree of its origin, so that no broker gets it twice;
* `LATE`: in the queues of all links that lead nearer to a subscriber; the link that takes it first binds
  the path, and the copy names the homes it is for.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import DIRECT, Audience
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.mesh.link import MeshLink, Reach
from timebound.core.mesh.message import Copy, InTransit, Placement
from timebound.core.mesh.options import LATE
from timebound.core.mesh.overlay import LinkState, NextHop
from timebound.core.mesh.pressure import EXHAUSTED, ROOM
from timebound.core.mesh.table import HomeGroup, SubscriptionTable

# A copy never returns to a broker it has passed, but a detour round a failed link forgets those. This many
# links end such a journey whatever fails.
HOPS_MAX: Final = 64


class Router:
    """The links of one broker by neighbour, and the choice among them."""

    __slots__ = ("_numbers", "_single", "_version", "link_state", "links", "name", "routing", "table")

    def __init__(self, name: str, link_state: LinkState, table: SubscriptionTable, routing: int) -> None:
        self.name = name
        self.link_state = link_state
        self.table = table
        self.routing = routing
        self.links: dict[str, MeshLink] = {}
        self._version = link_state.version
        self._single: dict[str, MeshLink | None] = {}  # by home: the only link that leads there
        self._numbers: dict[str, int] = {}  # of brokers: their bits in `Reach.passed`

    def place(self, copy: Copy, transit: InTransit) -> list[HomeGroup]:
        """Place a copy on the links it may take; return the groups that no link leads to."""
        if self._version != self.link_state.version:
            self.forget_paths()
        if self.routing == LATE:
            return self._place_late(copy, transit)
        return self._place_single(copy, transit)

    def _place_single(self, copy: Copy, transit: InTransit) -> list[HomeGroup]:
        """Choose one link per home: along the path tree of the origin if that leads there, else the best."""
        what = copy.what
        targets = copy.targets
        next_hops = self.link_state.tree(what.origin).next_hops_from(self.name)
        by_neighbour: dict[str, list[HomeGroup]] = {}
        ended: list[HomeGroup] = []
        for group in what.groups(self.table):
            home = group.home
            if targets is not None and home not in targets:
                continue
            hop = next_hops.get(home)
            if hop is None and home != self.name and copy.hops < HOPS_MAX:
                hop = self.link_state.tree(self.name).next_hops_from(self.name).get(home)
            if hop is not None and self._is_open(hop.neighbour, copy):
                _add(by_neighbour, hop.neighbour, group)
                transit.places[home] = 1
            else:
                ended.append(group)
        _make_placements(transit, by_neighbour)
        return ended

    def _place_late(self, copy: Copy, transit: InTransit) -> list[HomeGroup]:
        """Choose all links that lead nearer: the message waits for each of them."""
        downhill = self.link_state.downhill(self.name)
        targets = copy.targets
        by_neighbour: dict[str, list[HomeGroup]] = {}
        ended: list[HomeGroup] = []
        for group in copy.what.groups(self.table):
            home = group.home
            if targets is not None and home not in targets:
                continue
            next_hops = downhill.get(home)
            places = 0
            if next_hops is not None and copy.hops < HOPS_MAX:
                for hop in next_hops:
                    if self._is_open(hop.neighbour, copy):
                        places += 1
                        _add(by_neighbour, hop.neighbour, group)
            if places:
                transit.places[home] = places
            else:
                ended.append(group)
        _make_placements(transit, by_neighbour)
        return ended

    def only_link(self, home: str) -> MeshLink | None:
        """Return the link to a home if only one leads nearer, whichever broker a message comes from."""
        if self._version != self.link_state.version:
            self.forget_paths()
        if home in self._single:
            return self._single[home]
        next_hops = self.link_state.downhill(self.name).get(home)
        link = None
        if self.routing == LATE and next_hops is not None and len(next_hops) == 1:
            link = self.links[next_hops[0].neighbour]
        self._single[home] = link
        return link

    def _is_open(self, name: str, copy: Copy) -> bool:
        link = self.links[name]
        if not link.is_up or name in copy.via:
            return False
        return link.border.is_open or link.border.lets_out(copy.what.message.topic)

    def is_barred(self, home: str, copy: Copy) -> bool:
        """Whether links lead to a home, and none of them lets the message out."""
        next_hops = self.link_state.downhill(self.name).get(home, [])
        names = [name for name in self._names_of(home, next_hops) if name not in copy.via]
        links = [self.links[name] for name in names if self.links[name].is_up]
        topic = copy.what.message.topic
        return len(links) > 0 and not any([link.border.lets_out(topic) for link in links])

    # What a message is worth behind a link.

    def audience(self, link: MeshLink, groups: list[HomeGroup]) -> Audience:
        """Return the audience of a message for these groups behind a link, in the terms of its queue."""
        return link.audience(groups, [self.reach(link, group.home) for group in groups])

    def reach(self, link: MeshLink, home: str) -> Reach:
        """Return the delay over a link to a home."""
        known = link.reaches.get(home)
        if known is not None:
            return known
        path = DIRECT
        for hop in self.link_state.downhill(self.name).get(home, []):
            if hop.neighbour == link.name:
                path = hop.path
        return link.reach(home, path, self._passed(link.name, home))

    def _passed(self, name: str, home: str) -> int:
        """Return the brokers that a message passes over a neighbour to a home, one bit each."""
        parents = self.link_state.tree(name).parents
        passed = 1 << self._number(name)
        broker = home
        while broker != name and broker in parents:
            passed |= 1 << self._number(broker)
            broker = parents[broker]
        return passed

    def _number(self, broker: str) -> int:
        return self._numbers.setdefault(broker, len(self._numbers))

    def queue_delays(self) -> dict[str, int]:
        """Return the queueing delay from here to each home, over its shortest path, in nanoseconds."""
        delays: dict[str, int] = {}
        for home, next_hops in self.link_state.downhill(self.name).items():
            least = NEVER_NS
            for hop in next_hops:
                link = self.links[hop.neighbour]
                delay_ns = int(link.queue_delay_ns) + link.queue_delay_beyond_ns(home)
                if delay_ns < least:
                    least = delay_ns
            delays[home] = least
        return delays

    def levels(self) -> dict[str, int]:
        """Return how full the paths to homes are, for homes to which even the emptiest has no room."""
        levels: dict[str, int] = {}
        if not any([link.is_pressed() for link in self.links.values()]):
            return levels
        for home, next_hops in self.link_state.downhill(self.name).items():
            least = EXHAUSTED
            for name in self._names_of(home, next_hops):
                level = self.links[name].level_to(home)
                if level < least:
                    least = level
            if least > ROOM:
                levels[home] = least
        return levels

    def leads_to(self, home: str) -> bool:
        """Whether a path to a home is open."""
        next_hops = self.link_state.downhill(self.name).get(home)
        return next_hops is not None and any([self.links[hop.neighbour].is_up for hop in next_hops])

    def carries(self, home: str, size: int) -> bool:
        """Whether one of this broker's links that lead to a home takes a message of this size."""
        next_hops = self.link_state.downhill(self.name).get(home)
        if next_hops is None:
            return True  # it waits until one leads there
        for name in self._names_of(home, next_hops):
            if not 0 < self.links[name].size_max < size:
                return True
        return False

    def _names_of(self, home: str, next_hops: list[NextHop]) -> list[str]:
        """Return the neighbours over which messages for a home may go."""
        if self.routing == LATE:
            return [hop.neighbour for hop in next_hops]
        hop = self.link_state.tree(self.name).next_hops_from(self.name).get(home)
        return [] if hop is None else [hop.neighbour]

    def forget_paths(self) -> None:
        """Clear what was computed from paths: the overlay has changed."""
        self._version = self.link_state.version
        self._single = {}
        for link in self.links.values():
            link.forget_paths()


def _make_placements(transit: InTransit, by_neighbour: dict[str, list[HomeGroup]]) -> None:
    for name, groups in by_neighbour.items():
        transit.placements.append(Placement(transit, name, groups))


def _add(by_neighbour: dict[str, list[HomeGroup]], name: str, group: HomeGroup) -> None:
    known = by_neighbour.get(name)
    if known is None:
        by_neighbour[name] = [group]
    else:
        known.append(group)
