"""How brokers of a mesh come to know the same links and subscriptions: by flooding announcements.

Whoever owns a fact, the broker at the start of a link or the home of a subscription, announces it
with a stamp that only grows. A broker takes over what is newer than what it knows and passes it
on to all neighbours but the sender; what is not newer ends there. So announcements may come in any
order, twice, and over any path, and all brokers that are connected end up with the same state.
What is withdrawn is remembered, else an old announcement could bring it back.
"""

from __future__ import annotations

from typing import Final

from timebound.core.delay import LinkDelay
from timebound.core.mesh_table import MeshSubscription, SubscriptionTable
from timebound.core.routing import LinkState

# Withdrawals remembered at most; an announcement older than all of these no longer travels.
WITHDRAWN_MAX: Final = 100_000

LINK: Final = 0
SUBSCRIPTION: Final = 1

# When the owner started, in ns, and how many announcements it has made since: an owner that
# restarts goes on with larger stamps without having stored the last one.
Stamp = tuple[int, int]
Key = tuple[int, str, str, str]  # kind, owner, then target or client id, then topic filter


class Announcement:
    """One fact. Neither `delay` nor `subscription` set means that it no longer holds."""

    __slots__ = ("delay", "key", "stamp", "subscription")

    def __init__(
        self,
        key: Key,
        stamp: Stamp,
        delay: LinkDelay | None = None,
        subscription: MeshSubscription | None = None,
    ) -> None:
        self.key = key
        self.stamp = stamp
        self.delay = delay
        self.subscription = subscription

    def is_withdrawal(self) -> bool:
        return self.delay is None and self.subscription is None


class Replica:
    """What one broker knows of the mesh; `links` and `table` follow the announcements."""

    __slots__ = ("_count", "_known", "_started_ns", "_withdrawn", "links", "name", "table")

    def __init__(self, name: str, links: LinkState, table: SubscriptionTable, started_ns: int) -> None:
        self.name = name
        self.links = links
        self.table = table
        self._started_ns = started_ns
        self._count = 0
        self._known: dict[Key, Announcement] = {}
        self._withdrawn: dict[Key, None] = {}  # in order of withdrawal

    def set_link(self, target: str, delay: LinkDelay | None) -> Announcement:
        """Announce the delay of one of this broker's own links, or None: it has gone."""
        return self._own((LINK, self.name, target, ""), delay, None)

    def subscribe(self, subscription: MeshSubscription) -> Announcement:
        """Announce a subscription of one of this broker's own clients."""
        assert subscription.home == self.name, "a broker announces its own subscriptions only"
        key = (SUBSCRIPTION, self.name, subscription.client_id, subscription.topic_filter)
        return self._own(key, None, subscription)

    def unsubscribe(self, client_id: str, topic_filter: str) -> Announcement:
        """Announce that a subscription has ended."""
        return self._own((SUBSCRIPTION, self.name, client_id, topic_filter), None, None)

    def receive(self, announcement: Announcement) -> bool:
        """Take over what is newer; True if it has to be passed on to the other neighbours."""
        known = self._known.get(announcement.key)
        if known is not None and known.stamp >= announcement.stamp:
            return False
        self._known[announcement.key] = announcement
        self._apply(announcement)
        return True

    def snapshot(self) -> list[Announcement]:
        """Everything known, to be told to a neighbour that has just connected."""
        return list(self._known.values())

    def _own(self, key: Key, delay: LinkDelay | None, subscription: MeshSubscription | None) -> Announcement:
        self._count += 1
        announcement = Announcement(key, (self._started_ns, self._count), delay, subscription)
        self.receive(announcement)
        return announcement

    def _apply(self, announcement: Announcement) -> None:
        kind, owner, first, second = announcement.key
        if announcement.is_withdrawal():
            self._remember_withdrawal(announcement.key)
        else:
            self._withdrawn.pop(announcement.key, None)
        if kind == LINK:
            if announcement.delay is None:
                self.links.remove_link(owner, first)
            else:
                self.links.set_link(owner, first, announcement.delay)
        elif announcement.subscription is None:
            # A client that has moved is announced by its new home, perhaps before the old one ends.
            if self.table.home_of(first, second) == owner:
                self.table.remove(first, second)
        else:
            self.table.insert(announcement.subscription.copy())

    def _remember_withdrawal(self, key: Key) -> None:
        self._withdrawn.pop(key, None)
        self._withdrawn[key] = None
        if len(self._withdrawn) > WITHDRAWN_MAX:
            oldest = next(iter(self._withdrawn))
            del self._withdrawn[oldest]
            del self._known[oldest]
