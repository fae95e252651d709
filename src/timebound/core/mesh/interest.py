"""The subscriptions that one broker advertises to the rest of the mesh, as its clients subscribe.

`WatchedIndex` is the broker's own index of subscriptions and records every change; `Interest` turns the
changes into advertisements. The members of a shared group at one broker are advertised as one: the broker
gets one copy of a message for all of them, and chooses among them itself. Its content filter is theirs if
they have the same, and none otherwise.
"""

from __future__ import annotations

from timebound.core.matching.index import SubscriptionIndex
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.subscription import Subscription
from timebound.terms import NAME_SEPARATOR, Terms
from timebound.topics import is_own_topic, split_share


class WatchedIndex(SubscriptionIndex):
    """An index that records what this broker's clients added and removed until `Interest.take`."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[Subscription, bool]] = []  # True: added

    def insert(self, subscription: Subscription) -> None:
        super().insert(subscription)
        if not subscription.home:
            self.changes.append((subscription, True))

    def remove(self, subscription: Subscription) -> bool:
        is_removed = super().remove(subscription)
        if is_removed and not subscription.home:
            self.changes.append((subscription, False))
        return is_removed


class Interest:
    """The subscriptions of a broker's clients as advertised to the mesh."""

    __slots__ = ("_groups", "_index", "home")

    def __init__(self, index: WatchedIndex, home: str) -> None:
        self.home = home
        self._index = index
        # Members of shared groups, by name and filter; the first one's terms are advertised.
        self._groups: dict[tuple[str, str], dict[str, Subscription]] = {}

    def take(self) -> list[tuple[MeshSubscription, bool]]:
        """Return what to advertise (True) or withdraw (False) since the last call, in order."""
        changes = self._index.changes
        if not changes:
            return []
        self._index.changes = []
        found: list[tuple[MeshSubscription, bool]] = []
        for subscription, is_added in changes:
            self._change(subscription, is_added, found)
        return found

    def _change(
        self, subscription: Subscription, is_added: bool, found: list[tuple[MeshSubscription, bool]]
    ) -> None:
        group, topic_filter = split_share(subscription.topic_filter)
        if is_own_topic(topic_filter):
            return
        if group:
            self._change_group(group, topic_filter, subscription, is_added, found)
        else:
            found.append((self.advertised(subscription), is_added))

    def all(self) -> dict[tuple[str, str], MeshSubscription]:
        """Return everything to advertise, by client and topic filter, whatever was taken before."""
        self._index.changes = []
        self._groups = {}
        found: list[tuple[MeshSubscription, bool]] = []
        for subscription in self._index.subscriptions():
            self._change(subscription, True, found)
        return {(one.client_id, one.topic_filter): one for one, _ in found}

    def _change_group(
        self,
        group: str,
        topic_filter: str,
        subscription: Subscription,
        is_added: bool,
        found: list[tuple[MeshSubscription, bool]],
    ) -> None:
        members = self._groups.setdefault((group, topic_filter), {})
        if is_added:
            members[subscription.member] = subscription
        else:
            del members[subscription.member]
        if not members:
            del self._groups[(group, topic_filter)]
            found.append((self.advertised(subscription), False))
            return
        first = next(iter(members.values()))
        where = first.terms.where
        is_same = all([one.terms.where == where for one in members.values()])
        # A further member changes what is advertised only if it is the first with another content filter.
        if not is_added or first is subscription or (not is_same and where != subscription.terms.where):
            found.append((self.advertised(first, where if is_same else ""), True))

    def advertised(self, subscription: Subscription, where: str | None = None) -> MeshSubscription:
        """Return a subscription, or a member of a shared group, as advertised to the mesh.

        `where` replaces its content filter.
        """
        group, topic_filter = split_share(subscription.topic_filter)
        terms = subscription.terms
        # The separator keeps a group apart from a client whose id looks like one.
        member = f"$share/{group}{NAME_SEPARATOR}" if group else subscription.member
        return MeshSubscription(
            # Two brokers may have clients of the same name.
            client_id=f"{member}@{self.home}",
            home=self.home,
            topic_filter=topic_filter,
            # What decides whether a message is sent, and when; the rest is for its home alone.
            terms=Terms(
                where=terms.where if where is None else where,
                deadline_ns=terms.deadline_ns,
                price=terms.price,
                penalty=terms.penalty,
            ),
            subscriber=f"$share/{group}" if group else subscription.client_id,
        )
