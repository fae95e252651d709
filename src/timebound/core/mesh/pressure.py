"""How full the ways out of a broker are, and what waits until a broker can be reached again.

A message without a time limit is not dropped for want of room: its publisher waits instead. A
`Gauge` tells when: at its limit it says FULL, and publishers wait; at half of it they go on. What
comes meanwhile, of publishers that had not been told yet and of other brokers, is taken in up to
EXHAUSTED. Copies from other brokers never wait for anything but a link, so links that are full in
a circle cannot stop each other.

`Parking` keeps QoS 1 and 2 messages for brokers to which no way leads at the moment.
"""

from __future__ import annotations

from typing import Final

from timebound.core.mesh.message import Copy

ROOM: Final = 0
FULL: Final = 1
EXHAUSTED: Final = 2

# EXHAUSTED in multiples of the limit. Every publisher may have as many messages under way as its Receive
# Maximum allows when a link fills up: this has room for some seventy that all send as fast as they can.
EXHAUSTED_TIMES: Final = 8


class Gauge:
    """The level of one store of messages, with hysteresis."""

    __slots__ = ("bytes_max", "level", "messages_max")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.level = ROOM

    def note(self, messages: int, size_bytes: int) -> bool:
        """Say what the store holds; whether the level has changed."""
        before = self.level
        times = max(messages / self.messages_max, size_bytes / self.bytes_max)
        if times >= EXHAUSTED_TIMES:
            self.level = EXHAUSTED
        elif times <= 0.5:
            self.level = ROOM
        elif before == ROOM:
            self.level = FULL if times >= 1.0 else ROOM
        elif times <= EXHAUSTED_TIMES / 2:
            self.level = FULL
        return self.level != before


class Parking:
    """Copies for homes that cannot be reached, by home, in order of arrival.

    A home that stays away for longer than `grace_ns` is taken to be gone: nothing waits for it then.
    """

    __slots__ = ("_bytes", "_copies", "_lost", "_messages", "gauge", "grace_ns")

    def __init__(self, grace_ns: int, messages_max: int, bytes_max: int) -> None:
        self.grace_ns = grace_ns
        self.gauge = Gauge(messages_max, bytes_max)  # of all homes together
        self._copies: dict[str, list[Copy]] = {}
        self._lost: dict[str, int] = {}  # by home, since when
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._messages

    def put(self, home: str, copy: Copy, now_ns: int) -> bool:
        """Keep a copy until its home can be reached; False if it has been away too long."""
        if now_ns - self._lost.setdefault(home, now_ns) >= self.grace_ns:
            return False
        self._copies.setdefault(home, []).append(copy)
        self._messages += 1
        self._bytes += copy.what.size_bytes
        self.gauge.note(self._messages, self._bytes)
        return True

    def homes(self) -> list[str]:
        """Those that could not be reached when they were last asked for."""
        return list(self._lost)

    def take(self, home: str) -> list[Copy]:
        """What waits for a home that can be reached again."""
        self._lost.pop(home, None)
        return self._remove(home)

    def take_gone(self, now_ns: int) -> list[Copy]:
        """What waits for homes that have been away too long."""
        gone: list[Copy] = []
        for home, lost_ns in self._lost.items():
            if now_ns - lost_ns >= self.grace_ns:
                gone += self._remove(home)
        return gone

    def has_copies(self, home: str) -> bool:
        return home in self._copies

    def _remove(self, home: str) -> list[Copy]:
        copies = self._copies.pop(home, [])
        self._messages -= len(copies)
        for copy in copies:
            self._bytes -= copy.what.size_bytes
        self.gauge.note(self._messages, self._bytes)
        return copies
