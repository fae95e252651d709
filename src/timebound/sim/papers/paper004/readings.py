"""What the paper on IndiQoS leaves open, and the answers to choose from; the first of each is the default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

LITERAL: Final = "literal"
# Transit domains, transit brokers in each, stubs at each of these, and brokers in each stub: always 252.
GRAPHS: Final = {
    "4x3-2x10": (4, 3, 2, 10),
    "4x3-4x5": (4, 3, 4, 5),
    "3x3-3x9": (3, 3, 3, 9),
    "4x7-2x4": (4, 7, 2, 4),
    "6x6-2x3": (6, 6, 2, 3),
    "1x7-5x7": (1, 7, 5, 7),
}
# Milliseconds of a link between domains, in one, to a stub, and in a stub; the share by which they spread.
LATENCIES: Final = {
    "spread": ((50.0, 20.0, 10.0, 2.0), 0.5),
    "constants": ((10.0, 10.0, 5.0, 1.0), 0.0),
    "flat": ((10.0, 10.0, 10.0, 10.0), 0.0),
}


@dataclass(frozen=True, slots=True)
class Assumptions:
    """One answer to each open question."""

    graph: str = "4x3-2x10"
    latencies: str = "spread"
    capacity: str = "direction"  # 8 on every link and direction; `both` directions share; `wide` in transit
    sharing: str = "hop"  # of each overlay hop of a type's tree; `nothing`; `link`: each link once per type
    repeat: str = "own"  # who asks again for a type gets a path of its own; or is `refused`
    dht: str = "base16"  # or `base2`; or `direct`: one hop to the rendezvous
    counting: str = "physical"  # a control message counts on each link; or `overlay`: once per overlay hop
    floods: str = "every"  # change of a link is flooded by FNS; `half`: of 50 %; `full`: full or not only
    requests: str = "twice"  # FR sends requests over each link both ways; or once: `pruned`
    end: str = "refusals"  # 100 in a row; `offered`: each pair once; `departures`: arrivals and departures


ALTERNATIVES: Final = {
    **{f"graph-{name}": {"graph": name} for name in list(GRAPHS)[1:]},
    "constant-latencies": {"latencies": "constants"},
    "flat-latencies": {"latencies": "flat"},
    "shared-directions": {"capacity": "both"},
    "wide-transit": {"capacity": "wide"},
    "nothing-shared": {"sharing": "nothing"},
    "links-shared": {"sharing": "link"},
    "repeats-refused": {"repeat": "refused"},
    "dht-base2": {"dht": "base2"},
    "dht-direct": {"dht": "direct"},
    "overlay-messages": {"counting": "overlay"},
    "floods-half": {"floods": "half"},
    "floods-full": {"floods": "full"},
    "fr-pruned": {"requests": "pruned"},
    "offered": {"end": "offered"},
    "departures": {"end": "departures"},
}


def assumptions(reading: str) -> Assumptions:
    """Return the answers that a reading stands for: `literal`, or names joined by +.

    Raises:
        ValueError: a name is unknown.
    """
    found = Assumptions()
    for name in reading.split("+"):
        if name == LITERAL:
            continue
        if name not in ALTERNATIVES:
            known = ", ".join([LITERAL, *ALTERNATIVES])
            raise ValueError(f"reading {name!r} is unknown; choose from {known}")
        found = replace(found, **ALTERNATIVES[name])
    return found
