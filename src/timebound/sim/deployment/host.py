"""What the connections of a simulated node need of it."""

from __future__ import annotations

from typing import Any, Protocol

from timebound.config.limits import Limits
from timebound.config.values import Config
from timebound.core.broker import Broker
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message
from timebound.linking.greeting import Greeting
from timebound.linking.mesh import Mesh
from timebound.sim.deployment.intake import SimIntake
from timebound.sim.deployment.links import Cable
from timebound.sim.deployment.timers import VirtualClock
from timebound.wire.codec import Decoder
from timebound.wire.packets import Packet


class LinkTerms:
    """What the other side of a link granted in the handshake."""

    def __init__(self, keep_alive_s: int, receive_maximum: int, packet_size_max: int) -> None:
        self.keep_alive_s = keep_alive_s
        self.receive_maximum = receive_maximum
        self.packet_size_max = packet_size_max  # 0 = no limit


class Redialling(Protocol):
    """The side of a link that opens it again."""

    def again(self, *, is_failed: bool) -> None: ...


class Host(Protocol):
    """A node, as its connections see it."""

    config: Config
    limits: Limits
    access: AccessList
    broker: Broker
    mesh: Mesh | None
    clock: VirtualClock
    intake: SimIntake
    connections: dict[int, Any]

    def now_ns(self) -> int: ...

    def connected(self) -> int: ...

    def is_storage_behind(self) -> bool: ...

    def count(self, what: str) -> None: ...

    def note_taken(self, message: Message) -> None: ...

    def connect_to(self, name: str) -> Cable | None: ...

    def open_link(
        self,
        greeting: Greeting,
        cable: Cable,
        decoder: Decoder,
        granted: LinkTerms,
        rest: list[Packet],
        dialler: Redialling | None = None,
    ) -> None: ...
