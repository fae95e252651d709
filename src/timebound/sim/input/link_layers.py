"""Link layers before the broker: shared Ethernet, CAN and switched Ethernet.

Each layer takes all frames of a run and returns the time each is received, in the same order.
All frames have the same length. Propagation takes no time, except that two stations which start
within `COLLISION_WINDOW_NS` of each other do not hear each other in time.
"""

from __future__ import annotations

import heapq
from random import Random
from typing import Final, NamedTuple, Protocol

BITS_PER_S: Final = 10_000_000
FRAME_BITS: Final = 512
FRAME_NS: Final = FRAME_BITS * 1_000_000_000 // BITS_PER_S  # 51.2 us; also Ethernet's slot time
COLLISION_WINDOW_NS: Final = 1_000  # 200 m of cable
JAM_NS: Final = 3_200  # 32 bits
BACKOFF_EXPONENT_MAX: Final = 10  # IEEE 802.3, truncated binary exponential backoff
ATTEMPTS_MAX: Final = 16
LOST: Final = -1


class Frame(NamedTuple):
    """A frame that a station has to send; lists of frames are ordered by time."""

    time_ns: int
    station: int
    identifier: int  # CAN: the lower one wins the bus


class LinkLayer(Protocol):
    """A way for stations to share the link to the broker."""

    name: str

    def deliver(self, frames: list[Frame], random: Random) -> list[int]:
        """Return when each frame is received, or LOST."""


class _Stations:
    """Frames that each station still has to send, first in, first out."""

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames
        self.waiting: dict[int, list[int]] = {}
        for index in range(len(frames) - 1, -1, -1):
            self.waiting.setdefault(frames[index].station, []).append(index)
        self.stations = sorted(self.waiting)

    def heads(self) -> list[tuple[int, int]]:
        """Return (station, index of its next frame) for all that have one."""
        return [(station, self.waiting[station][-1]) for station in self.stations if self.waiting[station]]

    def take(self, station: int) -> None:
        self.waiting[station].pop()


class SharedEthernet:
    """CSMA/CD: a station starts when the medium is idle; those that start together collide and back off."""

    name = "CSMA/CD Ethernet"

    def deliver(self, frames: list[Frame], random: Random) -> list[int]:
        received = [LOST] * len(frames)
        stations = _Stations(frames)
        free_ns = 0
        backed_off_ns: dict[int, int] = {}
        attempts: dict[int, int] = {}
        while heads := stations.heads():
            starts = [
                (max(frames[index].time_ns, backed_off_ns.get(station, 0), free_ns), station, index)
                for station, index in heads
            ]
            begin_ns = min(starts)[0]
            contenders = [start for start in starts if start[0] <= begin_ns + COLLISION_WINDOW_NS]
            if len(contenders) == 1:
                _, station, index = contenders[0]
                free_ns = begin_ns + FRAME_NS
                received[index] = free_ns
                stations.take(station)
                attempts[station] = 0
                continue
            free_ns = begin_ns + COLLISION_WINDOW_NS + JAM_NS
            for _, station, _ in contenders:
                attempts[station] = attempts.get(station, 0) + 1
                if attempts[station] >= ATTEMPTS_MAX:
                    stations.take(station)
                    attempts[station] = 0
                    continue
                slots = random.randrange(1 << min(attempts[station], BACKOFF_EXPONENT_MAX))
                backed_off_ns[station] = free_ns + slots * FRAME_NS
        return received


class Can:
    """CSMA/AMP: of the frames waiting when the bus falls idle, the lowest identifier wins."""

    name = "CAN"

    def deliver(self, frames: list[Frame], random: Random) -> list[int]:
        received = [LOST] * len(frames)
        stations = _Stations(frames)
        free_ns = 0
        while heads := stations.heads():
            begin_ns = max(free_ns, min(frames[index].time_ns for _, index in heads))
            ready = [
                (frames[index].identifier, station, index)
                for station, index in heads
                if frames[index].time_ns <= begin_ns
            ]
            _, station, index = min(ready)
            free_ns = begin_ns + FRAME_NS
            received[index] = free_ns
            stations.take(station)
        return received


class SwitchedEthernet:
    """Full duplex: each station has its own wire to a switch, which stores and forwards in order."""

    name = "switched Ethernet"

    def deliver(self, frames: list[Frame], random: Random) -> list[int]:
        received = [LOST] * len(frames)
        wire_free_ns: dict[int, int] = {}
        at_switch: list[tuple[int, int]] = []
        for index, frame in enumerate(frames):
            done_ns = max(frame.time_ns, wire_free_ns.get(frame.station, 0)) + FRAME_NS
            wire_free_ns[frame.station] = done_ns
            at_switch.append((done_ns, index))
        heapq.heapify(at_switch)
        port_free_ns = 0
        while at_switch:
            arrived_ns, index = heapq.heappop(at_switch)
            port_free_ns = max(arrived_ns, port_free_ns) + FRAME_NS
            received[index] = port_free_ns
        return received


LINK_LAYERS: Final[tuple[LinkLayer, ...]] = (SharedEthernet(), Can(), SwitchedEthernet())
