"""The ways between two brokers of a mesh as it is now, and the chance of each to be in time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

from timebound.core.mesh.member import COPY_BYTES
from timebound.core.mesh.overlay import LinkState
from timebound.core.values.delay import KILOBYTE, LinkDelay, normal_cdf
from timebound.errors import TimeboundError

WAYS_MAX: Final = 8
# Ways that are looked at, at most, before the best are chosen: a dense mesh has a great many.
LOOKED_AT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Way:
    """A path of brokers, the expected time of a message over it, and its chance to be in time."""

    brokers: tuple[str, ...]
    time_ms: float
    deviation_ms: float
    queue_delay_ms: float
    chance: float  # 1 without a deadline

    def as_json(self) -> dict[str, object]:
        return {
            "brokers": list(self.brokers),
            "time_ms": round(self.time_ms, 3),
            "deviation_ms": round(self.deviation_ms, 3),
            "queue_delay_ms": round(self.queue_delay_ms, 3),
            "chance": round(self.chance, 6),
        }


def ways_between(
    document: dict[str, Any], source: str, target: str, size_bytes: int, deadline_ms: float
) -> list[Way]:
    """Return the ways that a message may take, as the brokers between would choose, the likeliest first.

    `deadline_ms` 0: the message has none. With late binding every step leads nearer to the target; in
    single-path routing there is one way.

    Raises:
        TimeboundError: a broker is not in the map.
    """
    link_state = _link_state(document)
    for name in (source, target):
        if name not in link_state.brokers():
            known = ", ".join(link_state.brokers()) or "none with links"
            raise TimeboundError(f"the mesh has no broker {name!r}; it has {known}")
    links = {(one["from"], one["to"]): one for one in document["links"]}
    paths = _single_path(link_state, source, target)
    if document["routing"] == "late":
        paths = _late_paths(link_state, source, target)
    size_kb = (size_bytes + COPY_BYTES) / KILOBYTE
    ways = [_way(path, links, size_kb, deadline_ms) for path in paths]
    ways.sort(key=lambda way: (-way.chance, way.time_ms, way.brokers))
    return ways[:WAYS_MAX]


def _link_state(document: dict[str, Any]) -> LinkState:
    link_state = LinkState()
    for one in document["links"]:
        deviation_s = one["deviation_ms_per_kb"] / 1_000
        delay = LinkDelay(one["ms_per_kb"] / 1_000, deviation_s**2, one["jitter_ms"] / 1_000)
        link_state.set_link(one["from"], one["to"], delay)
    return link_state


def _single_path(link_state: LinkState, source: str, target: str) -> list[tuple[str, ...]]:
    parents = link_state.tree(source).parents
    path = [target]
    while path[-1] != source:
        if path[-1] not in parents:
            return []
        path.append(parents[path[-1]])
    return [tuple(reversed(path))]


def _late_paths(link_state: LinkState, source: str, target: str) -> list[tuple[str, ...]]:
    """Return the paths on which every broker is nearer to the target than the one before."""
    found: list[tuple[str, ...]] = []
    unfinished: list[tuple[str, ...]] = [(source,)]
    while unfinished and len(found) + len(unfinished) < LOOKED_AT_MAX:
        path = unfinished.pop()
        if path[-1] == target:
            found.append(path)
            continue
        hops = link_state.downhill(path[-1]).get(target, [])
        unfinished += [(*path, hop.neighbour) for hop in reversed(hops) if hop.neighbour not in path]
    return found


def _way(
    path: tuple[str, ...], links: dict[tuple[str, str], dict[str, Any]], size_kb: float, deadline_ms: float
) -> Way:
    time_ms = variance = waiting_ms = jitter = 0.0
    for ends in itertools.pairwise(path):
        link = links[ends]
        waiting_ms += link.get("queue_delay_ms", 0.0)
        time_ms += size_kb * link["ms_per_kb"] + link.get("latency_ms", 0.0)
        variance += (size_kb * link["deviation_ms_per_kb"]) ** 2
        jitter += link["jitter_ms"] ** 2
    time_ms += waiting_ms
    deviation_ms = max(variance, jitter) ** 0.5
    return Way(path, time_ms, deviation_ms, waiting_ms, _chance(deadline_ms, time_ms, deviation_ms))


def _chance(deadline_ms: float, time_ms: float, deviation_ms: float) -> float:
    if not deadline_ms:
        return 1.0
    if not deviation_ms:
        return float(time_ms <= deadline_ms)
    return normal_cdf((deadline_ms - time_ms) / deviation_ms)
