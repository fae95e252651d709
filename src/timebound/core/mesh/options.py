"""How a broker of a mesh is set up, and the orders it gives its driver."""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.queue import BYTES_MAX, MESSAGES_MAX
from timebound.core.link.strategy.base import Strategy
from timebound.core.mesh.message import Copy
from timebound.core.mesh.table import HomeGroup

# How a message finds its way; `routes.py` explains them.
TREE: Final = 0
LATE: Final = 1

# ε of a mesh: messages queue at later brokers too, so less than this is hardly ever kept.
MESH_EPSILON: Final = 0.1
# A link leaves a group to another way that promises more than 1 / this much of its own worth.
PREFERENCE: Final = 0.7
# How much of the waiting time that neighbours report is counted on. The mean is of messages that
# were chosen; what is urgent or worth much waits less.
WAITING_SHARE: Final = 0.4
# How soon what is worth little is given up before a congested way (docs/decisions/0055), and how much of
# the usual worth is always enough. Off unless it is asked for: it costs earnings on ordinary meshes.
THRIFT: Final = 0.0
THRIFT_MOST: Final = 0.75


class MeshOptions:
    """How a broker of the mesh decides; the same for all its links.

    `preference` 0 lets the first free link take all it can reach, `waiting_share` 0 ignores what
    neighbours report. `send_cost` is what sending a message over one link costs, in the unit of
    prices: what is not expected to earn the cost of its whole way is given up, and its place on the
    links goes to what is worth more. `thrift` does the same in proportion to how congested the way is,
    and to what is usually sent there; 0 leaves that out.

    `is_lossless` keeps what has no time limit however full a queue is, for a driver that has publishers wait
    (`pressure.py`); `grace_ns` is for how long QoS 1 and 2 wait for a broker that cannot be reached.
    """

    __slots__ = (
        "bytes_max",
        "epsilon",
        "grace_ns",
        "is_lossless",
        "is_thrifty",
        "message_bytes",
        "messages_max",
        "preference",
        "processing_ns",
        "routing",
        "send_cost",
        "strategy",
        "thrift",
        "waiting_share",
    )

    def __init__(
        self,
        strategy: Strategy,
        *,
        routing: int = LATE,
        epsilon: float = MESH_EPSILON,
        preference: float = PREFERENCE,
        waiting_share: float = WAITING_SHARE,
        send_cost: float = 0.0,
        thrift: float = THRIFT,
        processing_ns: int = 0,
        message_bytes: int = 0,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        is_lossless: bool = False,
        grace_ns: int = 0,
    ) -> None:
        if not 0.0 <= preference <= 1.0 or not 0.0 <= waiting_share <= 1.0:
            raise ValueError(
                f"preference={preference}, waiting_share={waiting_share}; both must be between 0 and 1"
            )
        if not 0.0 <= send_cost < math.inf:
            raise ValueError(f"send_cost={send_cost} is not a finite number of at least 0")
        if not 0.0 <= thrift < math.inf:
            raise ValueError(f"thrift={thrift} is not a finite number of at least 0")
        self.strategy = strategy
        self.routing = routing
        self.epsilon = epsilon
        self.preference = preference
        self.waiting_share = waiting_share
        self.send_cost = send_cost
        self.thrift = thrift
        self.is_thrifty = send_cost > 0.0 or thrift > 0.0
        self.processing_ns = processing_ns
        self.message_bytes = message_bytes  # behind FT; 0 learns it
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.is_lossless = is_lossless
        self.grace_ns = grace_ns


class Send:
    """An order to the driver: send this copy to that neighbour now, and say when the link is free."""

    __slots__ = ("copy", "neighbour", "queued_ns")

    def __init__(self, neighbour: str, copy: Copy, queued_ns: int) -> None:
        self.neighbour = neighbour
        self.copy = copy
        self.queued_ns = queued_ns


class LocalDelivery:
    """A message has reached the broker of these subscribers."""

    __slots__ = ("copy", "group")

    def __init__(self, copy: Copy, group: HomeGroup) -> None:
        self.copy = copy
        self.group = group
