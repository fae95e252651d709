"""The subscriptions of a whole mesh, as every broker keeps them, and matching against them.

Each is stored with its home, the broker where its subscriber is connected. Paths are the routing's part, so
the table is the same at all brokers, and a match lists the subscriptions of each home. Equal sets of one home
are one `HomeGroup`: what is computed for a group serves every later message that matches the same.
"""

from __future__ import annotations

from typing import Final

from timebound.core.matching.index import SubscriptionIndex
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.terms import DEFAULT_TERMS, Terms

# Groups that are cached; beyond this many the cache is cleared. At about 500 bytes each that is 50 MB.
GROUPS_MAX: Final = 100_000


class MeshSubscription(Subscription):
    """A subscription with its home broker and the delay of its subscriber's own connection.

    `client_id` is unique in the mesh; `subscriber` is the client's id at its home.
    """

    __slots__ = ("last_mile_ns", "number", "subscriber")

    def __init__(
        self,
        *,
        client_id: str,
        home: str,
        topic_filter: str,
        terms: Terms = DEFAULT_TERMS,
        last_mile_ns: int = 0,
        subscriber: str = "",
    ) -> None:
        super().__init__(client_id=client_id, topic_filter=topic_filter, terms=terms)
        self.home = home
        self.last_mile_ns = last_mile_ns
        self.subscriber = subscriber or client_id
        self.number = 0  # set by the table

    def copy(self) -> MeshSubscription:
        """Return the same subscription for another table: each table numbers its own."""
        return MeshSubscription(
            client_id=self.client_id,
            home=self.home,
            topic_filter=self.topic_filter,
            terms=self.terms,
            last_mile_ns=self.last_mile_ns,
            subscriber=self.subscriber,
        )


class GroupTerm:
    """The subscriptions of a group with the same deadline and last mile, merged."""

    __slots__ = ("count", "deadline_ns", "last_mile_ns", "penalty", "price")

    def __init__(self, deadline_ns: int, last_mile_ns: int) -> None:
        self.deadline_ns = deadline_ns
        self.last_mile_ns = last_mile_ns
        self.price = 0.0
        self.penalty = 0.0
        self.count = 0


class HomeGroup:
    """The subscriptions of one home that a message matched; `number` identifies the group.

    `deadline_ns` is the mean of their deadlines; 0 if one of them has none. `is_patient`: none has one.
    """

    __slots__ = (
        "deadline_ns",
        "home",
        "is_patient",
        "number",
        "penalty_micro",
        "subscriptions",
        "targets",
        "terms",
    )

    def __init__(self, number: int, subscriptions: list[MeshSubscription]) -> None:
        self.number = number
        self.home = subscriptions[0].home
        self.targets = {self.home}  # of a copy for this group alone
        self.subscriptions = subscriptions
        self.penalty_micro = 0
        terms: dict[tuple[int, int], GroupTerm] = {}
        for subscription in subscriptions:
            key = (subscription.deadline_ns, subscription.last_mile_ns)
            term = terms.get(key)
            if term is None:
                term = terms[key] = GroupTerm(key[0], key[1])
            term.price += subscription.price
            term.penalty += subscription.penalty
            term.count += 1
            self.penalty_micro += subscription.penalty_micro
        self.terms: list[GroupTerm] = list(terms.values())
        self.deadline_ns = 0
        self.is_patient = not any([term.deadline_ns for term in self.terms])
        if all([term.deadline_ns for term in self.terms]):
            total_ns = sum([term.deadline_ns * term.count for term in self.terms])
            self.deadline_ns = total_ns // len(subscriptions)


class SubscriptionTable:
    """All subscriptions of the mesh by topic and content; `version` counts changes.

    A member's table stands in the `index` of its broker, beside the subscriptions of the broker's own
    clients, so that a message is matched once for both.
    """

    __slots__ = ("_by_key", "_groups", "_index", "_is_shared", "_next_group", "_next_number", "version")

    def __init__(self, index: SubscriptionIndex | None = None) -> None:
        self._index = index if index is not None else SubscriptionIndex()
        self._is_shared = index is not None
        self._by_key: dict[tuple[str, str], MeshSubscription] = {}  # by client and filter
        self._groups: dict[tuple[int, ...], HomeGroup] = {}
        self._next_number = 0
        self._next_group = 0
        self.version = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def insert(self, subscription: MeshSubscription) -> None:
        """Add a subscription; one of the same client and filter is replaced."""
        key = (subscription.client_id, subscription.topic_filter)
        if key in self._by_key:
            self.remove(subscription.client_id, subscription.topic_filter)
        subscription.number = self._next_number
        self._next_number += 1
        self._by_key[key] = subscription
        self._index.insert(subscription)
        self.version += 1

    def remove(self, client_id: str, topic_filter: str) -> bool:
        """Remove a subscription; return False if there is none."""
        known = self._by_key.pop((client_id, topic_filter), None)
        if known is None:
            return False
        self._index.remove(known)
        self.version += 1
        return True

    def home_of(self, client_id: str, topic_filter: str) -> str:
        """Return the home of a subscription; empty if there is none."""
        known = self._by_key.get((client_id, topic_filter))
        return known.home if known is not None else ""

    def subscriptions(self) -> list[MeshSubscription]:
        return list(self._by_key.values())

    def may_match(self, topic: str) -> bool:
        """Whether a subscription may match messages of a topic."""
        return self._index.match(topic).has_remote()

    def match(self, message: Message) -> list[HomeGroup]:
        """Return the subscriptions that match a message, one group per home, homes by name.

        A content filter that raises matches nothing; where the index is shared, the broker reports it.
        """
        match = self._index.match(message.topic)
        if match.by_home is not None:
            return match.by_home
        if not match.contents:
            match.by_home = self._grouped(match.remote)
            return match.by_home
        selection = self._index.select(message)
        if selection.errors and not self._is_shared:
            raise selection.errors[0][1]
        return self._grouped(selection.remote)

    def _grouped(self, subscriptions: list[Subscription]) -> list[HomeGroup]:
        by_home: dict[str, list[MeshSubscription]] = {}
        for found in subscriptions:
            assert isinstance(found, MeshSubscription), "only a mesh's own subscriptions are in its table"
            known = by_home.get(found.home)
            if known is None:
                by_home[found.home] = [found]
            else:
                known.append(found)
        return [self._group(by_home[home]) for home in sorted(by_home)]

    def _group(self, subscriptions: list[MeshSubscription]) -> HomeGroup:
        key = tuple([subscription.number for subscription in subscriptions])
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                self._groups = {}
            group = HomeGroup(self._next_group, subscriptions)
            self._next_group += 1
            self._groups[key] = group
        return group
