"""The subscriptions that one broker advertises to the rest of the mesh, as its clients subscribe.

`WatchedIndex` is the broker's own index of subscriptions and records every change; `Interest` turns the
changes into advertisements. The members of a shared group at one broker are advertised as one: the broker
gets one copy of a message for all of them, and chooses among them itself.
"""

from __future__ import annotations

from timebound.core.matching.index import SubscriptionIndex
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.subscription import Subscription
from timebound.topics import is_own_topic, split_share


class WatchedIndex(SubscriptionIndex):
    """An index that records what was added and removed until `Interest.take`."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[Subscription, bool]] = []  # True: added

    def insert(self, subscription: Subscription) -> None:
        super().insert(subscription)
        self.changes.append((subscription, True))

    def remove(self, subscription: Subscription) -> bool:
        is_removed = super().remove(subscription)
        if is_removed:
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
            group, topic_filter = split_share(subscription.topic_filter)
            if is_own_topic(topic_filter):
                continue
            if group:
                self._change_group(group, topic_filter, subscription, is_added, found)
            else:
                found.append((self._advertised(subscription.client_id, topic_filter, subscription), is_added))
        return found

    def _change_group(
        self,
        group: str,
        topic_filter: str,
        subscription: Subscription,
        is_added: bool,
        found: list[tuple[MeshSubscription, bool]],
    ) -> None:
        members = self._groups.setdefault((group, topic_filter), {})
        name = f"$share/{group}"
        if is_added:
            members[subscription.client_id] = subscription
        else:
            del members[subscription.client_id]
        if not members:
            del self._groups[(group, topic_filter)]
            found.append((self._advertised(name, topic_filter, subscription), False))
            return
        first = next(iter(members.values()))
        # Only a change of the first member changes what is advertised.
        if not is_added or first is subscription:
            found.append((self._advertised(name, topic_filter, first), True))

    def advertised(self, client_id: str, subscription: Subscription) -> MeshSubscription:
        """Return a subscription, or a member of a shared group, as advertised to the mesh."""
        group, topic_filter = split_share(subscription.topic_filter)
        return self._advertised(f"$share/{group}" if group else client_id, topic_filter, subscription)

    def _advertised(self, client_id: str, topic_filter: str, terms: Subscription) -> MeshSubscription:
        return MeshSubscription(
            # Two brokers may have clients of the same name.
            f"{client_id}@{self.home}",
            self.home,
            topic_filter,
            terms.predicate,
            terms.deadline_ns,
            terms.price,
            terms.penalty,
            subscriber=client_id,
        )
