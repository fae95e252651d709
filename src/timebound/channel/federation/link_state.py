"""Link-state routing in a federation: which channel wants what, and the path of each event. Pure: no IO.

Every channel advertises its neighbours and what its own consumers want to all others. From the same adverts
each computes the same shortest-path tree for each origin, so an event takes one path to each channel that
wants it, and returns to none. While adverts are still spreading a copy may take two paths; `SeenEvents`
accepts only the first.

A medium that many channels share, such as a broker, is a node that does not advertise: its neighbours are the
channels that name it. Names of media begin with `$`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from timebound.channel.base.dependency import Key, fits

# Computing a tree visits every channel; for more channels a mesh of brokers is the right tool.
CHANNELS_MAX: Final = 256
# Paths remembered; cleared when full, and whenever an advert changes.
WAYS_MAX: Final = 10_000
# How far behind the newest event of an origin an older one may arrive and still be recognised as new.
SEEN_WINDOW: Final = 4_096
MEDIUM_PREFIX: Final = "$"


class Advert(msgspec.Struct, frozen=True, tag_field="frame", tag="advert", array_like=True):
    """A link-state advertisement of one channel; a higher version replaces a lower one."""

    channel: str
    version: int
    neighbours: tuple[str, ...]
    wants: tuple[Key, ...]


class Carried(msgspec.Struct, frozen=True, tag_field="frame", tag="event", array_like=True):
    """An event between channels, named by its origin and its number there."""

    type: str
    source: str
    payload: object
    origin: str
    sequence: int


Frame = Advert | Carried


class SeenEvents:
    """Recognises repeated events by origin and sequence, in bounded memory."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._recent: dict[str, set[int]] = {}

    def is_new(self, origin: str, sequence: int) -> bool:
        """Whether this event is seen for the first time; it is remembered."""
        recent = self._recent.get(origin)
        if recent is None:
            if len(self._recent) >= CHANNELS_MAX:
                return False
            recent = self._recent[origin] = set()
            self._newest[origin] = sequence
        newest = self._newest[origin]
        if sequence in recent or sequence <= newest - SEEN_WINDOW:
            return False
        recent.add(sequence)
        if sequence > newest:
            self._newest[origin] = sequence
        if len(recent) > 2 * SEEN_WINDOW:
            limit = self._newest[origin] - SEEN_WINDOW
            self._recent[origin] = {number for number in recent if number > limit}
        return True


class Federation:
    """One channel's knowledge of all others, and the paths that follow from it."""

    def __init__(self, name: str) -> None:
        if name.startswith(MEDIUM_PREFIX):
            raise ValueError(f"channel name {name!r} begins with {MEDIUM_PREFIX}, which marks shared media")
        self.name: Final = name
        self._adverts: dict[str, Advert] = {}
        self._ways: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self._trees: dict[str, dict[str, str]] = {}

    def adverts(self) -> list[Advert]:
        """Return all adverts, this channel's own included, by name."""
        return [self._adverts[name] for name in sorted(self._adverts)]

    def learn(self, advert: Advert) -> bool:
        """Store an advert; return True when it is new and should be passed on."""
        known = self._adverts.get(advert.channel)
        if known is not None and known.version >= advert.version:
            return False
        if known is None and len(self._adverts) >= CHANNELS_MAX:
            return False
        self._adverts[advert.channel] = advert
        self._ways.clear()
        self._trees.clear()
        return True

    def advert_of(self, channel: str) -> Advert | None:
        return self._adverts.get(channel)

    def neighbours_of(self, node: str) -> list[str]:
        """Return the nodes joined to `node`: both ends must advertise it, except for a medium."""
        if node.startswith(MEDIUM_PREFIX):
            return sorted(name for name, advert in self._adverts.items() if node in advert.neighbours)
        own = self._adverts.get(node)
        if own is None:
            return []
        return sorted(other for other in set(own.neighbours) if self._agrees(other, node))

    def _agrees(self, other: str, node: str) -> bool:
        if other.startswith(MEDIUM_PREFIX):
            return True
        advert = self._adverts.get(other)
        return advert is not None and node in advert.neighbours

    def tree(self, origin: str) -> dict[str, str]:
        """Return the predecessor of every node on the shortest path from `origin`; first names win ties."""
        known = self._trees.get(origin)
        if known is not None:
            return known
        before = {origin: ""}
        queue = deque([origin])
        while queue:
            node = queue.popleft()
            for neighbour in self.neighbours_of(node):
                if neighbour not in before:
                    before[neighbour] = node
                    queue.append(neighbour)
        self._trees[origin] = before
        return before

    def next_hops(self, origin: str, event_type: str, source: str) -> tuple[str, ...]:
        """Return the neighbours to which this channel passes an event of `origin`."""
        key = (origin, event_type, source)
        hops = self._ways.get(key)
        if hops is None:
            if len(self._ways) >= WAYS_MAX:
                self._ways.clear()
            hops = tuple(sorted(self._hops_to(origin, self._wanting(event_type, source))))
            self._ways[key] = hops
        return hops

    def _wanting(self, event_type: str, source: str) -> list[str]:
        return [
            name
            for name, advert in self._adverts.items()
            if any(fits(key, event_type, source) for key in advert.wants)
        ]

    def _hops_to(self, origin: str, targets: list[str]) -> set[str]:
        tree = self.tree(origin)
        hops: set[str] = set()
        for target in targets:
            node = target if target in tree else ""
            while node and node != origin:
                if tree[node] == self.name:
                    hops.add(node)
                node = tree[node]
        return hops

    def wants_beyond(self, neighbour: str) -> list[Key]:
        """Return everything that may have to go to a neighbour: what the channels behind it want, sorted."""
        return self._wanted_behind(self.name, neighbour, list(self._adverts))

    def wants_from(self, medium: str) -> list[Key]:
        """Return everything that this channel and those behind it may have to take from a shared medium.

        That includes events of unknown channels, which may push before their own adverts arrive.
        """
        return self._wanted_behind(medium, self.name, [*self._adverts, medium])

    def _wanted_behind(self, near: str, far: str, origins: list[str]) -> list[Key]:
        found: set[Key] = set()
        for origin in origins:
            tree = self.tree(origin)
            for target, advert in self._adverts.items():
                if advert.wants and target in tree and _passes(tree, target, near, far):
                    found.update(advert.wants)
        return sorted(found)


def _passes(tree: dict[str, str], target: str, near: str, far: str) -> bool:
    """Whether the path to `target` contains the edge from `near` to `far`."""
    node = target
    while node:
        if node == far and tree[node] == near:
            return True
        node = tree[node]
    return False
