"""Levels of a broker's queues, and parking for homes that cannot be reached.

Messages without a time limit are never dropped for lack of room: their publishers wait instead. A `Gauge` is
FULL at its limit, and publishers wait; at half the limit they go on. Messages under way in the meantime, from
publishers and from other brokers, are accepted up to EXHAUSTED. Copies from other brokers wait for nothing
but a link, so a circle of full links cannot deadlock.

`Parking` keeps QoS 1 and 2 messages for homes to which no path leads at present.
"""

from __future__ import annotations

from typing import Final

from timebound.core.mesh.message import Copy

ROOM: Final = 0
FULL: Final = 1
EXHAUSTED: Final = 2

# Before the name of a link that QoS 0 publishers wait for, among those of full brokers: no broker has it.
BRAKE: Final = "\0"

# EXHAUSTED as a multiple of the limit. When a link fills up, every publisher may have as many messages under
# way as its Receive Maximum allows: this leaves room for some seventy that send as fast as they can.
EXHAUSTED_TIMES: Final = 8


class Gauge:
    """The level of one queue, with hysteresis."""

    __slots__ = ("bytes_max", "level", "messages_max")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.level = ROOM

    def note(self, messages: int, size_bytes: int) -> bool:
        """Update the level for what the queue holds; return whether it has changed."""
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

    A home that is away for `grace_ns` or longer counts as gone: nothing waits for it any more.
    """

    __slots__ = ("_bytes", "_copies", "_lost", "_messages", "gauge", "grace_ns")

    def __init__(self, grace_ns: int, messages_max: int, bytes_max: int) -> None:
        self.grace_ns = grace_ns
        self.gauge = Gauge(messages_max, bytes_max)  # of all homes together
        self._copies: dict[str, list[Copy]] = {}
        self._lost: dict[str, int] = {}  # by home: when it was first missed
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._messages

    def put(self, home: str, copy: Copy, now_ns: int) -> bool:
        """Keep a copy until its home can be reached; return False if the home is gone."""
        if now_ns - self._lost.setdefault(home, now_ns) >= self.grace_ns:
            return False
        self._copies.setdefault(home, []).append(copy)
        self._messages += 1
        self._bytes += copy.what.size_bytes
        self.gauge.note(self._messages, self._bytes)
        return True

    def homes(self) -> list[str]:
        """Return the homes that could not be reached when last tried."""
        return list(self._lost)

    def take(self, home: str) -> list[Copy]:
        """Remove and return the copies for a home that can be reached again."""
        self._lost.pop(home, None)
        return self._remove(home)

    def take_gone(self, now_ns: int) -> list[Copy]:
        """Remove and return the copies for homes that are gone."""
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
