"""What waits of one kind on one link, and how much of it the link will carry in time.

Entries that are worth about as much per byte and may take about as long compete only for what the
link leaves to their kind. When more of them wait than that part carries before the newest is late,
some will be lost whatever is done. Losing the oldest costs no more than losing the newest, keeps
their order, and leaves time to spare for all that is sent: where the link gives a kind the part r of
what it is offered, an entry is sent at r of its time, not at its end. That time is for what no
queue sees: buffers in relays, radios and routers (docs/scheduling.md, "Fresh under overload").
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.strategy.entry import Entry, Link

# The part of the link that a kind gets is measured over this many times its time limit. A burst that is
# over before does not count as overload: its messages wait, and are sent when it is over.
MEMORY: Final = 2.0
# A kind keeps at least so much of its time limit's worth of bytes, however little of the link it gets.
PART_MIN: Final = 0.1
# Overload that has lasted this many time limits will go on: only half of the time limit is used then.
LASTING: Final = 2.0
LASTING_PART: Final = 0.5
# Kinds are half an octave wide, in time and in worth per byte.
_PER_OCTAVE: Final = 2.0
_WORTH_MIN: Final = 1e-30
_LEVELS: Final = 1_024
_LIMITS: Final = 256


class Backlog:
    """The waiting entries of one kind, oldest first, linked through the entries themselves.

    `level` says what their bytes are worth.
    """

    __slots__ = (
        "_since_ns",
        "_until_ns",
        "allowed",
        "head",
        "key",
        "lane",
        "level",
        "part",
        "size",
        "tail",
    )

    def __init__(self, entry: Entry) -> None:
        self.key = kind_of(entry)
        self.lane = entry.lane
        self.level = entry.level
        self.allowed = max(float(entry.drop_ns - entry.published_ns), 1.0)
        self.head: Entry | None = None
        self.tail: Entry | None = None
        self.size = 0.0  # bytes
        self.part = 1.0  # of the link that it can have; all of it, until that proves wrong
        self._since_ns = 0  # since when it has been giving up entries, and until when that counts
        self._until_ns = 0

    def append(self, entry: Entry) -> None:
        tail = self.tail
        entry.backlog = self
        entry.kind_previous = tail
        if tail is None:
            self.head = entry
        else:
            tail.kind_next = entry
        self.tail = entry
        self.size += entry.size

    def remove(self, entry: Entry) -> None:
        before = entry.kind_previous
        after = entry.kind_next
        if before is None:
            self.head = after
        else:
            before.kind_next = after
        if after is None:
            self.tail = before
        else:
            after.kind_previous = before
        entry.backlog = None
        entry.kind_previous = None
        entry.kind_next = None
        self.size -= entry.size

    def sent(self, size: float, link: Link, is_free: bool) -> None:
        """Count what the link sent: free for these, or for others that come before them."""
        weight = size * link.mean_ns_per_byte / (MEMORY * self.allowed)
        if weight > 1.0:
            weight = 1.0
        self.part += weight * ((1.0 if is_free else 0.0) - self.part)

    def room(self, entry: Entry, link: Link, now_ns: int) -> float:
        """How many bytes can wait up to the newest entry, this one, and all be sent in time."""
        part = self.part if self.part > PART_MIN else PART_MIN
        if self.is_giving_up(now_ns) and float(now_ns - self._since_ns) > LASTING * self.allowed:
            part *= LASTING_PART
        per_byte = link.mean_ns_per_byte
        return part * float(entry.drop_ns - now_ns) / per_byte if per_byte > 0.0 else math.inf

    def give_up(self, now_ns: int) -> None:
        """Note that an entry leaves for those behind it."""
        if not self.is_giving_up(now_ns):
            self._since_ns = now_ns
        self._until_ns = now_ns + int(self.allowed)

    def is_giving_up(self, now_ns: int) -> bool:
        """Whether it had to lately: more of these are offered than the link carries."""
        return now_ns < self._until_ns

    def _check(self) -> None:
        """Assert that the list and its sum fit."""
        size = 0.0
        previous: Entry | None = None
        entry = self.head
        assert entry is not None, "an empty backlog is kept"
        while entry is not None:
            assert entry.backlog is self, "an entry does not know its backlog"
            assert entry.kind_previous is previous, "a backlog is torn"
            size += entry.size
            previous = entry
            entry = entry.kind_next
        assert previous is self.tail, "a backlog has lost its end"
        assert size == self.size, "the bytes of a backlog are off"
        assert 0.0 <= self.part <= 1.0, "a part of the link is out of range"


def kind_of(entry: Entry) -> int:
    """The kind of an entry with a time limit: its lane, its time and its worth per byte, roughly."""
    allowed = float(entry.drop_ns - entry.published_ns)
    limit = int(_PER_OCTAVE * math.log2(allowed)) if allowed > 1.0 else 0
    return (entry.lane * _LIMITS + limit) * _LEVELS + entry.level


def level_of(entry: Entry) -> int:
    """What is at stake for each byte of an entry, in half octaves from the smallest."""
    worth = entry.audience.stakes_from(0) / entry.size
    if worth <= _WORTH_MIN:
        return 0
    return min(int(_PER_OCTAVE * math.log2(worth / _WORTH_MIN)), _LEVELS - 1)
