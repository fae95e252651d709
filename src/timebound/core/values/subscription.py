"""A subscription: the topics that one session asked for, and the terms.

The terms are immutable once it is in the index: a changed subscription is a new object that
replaces the old one.
"""

from __future__ import annotations

from typing import Final, cast

from timebound.core.correlation.expression import (
    AnyOf,
    Correlator,
    Dependency,
    Every,
    Leaf,
    Watchdog,
    signature,
    ticks_per_hour,
)
from timebound.core.correlation.text import parse_correlation
from timebound.core.predicate.predicate import parse
from timebound.core.values.trace_columns import ReceiverColumns
from timebound.errors import FilterError
from timebound.terms import DEFAULT_TERMS, Terms, with_name
from timebound.topics import check_filter, is_own_topic, level_count, split_share

UserProperties = tuple[tuple[str, str], ...]
NO_USER_PROPERTIES: Final[UserProperties] = ()
# Money is counted in millionths, as integers: sums are exact in any order.
MICRO: Final = 1_000_000


class Subscription:
    """What one SUBSCRIBE entry asked for.

    `topic_filter` is the whole filter as the client wrote it, `$share/...` included. A client may have
    several subscriptions to one filter, each with a name of its own; one of them may be unnamed.
    `user_properties` are kept as received: storage writes them instead of the terms. Of `terms`, what is
    read for each message is also here.
    """

    __slots__ = (
        "client_id",
        "correlator",
        "deadline_ns",
        "dependency",
        "free_terms",
        "home",
        "identifier",
        "is_free",
        "is_ordered",
        "keep_last",
        "key",
        "member",
        "no_local",
        "parts",
        "parts_cost",
        "penalty",
        "penalty_micro",
        "predicate",
        "price",
        "price_micro",
        "qos",
        "retain_as_published",
        "retain_handling",
        "shared_correlation",
        "terms",
        "ticks_per_hour",
        "topic_filter",
        "trace_receiver",
        "user_properties",
    )

    def __init__(
        self,
        *,
        client_id: str,
        topic_filter: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
        terms: Terms = DEFAULT_TERMS,
        user_properties: UserProperties = NO_USER_PROPERTIES,
    ) -> None:
        """Make a subscription.

        Raises:
            FilterError: the content filter `where` is invalid; carries the position.
            ValueError: the correlation is invalid.
        """
        self.client_id = client_id
        self.home = ""  # the broker of its client; empty = this one
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier  # 0 = none
        self.terms = terms
        self.key = with_name(topic_filter, terms.name)  # identifies it in its session
        self.member = with_name(client_id, terms.name)  # identifies it among those of its filter
        self.user_properties = user_properties
        self.predicate = parse(terms.where) if terms.where else None
        self.deadline_ns: int = terms.deadline_ns  # 0 = none
        # Such a filter selects only messages of the broker itself (MQTT 5, 4.7.2).
        self.is_free = is_own_topic(split_share(topic_filter)[1])
        self.price: float = 0.0 if self.is_free else terms.price
        self.penalty: float = 0.0 if self.is_free else terms.penalty
        self.price_micro = round(self.price * MICRO)
        self.penalty_micro = round(self.penalty * MICRO)
        self.keep_last: bool = terms.keep_last
        self.is_ordered: bool = terms.is_ordered
        dependency = _dependency(topic_filter, terms)
        self.dependency = dependency  # what it waits for; None = delivers every message at once
        self.ticks_per_hour = 0 if dependency is None else ticks_per_hour(dependency)
        self.parts = [] if dependency is None else _parts(dependency, topic_filter)
        # Cost of comparing a topic with them, in plain tests: some 0.3 us for each level.
        self.parts_cost = sum([level_count(part) for part in self.parts])
        self.correlator: Correlator | None = None  # its running correlation, while subscribed
        self.shared_correlation = ""  # the same for members of a shared group that correlate together
        if dependency is not None and split_share(topic_filter)[0]:
            self.shared_correlation = "\n".join([topic_filter, terms.where, signature(dependency)])
        self.trace_receiver: ReceiverColumns | None = None  # of its latest trace record
        self.free_terms: Subscription | None = None  # see `free`

    def free(self) -> Subscription:
        """Return the same terms without price and penalty, for messages of the broker itself."""
        if self.is_free:
            return self
        if self.free_terms is None:
            terms = self.terms
            subscription = Subscription(
                client_id=self.client_id,
                topic_filter=self.topic_filter,
                qos=self.qos,
                identifier=self.identifier,
                terms=Terms(
                    name=terms.name,
                    deadline_ns=terms.deadline_ns,
                    price=0.0,
                    keep_last=terms.keep_last,
                    is_ordered=terms.is_ordered,
                    notify_missed=terms.notify_missed,
                ),
            )
            subscription.is_free = True
            self.free_terms = subscription
        return self.free_terms

    def is_timed(self) -> bool:
        """Whether its session needs a scheduled queue before anything waits."""
        return self.deadline_ns > 0 or self.keep_last


def _dependency(topic_filter: str, terms: Terms) -> Dependency | None:
    """Return what a subscription waits for; None if it gets every message at once.

    Raises:
        ValueError: the correlation cannot be read, or has a part that is not a filter.
    """
    if not terms.correlate and not terms.watchdog_ns and not terms.every_ns:
        return None
    try:
        wanted: Dependency = Leaf(topic_filter)
        if terms.correlate:
            wanted = parse_correlation(terms.correlate, terms.within_ns)
        if terms.watchdog_ns:
            wanted = Watchdog(wanted, terms.watchdog_ns)
        if terms.every_ns:
            wanted = AnyOf([wanted, Every(terms.every_ns)])
        if terms.correlate:
            # As a whole: `watchdog` and `every` add to the depth and signals of the correlation.
            for leaf in Correlator(wanted).leaves:
                check_filter(str(leaf.key))
    except FilterError as error:
        raise ValueError(str(error)) from error
    return wanted


def _parts(dependency: Dependency, topic_filter: str) -> list[str]:
    """Return the filters it waits for except its own, which has already matched when they are tested."""
    filters = [cast(str, leaf.key) for leaf in Correlator(dependency).leaves]
    return [part for part in filters if part != topic_filter]
