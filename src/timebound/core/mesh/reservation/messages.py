"""What brokers tell each other about reserved paths, and what a subscriber's broker asks for and hears."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from timebound.core.mesh.reservation.network_map import Link

# Why a link or broker cannot be passed.
FULL: Final = "full"
DETOUR: Final = "detour"  # the flow comes there by a way that takes too long
DOWN: Final = "down"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a subscriber asks for: a flow from its publisher's broker, with bandwidth and latency."""

    flow: str
    root: str  # the broker of the publisher
    amount: int
    latency_max_ns: int = 0  # 0 = any


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A link that cannot be used, why, and what is free there."""

    link: Link
    reason: str
    free: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """From the subscriber's broker towards the publisher's: hold the demand on the link to the sender."""

    request: str
    demand: Demand
    way: tuple[str, ...]  # the brokers still to pass, the publisher's last
    latency_ns: int  # from the receiver of this to the subscriber's broker
    limit_ns: int  # for the whole way; 0 = any


@dataclass(frozen=True, slots=True)
class Commit:
    """Back towards the subscriber's broker: the link that this passes is reserved."""

    request: str
    flow: str
    latency_ns: int  # from the publisher's broker to the receiver of this


@dataclass(frozen=True, slots=True)
class Refuse:
    """Back towards the subscriber's broker: what is in the way, and what else is full nearby."""

    request: str
    flow: str
    obstacles: tuple[Obstacle, ...]


@dataclass(frozen=True, slots=True)
class Prune:
    """Towards the publisher's broker: nobody behind this link needs the flow any more.

    `request` is that of the last commit the sender had over the link: who has sent a newer one ignores this.
    """

    flow: str
    request: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Away from the publisher's broker: the flow does not come here any more."""

    flow: str


ReservationMessage = Hold | Commit | Refuse | Prune | Lost


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of a request at the subscriber's broker."""

    request: str
    is_granted: bool
    latency_ns: int = 0
    obstacles: tuple[Obstacle, ...] = field(default=())
    tries: int = 1
