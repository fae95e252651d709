"""A message under way in a mesh: copies between brokers, and its placements in the queues of one broker."""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.entry import Entry
from timebound.core.mesh.table import HomeGroup, SubscriptionTable
from timebound.core.values.message import Message

MessageKey = tuple[str, int, int]  # origin, when that started, its count since

# Messages that a broker remembers, at least, to recognise a second copy.
SEEN_MAX: Final = 65_536


class Seen:
    """The last SEEN_MAX messages, and up to as many before them.

    Two sets take turns. Removing the oldest key of one dict for each new key was quadratic, since the
    search for it starts at the position of the first key ever inserted.
    """

    __slots__ = ("_before", "_latest")

    def __init__(self) -> None:
        self._latest: set[MessageKey] = set()
        self._before: set[MessageKey] = set()

    def add(self, key: MessageKey) -> bool:
        """Remember a message; return False if it was known already."""
        if key in self._latest or key in self._before:
            return False
        if len(self._latest) >= SEEN_MAX:
            self._before = self._latest
            self._latest = set()
        self._latest.add(key)
        return True


class MeshMessage:
    """A message with the broker where it entered the mesh.

    It caches what it matched, for one version of one table: brokers that share a table, as those of a
    simulation do, match it once. `started_ns` and `number` identify it among all messages of its origin:
    when that broker started, and its count since.
    """

    __slots__ = (
        "_groups",
        "_table",
        "_version",
        "message",
        "number",
        "origin",
        "size_bytes",
        "started_ns",
    )

    def __init__(
        self, message: Message, origin: str, size_bytes: int, started_ns: int = 0, number: int = 0
    ) -> None:
        self.message = message
        self.origin = origin
        self.size_bytes = size_bytes
        self.started_ns = started_ns
        self.number = number if number else message.sequence
        self._groups: list[HomeGroup] = []
        self._table: SubscriptionTable | None = None
        self._version = -1

    def key(self) -> MessageKey:
        """Return what identifies the message in the mesh."""
        return (self.origin, self.started_ns, self.number)

    def groups(self, table: SubscriptionTable) -> list[HomeGroup]:
        """Return what it matches in a table, one group per home."""
        if self._table is not table or self._version != table.version:
            self._groups = table.match(self.message)
            self._table = table
            self._version = table.version
        return self._groups


class Copy:
    """One copy of a message between two brokers.

    `targets` names the homes it is for; None: all homes that the message matches. `via` names the brokers
    it has passed, its sender last; it never returns to one of them.
    """

    __slots__ = ("hops", "targets", "via", "what")

    def __init__(self, what: MeshMessage, via: tuple[str, ...], hops: int, targets: set[str] | None) -> None:
        self.what = what
        self.via = via  # empty on publication, and after a detour round a failed link
        self.hops = hops  # links passed so far
        self.targets = targets


class InTransit:
    """A message at one broker, until every group it is for has been sent on or dropped."""

    __slots__ = ("arrived_ns", "hops", "placements", "places", "via", "what")

    def __init__(self, copy: Copy, arrived_ns: int) -> None:
        self.what = copy.what
        self.via = copy.via
        self.hops = copy.hops
        self.arrived_ns = arrived_ns
        self.placements: list[Placement] = []
        self.places: dict[str, int] = {}  # by home: the number of queues that hold it

    def forget(self, placement: Placement) -> None:
        """Note that a placement has left its queue."""
        placement.entry = None
        if placement in self.placements:
            self.placements.remove(placement)


class Placement:
    """A message in the queue of one link, with the groups that this link would serve."""

    __slots__ = ("entry", "groups", "neighbour", "transit")

    def __init__(self, transit: InTransit, neighbour: str, groups: list[HomeGroup]) -> None:
        self.transit = transit
        self.neighbour = neighbour
        self.groups = groups
        self.entry: Entry | None = None
