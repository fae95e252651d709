"""Flooding of link-state advertisements, by which all brokers learn the same links and subscriptions.

The owner of a fact, the broker at the start of a link or the home of a subscription, advertises it with a
stamp that only grows. A broker stores an advertisement that is newer than what it knows and passes it on to
all neighbours but the sender; others it ignores. So advertisements may come in any order, twice, and over any
path, and all connected brokers end up with the same state. Withdrawals are remembered, or an old
advertisement could revive what was withdrawn. What a broker advertised before a restart is void after it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from timebound.core.mesh.figures import LinkFigures
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay

# Facts of kinds that this version does not know are kept to be passed on: so many.
OPAQUE_MAX: Final = 100_000
# Withdrawals remembered, at most; an advertisement older than all of them is hardly still under way.
WITHDRAWN_MAX: Final = 100_000

LINK: Final = 0
SUBSCRIPTION: Final = 1
FIGURES: Final = 2  # of a link

# When the owner started, in ns, and its count of advertisements since: after a restart stamps are larger
# without the last one having been stored.
Stamp = tuple[int, int]
Key = tuple[int, str, str, str]  # kind, owner, then target or client id, then topic filter


class LinkStateAdvertisement:
    """One fact; a withdrawal if it has no content.

    `wire` is the text of a fact of which this version does not know all: it is passed on as it came.
    """

    __slots__ = ("delay", "figures", "key", "stamp", "subscription", "wire")

    def __init__(
        self,
        key: Key,
        stamp: Stamp,
        delay: LinkDelay | None = None,
        subscription: MeshSubscription | None = None,
        figures: LinkFigures | None = None,
        wire: bytes = b"",
    ) -> None:
        self.key = key
        self.stamp = stamp
        self.delay = delay
        self.subscription = subscription
        self.figures = figures
        self.wire = wire

    def is_withdrawal(self) -> bool:
        has_content = self.delay is not None or self.subscription is not None or self.figures is not None
        return not has_content and not self.wire

    def is_opaque(self) -> bool:
        """Whether its kind is unknown here."""
        return self.key[0] not in (LINK, SUBSCRIPTION, FIGURES)


class Replica:
    """One broker's copy of the mesh's state; `link_state` and `table` follow the advertisements.

    With `lists_own` false the table leaves out the broker's own clients, which it finds by another index.
    """

    __slots__ = (
        "_count",
        "_known",
        "_opaque",
        "_starts",
        "_withdrawn",
        "figures",
        "link_state",
        "lists_own",
        "name",
        "table",
    )

    def __init__(
        self,
        name: str,
        link_state: LinkState,
        table: SubscriptionTable,
        started_ns: int,
        *,
        lists_own: bool = True,
    ) -> None:
        self.name = name
        self.lists_own = lists_own
        self.link_state = link_state
        self.table = table
        self._starts: dict[str, int] = {name: started_ns}  # by owner, the latest known
        self._count = 0
        self._known: dict[str, dict[Key, LinkStateAdvertisement]] = {name: {}}  # by owner
        self._opaque = 0  # of those known
        self.figures: dict[tuple[str, str], LinkFigures] = {}  # of links, by both ends
        # In order of withdrawal. In a dict, the search for the oldest grows with all keys ever removed.
        self._withdrawn: OrderedDict[Key, None] = OrderedDict()

    def set_link(self, target: str, delay: LinkDelay | None) -> LinkStateAdvertisement:
        """Advertise the delay of one of this broker's own links; None withdraws the link."""
        return self._own((LINK, self.name, target, ""), delay, None)

    def set_figures(self, target: str, figures: LinkFigures | None) -> LinkStateAdvertisement:
        """Advertise how one of this broker's own links is doing; None withdraws it."""
        return self._own((FIGURES, self.name, target, ""), None, None, figures)

    def subscribe(self, subscription: MeshSubscription) -> LinkStateAdvertisement:
        """Advertise a subscription of one of this broker's own clients."""
        assert subscription.home == self.name, "a broker advertises its own subscriptions only"
        key = (SUBSCRIPTION, self.name, subscription.client_id, subscription.topic_filter)
        return self._own(key, None, subscription)

    def unsubscribe(self, client_id: str, topic_filter: str) -> LinkStateAdvertisement:
        """Withdraw a subscription."""
        return self._own((SUBSCRIPTION, self.name, client_id, topic_filter), None, None)

    def receive(self, advertisement: LinkStateAdvertisement) -> bool:
        """Store an advertisement if it is newer; return whether to pass it on to the other neighbours."""
        owner = advertisement.key[1]
        started_ns = advertisement.stamp[0]
        start_ns = self._starts.get(owner, 0)
        if started_ns < start_ns:
            return False
        if started_ns > start_ns:
            if owner == self.name:
                # This broker's clock went back: it must count from there to be believed.
                self._starts[owner] = started_ns + 1
                return False
            self._starts[owner] = started_ns
            self.forget(owner)
        facts = self._known.setdefault(owner, {})
        known = facts.get(advertisement.key)
        if known is not None and known.stamp >= advertisement.stamp:
            return False
        if advertisement.is_opaque() and known is None:
            if self._opaque >= OPAQUE_MAX:
                return False
            self._opaque += 1
        self._apply(advertisement)  # first: if it fails, the advertisement is still news
        facts[advertisement.key] = advertisement
        return True

    def own(self) -> list[LinkStateAdvertisement]:
        """Return what this broker has advertised, withdrawals too."""
        return list(self._known[self.name].values())

    def owners(self) -> list[str]:
        """Return the brokers of which something is known."""
        return list(self._known)

    def started_ns(self) -> int:
        """Return when this broker started, as its stamps say."""
        return self._starts[self.name]

    def readvertise(self) -> list[LinkStateAdvertisement]:
        """Advertise everything this broker owns with new stamps, after `started_ns` has changed."""
        own = [one for one in self._known[self.name].values() if not one.is_withdrawal()]
        return [self._own(one.key, one.delay, one.subscription, one.figures) for one in own]

    def snapshot(self) -> list[LinkStateAdvertisement]:
        """Return everything known, for a neighbour that has just connected."""
        return [one for facts in self._known.values() for one in facts.values()]

    def _own(
        self,
        key: Key,
        delay: LinkDelay | None,
        subscription: MeshSubscription | None,
        figures: LinkFigures | None = None,
    ) -> LinkStateAdvertisement:
        self._count += 1
        stamp = (self._starts[self.name], self._count)
        advertisement = LinkStateAdvertisement(key, stamp, delay, subscription, figures)
        self.receive(advertisement)
        return advertisement

    def forget(self, owner: str) -> None:
        """Remove all that a broker advertised: it started again, or is gone."""
        for key, known in self._known.pop(owner, {}).items():
            self._withdrawn.pop(key, None)
            if known.is_opaque():
                self._opaque -= 1
            elif not known.is_withdrawal():
                self._remove(key)

    def _apply(self, advertisement: LinkStateAdvertisement) -> None:
        key = advertisement.key
        if advertisement.is_withdrawal():
            self._remember_withdrawal(key)
            self._remove(key)
            return
        self._withdrawn.pop(key, None)
        if advertisement.delay is not None:
            self.link_state.set_link(key[1], key[2], advertisement.delay)
        elif advertisement.figures is not None:
            self.figures[key[1], key[2]] = advertisement.figures
        elif advertisement.subscription is not None and (self.lists_own or key[1] != self.name):
            self.table.insert(advertisement.subscription.copy())

    def _remove(self, key: Key) -> None:
        kind, owner, first, second = key
        if kind == LINK:
            self.link_state.remove_link(owner, first)
        elif kind == FIGURES:
            self.figures.pop((owner, first), None)
        # A client that moved may be advertised by its new home before the old one withdraws it.
        elif kind == SUBSCRIPTION and self.table.home_of(first, second) == owner:
            self.table.remove(first, second)

    def _remember_withdrawal(self, key: Key) -> None:
        self._withdrawn.pop(key, None)
        self._withdrawn[key] = None
        if len(self._withdrawn) > WITHDRAWN_MAX:
            oldest, _ = self._withdrawn.popitem(last=False)
            self._opaque -= self._known[oldest[1]].pop(oldest).is_opaque()
