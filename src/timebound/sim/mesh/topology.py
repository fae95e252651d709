"""Brokers and the links between them.

A topology has names and directed links only: rates of links belong to the network, publishers and
subscribers to the workload. Layers count from the publishers' side, so a scenario can place
publishers at the first layer and subscribers at the last.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random
from typing import Final

# More is a mistake in the scenario: path trees alone would take gigabytes.
BROKERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Topology:
    """Brokers by name, links as (source, target), and each broker's layer from 0."""

    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    layers: tuple[int, ...]

    def at_layer(self, layer: int) -> list[str]:
        """Return the brokers of a layer; -1 is the last one."""
        wanted = layer if layer >= 0 else max(self.layers) + 1 + layer
        return [broker for broker, its in zip(self.brokers, self.layers, strict=True) if its == wanted]


def layered(sizes: list[int], parents: int, random: Random) -> Topology:
    """Make layers of brokers, with links from each layer to the next.

    Brokers of the second layer are linked to all of the first, later ones to `parents` random brokers
    of the layer before. Links have one direction: messages only go down.
    """
    _check(sum(sizes))
    layers: list[list[str]] = []
    number = 0
    for size in sizes:
        layers.append([_name(number + index) for index in range(size)])
        number += size
    links: list[tuple[str, str]] = []
    for depth in range(1, len(layers)):
        above = layers[depth - 1]
        for broker in layers[depth]:
            chosen = above if depth == 1 else sorted(random.sample(above, min(parents, len(above))))
            links += [(parent, broker) for parent in chosen]
    brokers = tuple(broker for layer in layers for broker in layer)
    depths = tuple(depth for depth, layer in enumerate(layers) for _ in layer)
    return Topology(brokers, tuple(links), depths)


def tree(brokers: int, children: int) -> Topology:
    """Make a tree of brokers, an acyclic overlay, with links in both directions."""
    _check(brokers)
    names = [_name(number) for number in range(brokers)]
    pairs = [((number - 1) // children, number) for number in range(1, brokers)]
    depths = [0] * brokers
    for parent, child in pairs:
        depths[child] = depths[parent] + 1
    return Topology(tuple(names), _both_ways(names, pairs), tuple(depths))


def ring(brokers: int) -> Topology:
    """Make a ring with links in both directions; all brokers are in layer 0."""
    _check(brokers)
    names = [_name(number) for number in range(brokers)]
    pairs = [(number, (number + 1) % brokers) for number in range(brokers if brokers > 2 else 1)]
    return Topology(tuple(names), _both_ways(names, pairs), (0,) * brokers)


def transit_stub(
    transit: int, stubs: int, stub_brokers: int, random: Random, extra_links: float = 0.3
) -> Topology:
    """Make a core of transit brokers in a ring with chords; each serves `stubs` small domains.

    Transit brokers are layer 0, stub brokers layer 1. `extra_links` is the share of additional random
    links inside the core and inside each domain, beyond the ring and the chain that connect them.
    """
    _check(transit * (1 + stubs * stub_brokers))
    core = list(range(transit))
    pairs = [(number, (number + 1) % transit) for number in range(transit if transit > 2 else transit - 1)]
    pairs += _extra(core, set(pairs), extra_links, random)
    number = transit
    for gateway in core:
        for _ in range(stubs):
            domain = list(range(number, number + stub_brokers))
            number += stub_brokers
            inner = list(itertools.pairwise(domain))
            pairs.append((gateway, random.choice(domain)))
            pairs += inner + _extra(domain, set(inner), extra_links, random)
    names = [_name(index) for index in range(number)]
    depths = tuple(0 if index < transit else 1 for index in range(number))
    return Topology(tuple(names), _both_ways(names, pairs), depths)


def from_links(links: list[tuple[str, str]], both_ways: bool, names_beside: tuple[str, ...] = ()) -> Topology:
    """Make the overlay of these links, and of brokers that may have none.

    A layer is the distance from the brokers without incoming links.
    """
    pairs: dict[tuple[str, str], None] = {}
    for source, target in links:
        pairs[(source, target)] = None
        if both_ways:
            pairs[(target, source)] = None
    names = sorted({name for pair in pairs for name in pair} | set(names_beside))
    _check(len(names))
    targets = {target for _, target in pairs}
    depth = {name: 0 for name in names if name not in targets}
    if not depth:
        return Topology(tuple(names), tuple(pairs), (0,) * len(names))
    frontier = list(depth)
    while frontier:
        following = []
        for source, target in pairs:
            if source in frontier and target not in depth:
                depth[target] = depth[source] + 1
                following.append(target)
        frontier = following
    return Topology(tuple(names), tuple(pairs), tuple(depth.get(name, 0) for name in names))


def _name(number: int) -> str:
    return f"b{number + 1}"


def _both_ways(names: list[str], pairs: list[tuple[int, int]]) -> tuple[tuple[str, str], ...]:
    links: dict[tuple[str, str], None] = {}
    for one, other in pairs:
        links[(names[one], names[other])] = None
        links[(names[other], names[one])] = None
    return tuple(links)


def _extra(
    members: list[int], known: set[tuple[int, int]], share: float, random: Random
) -> list[tuple[int, int]]:
    free = [
        (one, other)
        for index, one in enumerate(members)
        for other in members[index + 1 :]
        if (one, other) not in known and (other, one) not in known
    ]
    return sorted(random.sample(free, min(round(share * len(members)), len(free))))


def _check(brokers: int) -> None:
    if not 1 <= brokers <= BROKERS_MAX:
        raise ValueError(f"topology has {brokers} brokers; expected 1 to {BROKERS_MAX}")
