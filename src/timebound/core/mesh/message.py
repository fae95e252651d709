"""A message under way in a mesh: the copies between brokers, and what waits at one broker."""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.entry import Entry
from timebound.core.mesh.table import HomeGroup, SubscriptionTable
from timebound.core.values.message import Message

MessageKey = tuple[str, int, int]  # origin, when that started, its count since

# How many messages a broker remembers, at least, to tell a second copy from the first.
SEEN_MAX: Final = 65_536


class Seen:
    """The last SEEN_MAX messages or some more, up to twice as many.

    Two sets that take turns: taking the oldest key out of one dict for each new one was quadratic,
    since the search for it begins at the place of the first key ever put in.
    """

    __slots__ = ("_before", "_latest")

    def __init__(self) -> None:
        self._latest: set[MessageKey] = set()
        self._before: set[MessageKey] = set()

    def add(self, key: MessageKey) -> bool:
        """Remember a message; False if it is known already."""
        if key in self._latest or key in self._before:
            return False
        if len(self._latest) >= SEEN_MAX:
            self._before = self._latest
            self._latest = set()
        self._latest.add(key)
        return True


class MeshMessage:
    """A message with the broker where it entered the mesh.

    It remembers what it matched, and in which state of which table: brokers that share a table,
    as those of a simulation may, need not match it again. `started_ns` and `number` tell it apart
    from all others of its origin: when that broker started, and its own count since.
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
        """What no other message of the mesh has."""
        return (self.origin, self.started_ns, self.number)

    def groups(self, table: SubscriptionTable) -> list[HomeGroup]:
        """What it matches in a table, one group per home."""
        if self._table is not table or self._version != table.version:
            self._groups = table.match(self.message)
            self._table = table
            self._version = table.version
        return self._groups


class Copy:
    """One copy of a message between two brokers.

    `targets` names the homes it is for, where its sender chose among several ways; otherwise it
    is None and follows from the message's origin. `via` names the brokers it has passed, the last
    one being its sender; it never returns to one of them.
    """

    __slots__ = ("hops", "targets", "via", "what")

    def __init__(self, what: MeshMessage, via: tuple[str, ...], hops: int, targets: set[str] | None) -> None:
        self.what = what
        self.via = via  # empty for a publisher, and where a failed link has to be gone round
        self.hops = hops  # links passed so far
        self.targets = targets


class Waiting:
    """A message at one broker until every group it is for has been sent on or given up."""

    __slots__ = ("arrived_ns", "hops", "offers", "places", "via", "what")

    def __init__(self, copy: Copy, arrived_ns: int) -> None:
        self.what = copy.what
        self.via = copy.via
        self.hops = copy.hops
        self.arrived_ns = arrived_ns
        self.offers: list[Offer] = []
        self.places: dict[str, int] = {}  # by home: in how many queues it waits

    def forget(self, offer: Offer) -> None:
        """An offer no longer waits in its queue."""
        offer.entry = None
        if offer in self.offers:
            self.offers.remove(offer)


class Offer:
    """A message in the queue of one link, with the groups it is for over this link."""

    __slots__ = ("entry", "groups", "neighbour", "waiting")

    def __init__(self, waiting: Waiting, neighbour: str, groups: list[HomeGroup]) -> None:
        self.waiting = waiting
        self.neighbour = neighbour
        self.groups = groups
        self.entry: Entry | None = None
