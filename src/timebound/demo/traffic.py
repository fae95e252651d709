"""The traffic of the overload demo: three classes of messages, and the fate of each message.

Alerts are few, small and of high value for a short time; telemetry is most of the traffic; bulk
has no deadline. All grow with the offered load. A message carries its number and the time of
publication in its payload, so the receiver can judge any broker alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from random import Random
from typing import Final

from timebound.units import MILLISECOND, SECOND
from timebound.wire.codec import encode_publish

_STAMP: Final = struct.Struct(">IQ")  # number, monotonic nanoseconds at publication


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """One class of messages; `deadline_ns` 0 = no deadline."""

    name: str
    payload_bytes: int
    deadline_ns: int
    price: float  # earned by a message that is in time
    share: float  # of the bytes offered
    qos_min: int = 0  # of its messages; an experiment may ask for more

    @property
    def topic(self) -> str:
        return f"demo/{self.name}"

    @property
    def frame_bytes(self) -> int:
        """Bytes of one message on the link, without what a broker adds."""
        return len(encode_publish(self.topic, bytes(self.payload_bytes), 0, False, False, 0, b"\0", 5)) - 1

    @property
    def value_per_byte(self) -> float:
        return self.price / self.frame_bytes


CLASSES: Final = (
    TrafficClass("alerts", 200, 250 * MILLISECOND, 10.0, 0.03),
    TrafficClass("telemetry", 400, SECOND, 1.0, 0.57),
    TrafficClass("bulk", 1_200, 0, 1.0, 0.40),
)


@dataclass(slots=True)
class Fate:
    """One message: time of publication, and of arrival (0 = none)."""

    published_ns: int
    arrived_ns: int = 0


@dataclass(slots=True)
class Traffic:
    """All messages of one class in one run, by number."""

    kind: TrafficClass
    fates: list[Fate] = field(default_factory=list)

    def publish(self, now_ns: int) -> bytes:
        """Return the payload of the next message, published now."""
        self.fates.append(Fate(now_ns))
        stamp = _STAMP.pack(len(self.fates) - 1, now_ns)
        return stamp.ljust(self.kind.payload_bytes, b".")

    def arrive(self, payload: bytes, now_ns: int) -> None:
        """Note an arrival; of duplicates the first counts."""
        number, _ = _STAMP.unpack_from(payload)
        fate = self.fates[number]
        if not fate.arrived_ns:
            fate.arrived_ns = now_ns

    def is_in_time(self, fate: Fate) -> bool:
        if not fate.arrived_ns:
            return False
        return not self.kind.deadline_ns or fate.arrived_ns - fate.published_ns <= self.kind.deadline_ns

    def in_time(self) -> int:
        return sum(self.is_in_time(fate) for fate in self.fates)

    def late(self) -> int:
        return sum(fate.arrived_ns > 0 for fate in self.fates) - self.in_time()

    def delays_ns(self) -> list[int]:
        """Return the delays from publication to arrival, sorted."""
        return sorted(fate.arrived_ns - fate.published_ns for fate in self.fates if fate.arrived_ns)


def plan(kind: TrafficClass, bytes_per_s: float, seconds: float, seed: int) -> list[float]:
    """Return the seconds at which messages of a class are due: at random, on average at this rate.

    The same seed gives the same plan, so every broker gets the same load.
    """
    random = Random(f"{seed} {kind.name}")
    mean_s = kind.frame_bytes / (bytes_per_s * kind.share)
    due: list[float] = []
    at_s = random.expovariate(1 / mean_s)
    while at_s < seconds:
        due.append(at_s)
        at_s += random.expovariate(1 / mean_s)
    return due
