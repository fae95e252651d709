"""Options of a mesh broker, and the orders that it gives its driver."""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.queue import BYTES_MAX, MESSAGES_MAX
from timebound.core.link.strategy.base import Strategy
from timebound.core.mesh.message import Copy
from timebound.core.mesh.table import HomeGroup

# Routings; `routes.py` explains them.
TREE: Final = 0
LATE: Final = 1

# ε of a mesh. Messages queue at later brokers too, so a smaller probability hardly ever comes true.
MESH_EPSILON: Final = 0.1
# A link leaves a group to another link that is worth more than 1 / this times as much.
PREFERENCE: Final = 0.7
# Share of the reported queueing delays that is counted on. They are means of the messages that were sent;
# urgent or valuable messages wait less.
WAITING_SHARE: Final = 0.4
# How soon messages of little worth are dropped before a congested path (docs/decisions/0055), and the share
# of the usual worth that is always enough. Off by default: it costs earnings on ordinary meshes.
THRIFT: Final = 0.0
THRIFT_MOST: Final = 0.75


class MeshOptions:
    """Options of a forwarder; the same for all its links.

    With `preference` 0 the first free link takes all it can reach; with `waiting_share` 0 delay reports are
    ignored. `send_cost` is the cost of one message over one link, in the unit of prices: messages that are
    not expected to earn the cost of their whole path are dropped, which leaves the links to others. `thrift`
    does the same in proportion to the congestion of the path and the usual worth of what is sent there; 0 =
    off.

    `is_lossless` keeps messages without a time limit however full a queue is, for a driver that makes
    publishers wait (`pressure.py`). With `keeps_order` messages of one publisher, topic, QoS and timeout do
    not overtake each other on a link; the published strategies know no order. With `keeps_fresh` a link gives
    up early what exceeds its capacity, as a session does, and what is in transit is limited by what the
    neighbour confirms; the published networks do not. `grace_ns` is how long QoS 1 and 2 messages wait for a
    home that cannot be reached, `forget_after_ns` how long a broker that is gone is remembered; 0 = for ever.
    """

    __slots__ = (
        "bytes_max",
        "epsilon",
        "forget_after_ns",
        "grace_ns",
        "is_lossless",
        "is_thrifty",
        "keeps_fresh",
        "keeps_order",
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
        keeps_order: bool = True,
        keeps_fresh: bool = False,
        grace_ns: int = 0,
        forget_after_ns: int = 0,
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
        self.message_bytes = message_bytes  # mean size behind FT; 0 = learn it
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.is_lossless = is_lossless
        self.keeps_order = keeps_order
        self.keeps_fresh = keeps_fresh
        self.grace_ns = grace_ns
        self.forget_after_ns = forget_after_ns


class Send:
    """An order: send this copy to that neighbour now, and call `link_free` when the link is free.

    The neighbour confirms it by `packet_id`; 0: it confirms nothing.
    """

    __slots__ = ("copy", "neighbour", "packet_id", "queued_ns")

    def __init__(self, neighbour: str, copy: Copy, queued_ns: int, packet_id: int) -> None:
        self.neighbour = neighbour
        self.copy = copy
        self.queued_ns = queued_ns
        self.packet_id = packet_id


class LocalDelivery:
    """An order: deliver this copy to these subscribers of the broker."""

    __slots__ = ("copy", "group")

    def __init__(self, copy: Copy, group: HomeGroup) -> None:
        self.copy = copy
        self.group = group
