"""Where a copy may go from one broker of a mesh, and what that is worth.

A router knows the overlay and the subscriptions as its broker sees them. It offers a copy to
links (`offer`) in one of three ways, and works out what lies behind a link (`reach`, `audience`):

* `TREE`: along the path tree of its origin, so that no broker gets it twice;
* `LATE`: it waits in the queues of all links that lead nearer to a subscriber, and the link
  that takes it first binds the path; the copy names the homes it is for;
* `MATCH`: every broker matches again and sends to all next hops, so that copies may meet.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import DIRECT, Audience
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.mesh.message import Copy, Offer, Waiting
from timebound.core.mesh.neighbour import Neighbour, Reach
from timebound.core.mesh.options import LATE, TREE
from timebound.core.mesh.overlay import LinkState, Way
from timebound.core.mesh.pressure import EXHAUSTED, ROOM
from timebound.core.mesh.table import HomeGroup, SubscriptionTable

# A copy never returns to a broker it has passed. Where it had to turn round at a failed link that is
# forgotten; this many links end such a journey whatever fails.
HOPS_MAX: Final = 64


class Router:
    """The ways out of one broker; `neighbours` are its links by name."""

    __slots__ = ("_numbers", "_version", "links", "name", "neighbours", "routing", "table")

    def __init__(self, name: str, links: LinkState, table: SubscriptionTable, routing: int) -> None:
        self.name = name
        self.links = links
        self.table = table
        self.routing = routing
        self.neighbours: dict[str, Neighbour] = {}
        self._version = links.version
        self._numbers: dict[str, int] = {}  # of brokers, as bits of what a message passes

    def offer(self, copy: Copy, waiting: Waiting) -> list[HomeGroup]:
        """Offer a copy to the links it may take; gives the groups that no link leads to."""
        if self._version != self.links.version:
            self.forget_paths()
        if self.routing == LATE:
            return self._offer_late(copy, waiting)
        if self.routing == TREE:
            return self._offer_single(copy, waiting)
        return self._offer_again(copy, waiting)

    def _offer_single(self, copy: Copy, waiting: Waiting) -> list[HomeGroup]:
        """One way per home: along the path tree of the origin while it leads there, else the best."""
        what = copy.what
        targets = copy.targets
        ways = self.links.tree(what.origin).ways_from(self.name)
        by_neighbour: dict[str, list[HomeGroup]] = {}
        ended: list[HomeGroup] = []
        for group in what.groups(self.table):
            home = group.home
            if targets is not None and home not in targets:
                continue
            way = ways.get(home)
            if way is None and home != self.name and copy.hops < HOPS_MAX:
                way = self.links.tree(self.name).ways_from(self.name).get(home)
            if way is not None and self._is_open(way.neighbour, copy):
                _add(by_neighbour, way.neighbour, group)
                waiting.places[home] = 1
            else:
                ended.append(group)
        _make_offers(waiting, by_neighbour)
        return ended

    def _offer_late(self, copy: Copy, waiting: Waiting) -> list[HomeGroup]:
        """All ways that lead nearer: the message waits for each of them."""
        downhill = self.links.downhill(self.name)
        targets = copy.targets
        by_neighbour: dict[str, list[HomeGroup]] = {}
        ended: list[HomeGroup] = []
        for group in copy.what.groups(self.table):
            home = group.home
            if targets is not None and home not in targets:
                continue
            ways = downhill.get(home)
            places = 0
            if ways is not None and copy.hops < HOPS_MAX:
                for way in ways:
                    if self._is_open(way.neighbour, copy):
                        places += 1
                        _add(by_neighbour, way.neighbour, group)
            if places:
                waiting.places[home] = places
            else:
                ended.append(group)
        _make_offers(waiting, by_neighbour)
        return ended

    def _offer_again(self, copy: Copy, waiting: Waiting) -> list[HomeGroup]:
        """Every matching next hop as this broker sees it, whoever else sends there."""
        ways = self.links.tree(self.name).ways_from(self.name)
        by_neighbour: dict[str, list[HomeGroup]] = {}
        ended: list[HomeGroup] = []
        for group in copy.what.groups(self.table):
            way = ways.get(group.home)
            if way is None:
                if group.home == self.name:
                    ended.append(group)
            elif self._is_open(way.neighbour, copy):
                _add(by_neighbour, way.neighbour, group)
        _make_offers(waiting, by_neighbour)
        return ended

    def _is_open(self, name: str, copy: Copy) -> bool:
        return self.neighbours[name].is_up and name not in copy.via

    # What a message is worth behind a link.

    def audience(self, neighbour: Neighbour, groups: list[HomeGroup]) -> Audience:
        """Whom a message for these groups has behind a link, in the terms of its queue."""
        return neighbour.audience(groups, [self.reach(neighbour, group.home) for group in groups])

    def reach(self, neighbour: Neighbour, home: str) -> Reach:
        """What it takes to get over a link to a home."""
        known = neighbour.reaches.get(home)
        if known is not None:
            return known
        path = DIRECT
        for way in self.links.downhill(self.name).get(home, []):
            if way.neighbour == neighbour.name:
                path = way.path
        return neighbour.reach(home, path, self._passed(neighbour.name, home))

    def _passed(self, name: str, home: str) -> int:
        """The brokers that a message passes over a neighbour to a home, a bit for each."""
        parents = self.links.tree(name).parents
        passed = 1 << self._number(name)
        broker = home
        while broker != name and broker in parents:
            passed |= 1 << self._number(broker)
            broker = parents[broker]
        return passed

    def _number(self, broker: str) -> int:
        return self._numbers.setdefault(broker, len(self._numbers))

    def waits(self) -> dict[str, int]:
        """How long messages wait from here to each home, over the shortest of its ways."""
        waits: dict[str, int] = {}
        for home, ways in self.links.downhill(self.name).items():
            least = NEVER_NS
            for way in ways:
                neighbour = self.neighbours[way.neighbour]
                wait_ns = int(neighbour.wait_ns) + neighbour.wait_beyond_ns(home)
                if wait_ns < least:
                    least = wait_ns
            waits[home] = least
        return waits

    def levels(self) -> dict[str, int]:
        """How full the ways from here to each home are, where even the emptiest has no room."""
        levels: dict[str, int] = {}
        if not any([neighbour.is_pressed() for neighbour in self.neighbours.values()]):
            return levels
        for home, ways in self.links.downhill(self.name).items():
            least = EXHAUSTED
            for name in self._names_of(home, ways):
                level = self.neighbours[name].level_to(home)
                if level < least:
                    least = level
            if least > ROOM:
                levels[home] = least
        return levels

    def leads_to(self, home: str) -> bool:
        """Whether a way to a home is open."""
        ways = self.links.downhill(self.name).get(home)
        return ways is not None and any([self.neighbours[way.neighbour].is_up for way in ways])

    def carries(self, home: str, size: int) -> bool:
        """Whether one of this broker's own links that lead to a home takes a message of this size."""
        ways = self.links.downhill(self.name).get(home)
        if ways is None:
            return True  # it waits until one leads there
        for name in self._names_of(home, ways):
            if not 0 < self.neighbours[name].size_max < size:
                return True
        return False

    def _names_of(self, home: str, ways: list[Way]) -> list[str]:
        """The neighbours over which messages for a home may go."""
        if self.routing == LATE:
            return [way.neighbour for way in ways]
        way = self.links.tree(self.name).ways_from(self.name).get(home)
        return [] if way is None else [way.neighbour]

    def forget_paths(self) -> None:
        """The overlay has changed: what was worked out from its paths no longer holds."""
        self._version = self.links.version
        for neighbour in self.neighbours.values():
            neighbour.forget_paths()


def _make_offers(waiting: Waiting, by_neighbour: dict[str, list[HomeGroup]]) -> None:
    for name, groups in by_neighbour.items():
        waiting.offers.append(Offer(waiting, name, groups))


def _add(by_neighbour: dict[str, list[HomeGroup]], name: str, group: HomeGroup) -> None:
    known = by_neighbour.get(name)
    if known is None:
        by_neighbour[name] = [group]
    else:
        known.append(group)
