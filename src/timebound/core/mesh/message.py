"""A message under way in a mesh: copies between brokers, packs of them, and its places in queues."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from timebound.core.link.strategy.entry import Entry
from timebound.core.mesh.table import HomeGroup, SubscriptionTable
from timebound.core.values.message import Message

MessageKey = tuple[str, int, int]  # origin, when that started, its count since

# Messages that a broker remembers, at least, to recognise a second copy.
SEEN_MAX: Final = 65_536


class Seen:
    """The last SEEN_MAX messages, and up to as many before them.

    Two generations take turns. Removing the oldest key of one dict for each new key was quadratic, since the
    search for it starts at the position of the first key ever inserted. Each has the numbers of an origin in
    a set of its own, and those of the last message's origin are at hand: most come in runs.
    """

    __slots__ = ("_before", "_count", "_latest", "_numbers", "_numbers_before", "_origin", "_started_ns")

    def __init__(self) -> None:
        self._latest: dict[tuple[str, int], set[int]] = {}  # by origin, and when that started
        self._before: dict[tuple[str, int], set[int]] = {}
        self._count = 0  # of the latest
        self._origin = ""  # of the last message
        self._started_ns = 0
        self._numbers: set[int] = set()  # its origin's in both generations
        self._numbers_before: set[int] = set()

    def add(self, origin: str, started_ns: int, number: int) -> bool:
        """Remember a message; return False if it was known already."""
        if origin != self._origin or started_ns != self._started_ns:
            self._turn_to(origin, started_ns)
        if number in self._numbers or number in self._numbers_before:
            return False
        if self._count >= SEEN_MAX:
            self._before = self._latest
            self._latest = {}
            self._count = 0
            self._turn_to(origin, started_ns)
        self._numbers.add(number)
        self._count += 1
        return True

    def _turn_to(self, origin: str, started_ns: int) -> None:
        self._origin = origin
        self._started_ns = started_ns
        self._numbers = self._latest.setdefault((origin, started_ns), set())
        self._numbers_before = self._before.get((origin, started_ns), set())


@mypyc_attr(acyclic=True)
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


@mypyc_attr(acyclic=True)
class PackReceipt:
    """What a neighbour waits for: that all copies of one pack of its are taken, and stored if need be."""

    __slots__ = ("is_stored", "left", "packet_id")

    def __init__(self, packet_id: int) -> None:
        self.packet_id = packet_id
        self.left = 0  # copies not yet taken
        self.is_stored = False  # some of them wait for the disk


@mypyc_attr(acyclic=True)
class Copy:
    """One copy of a message between two brokers.

    `targets` names the homes it is for; None: all homes that the message matches. `via` names the brokers
    it has passed, its sender last; it never returns to one of them. One that came in a pack has a `receipt`.
    """

    __slots__ = ("hops", "receipt", "targets", "via", "what")

    def __init__(
        self,
        what: MeshMessage,
        via: tuple[str, ...],
        hops: int,
        targets: set[str] | None,
        receipt: PackReceipt | None = None,
    ) -> None:
        self.what = what
        self.via = via  # empty on publication, and after a detour round a failed link
        self.hops = hops  # links passed so far
        self.targets = targets
        self.receipt = receipt


@mypyc_attr(acyclic=True)
class CopyPack:
    """Copies that leave over one link together, and are confirmed together, by one packet id."""

    __slots__ = ("copies", "packet_id", "size_bytes")

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.packet_id = 0
        self.size_bytes = 0  # what they count on the link


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
