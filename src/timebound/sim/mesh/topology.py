"""Which brokers there are and which links join them.

A topology is names and directed links only; how fast a link is belongs to the network, who
publishes and subscribes where to the workload. Layers are counted from the publishers' side:
`layer_of` lets a scenario say "publishers at the first layer, subscribers at the last".
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random
from typing import Final

# A scenario with more is a slip of the pen: path trees alone would take gigabytes.
BROKERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Topology:
    """Brokers by name, links as (source, target), and each broker's layer from 0."""

    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    layers: tuple[int, ...]

    def at_layer(self, layer: int) -> list[str]:
        """The brokers of a layer; -1 is the last one."""
        wanted = layer if layer >= 0 else max(self.layers) + 1 + layer
        return [broker for broker, its in zip(self.brokers, self.layers, strict=True) if its == wanted]


def layered(sizes: list[int], parents: int, random: Random) -> Topology:
    """Layers of brokers, links from each layer to the next.

    The second layer is joined to all of the first, every later broker to `parents` random brokers
    of the layer before it. Messages only go down: links have one direction.
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
    """An acyclic overlay: a tree of brokers, links in both directions."""
    _check(brokers)
    names = [_name(number) for number in range(brokers)]
    pairs = [((number - 1) // children, number) for number in range(1, brokers)]
    depths = [0] * brokers
    for parent, child in pairs:
        depths[child] = depths[parent] + 1
    return Topology(tuple(names), _both_ways(names, pairs), tuple(depths))


def ring(brokers: int) -> Topology:
    """A ring, links in both directions; all brokers are of one layer."""
    _check(brokers)
    names = [_name(number) for number in range(brokers)]
    pairs = [(number, (number + 1) % brokers) for number in range(brokers if brokers > 2 else 1)]
    return Topology(tuple(names), _both_ways(names, pairs), (0,) * brokers)


def transit_stub(
    transit: int, stubs: int, stub_brokers: int, random: Random, extra_links: float = 0.3
) -> Topology:
    """A core of transit brokers in a ring with chords; each serves `stubs` small domains.

    Transit brokers are layer 0, stub brokers layer 1. `extra_links` is the share of further random
    links inside the core and inside each domain, beyond the ring and the chain that join them.
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


def from_links(links: list[tuple[str, str]], both_ways: bool) -> Topology:
    """The overlay of these links; layers count links from the brokers that none leads to."""
    pairs: dict[tuple[str, str], None] = {}
    for source, target in links:
        pairs[(source, target)] = None
        if both_ways:
            pairs[(target, source)] = None
    names = sorted({name for pair in pairs for name in pair})
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
        raise ValueError(f"topology has {brokers} brokers; want 1 to {BROKERS_MAX}")
