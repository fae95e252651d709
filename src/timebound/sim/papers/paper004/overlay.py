"""The overlay of IndiQoS: brokers with ids, and routes to the broker of a key by prefixes, as in Bamboo."""

from __future__ import annotations

import hashlib
from typing import Final

from timebound.sim.papers.paper004.network import Network

DIGITS: Final = 16  # of an id that are used: more are never needed for some thousand brokers
LEAVES: Final = 4  # on either side
_BITS: Final = 4 * DIGITS


def id_of(text: str) -> int:
    """Return where a broker or key lies on the ring."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:DIGITS], 16)


class PrefixOverlay:
    """Routes over a table of prefixes, whose entries are the nearest that fit, and a set of leaves."""

    def __init__(self, network: Network, base_bits: int) -> None:
        self._map = network.map
        self._bits = base_bits
        self._ids = {name: id_of(name) for name in network.brokers()}
        self._ring = sorted(self._ids, key=self._ids.__getitem__)
        self._place = {name: place for place, name in enumerate(self._ring)}
        self._entries: dict[tuple[str, int, int], str] = {}
        self._members: dict[tuple[int, int], list[str]] = {}  # by length of a prefix, and prefix
        for name, number in self._ids.items():
            for length in range(_BITS // base_bits + 1):
                self._members.setdefault((length, self._prefix(number, length)), []).append(name)

    def home(self, key: int) -> str:
        """Return the broker of a key: the one whose id is nearest."""
        return min(self._ring, key=lambda name: (_gap(self._ids[name], key), name))

    def route(self, start: str, key: int) -> list[str]:
        """Return the brokers over which a message for a key goes, its home last."""
        home = self.home(key)
        path = [start]
        while path[-1] != home:
            path.append(self._next(path[-1], key, home))
        return path

    def _next(self, name: str, key: int, home: str) -> str:
        if self._is_leaf(name, home):
            return home
        length = self._common(self._ids[name], key)
        entry = self._entry(name, length, key)
        if entry:
            return entry
        # Nobody has a longer prefix: any known broker that is nearer, as a leaf is.
        return min(self._leaves(name), key=lambda leaf: (_gap(self._ids[leaf], key), leaf))

    def _entry(self, name: str, length: int, key: int) -> str:
        """Return the nearest broker whose prefix is longer by one digit; empty if there is none."""
        digit = self._prefix(key, length + 1)
        known = self._entries.get((name, length, digit))
        if known is None:
            fitting = [one for one in self._members.get((length + 1, digit), []) if one != name]
            known = min(fitting, key=lambda one: (self._map.distance_ns(name, one), one), default="")
            self._entries[name, length, digit] = known
        return known

    def _leaves(self, name: str) -> list[str]:
        place, count = self._place[name], len(self._ring)
        steps = [step for step in range(-LEAVES, LEAVES + 1) if step]
        return [self._ring[(place + step) % count] for step in steps]

    def _is_leaf(self, name: str, home: str) -> bool:
        gap = abs(self._place[name] - self._place[home])
        return min(gap, len(self._ring) - gap) <= LEAVES

    def _prefix(self, number: int, length: int) -> int:
        return number >> (_BITS - length * self._bits)

    def _common(self, one: int, other: int) -> int:
        length = 0
        while self._prefix(one, length + 1) == self._prefix(other, length + 1):
            length += 1
        return length


class DirectOverlay:
    """Every broker knows all others, and the home of a key is the one with the largest weight for it."""

    def __init__(self, network: Network) -> None:
        self._names = network.brokers()

    def route(self, start: str, key: int) -> list[str]:
        home = max(self._names, key=lambda name: id_of(f"{name} {key}"))
        return [start] if start == home else [start, home]


def make_overlay(network: Network, dht: str) -> PrefixOverlay | DirectOverlay:
    if dht == "direct":
        return DirectOverlay(network)
    return PrefixOverlay(network, 1 if dht == "base2" else 4)


def _gap(one: int, other: int) -> int:
    """Return the distance on the ring."""
    gap = abs(one - other)
    return min(gap, (1 << _BITS) - gap)
