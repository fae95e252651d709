"""A subscription: the topics that one session asked for, and the terms.

The terms are immutable once it is in the index: a changed subscription is a new object that
replaces the old one.
"""

from __future__ import annotations

from typing import Final, cast

from timebound.core.correlation.expression import Correlator, Dependency, signature, ticks_per_hour
from timebound.core.predicate.predicate import Predicate
from timebound.core.values.trace_columns import ReceiverColumns
from timebound.topics import is_own_topic, level_count, split_share

UserProperties = tuple[tuple[str, str], ...]
NO_USER_PROPERTIES: Final[UserProperties] = ()
# Money is counted in millionths, as integers: sums are exact in any order.
MICRO: Final = 1_000_000


class Subscription:
    """What one SUBSCRIBE entry asked for.

    `topic_filter` is the whole filter as the client wrote it, `$share/...` included.
    `user_properties` are kept as received: storage writes them instead of the terms.
    """

    __slots__ = (
        "client_id",
        "correlator",
        "deadline_ns",
        "dependency",
        "free_terms",
        "identifier",
        "is_free",
        "is_ordered",
        "keep_last",
        "no_local",
        "notify_missed",
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
        "ticks_per_hour",
        "topic_filter",
        "trace_receiver",
        "user_properties",
        "watchdog_ns",
    )

    def __init__(
        self,
        client_id: str,
        topic_filter: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
        predicate: Predicate | None = None,
        deadline_ns: int = 0,
        price: float = 1.0,
        penalty: float = 0.0,
        user_properties: UserProperties = NO_USER_PROPERTIES,
        keep_last: bool = False,
        is_ordered: bool = False,
        notify_missed: bool = False,
        dependency: Dependency | None = None,
        watchdog_ns: int = 0,
    ) -> None:
        self.client_id = client_id
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier  # 0 = none
        self.predicate = predicate  # the content filter `where`
        self.deadline_ns = deadline_ns  # 0 = none
        # Such a filter selects only messages of the broker itself (MQTT 5, 4.7.2).
        self.is_free = is_own_topic(split_share(topic_filter)[1])
        self.price = 0.0 if self.is_free else price
        self.penalty = 0.0 if self.is_free else penalty
        self.price_micro = round(self.price * MICRO)
        self.penalty_micro = round(self.penalty * MICRO)
        self.user_properties = user_properties
        self.keep_last = keep_last  # only the newest message of a topic waits
        self.is_ordered = is_ordered  # never reorder what this subscription gets
        self.notify_missed = notify_missed  # send the session notices about missed messages
        self.dependency = dependency  # what it waits for; None = delivers every message at once
        self.watchdog_ns = watchdog_ns
        self.ticks_per_hour = 0 if dependency is None else ticks_per_hour(dependency)
        self.parts = [] if dependency is None else _parts(dependency, topic_filter)
        # Cost of comparing a topic with them, in plain tests: some 0.3 us for each level.
        self.parts_cost = sum([level_count(part) for part in self.parts])
        self.correlator: Correlator | None = None  # its running correlation, while subscribed
        self.shared_correlation = ""  # the same for members of a shared group that correlate together
        if dependency is not None and split_share(topic_filter)[0]:
            where = predicate.text if predicate is not None else ""
            self.shared_correlation = "\n".join([topic_filter, where, signature(dependency)])
        self.trace_receiver: ReceiverColumns | None = None  # of its latest trace record
        self.free_terms: Subscription | None = None  # see `free`

    def free(self) -> Subscription:
        """Return the same terms without price and penalty, for messages of the broker itself."""
        if self.is_free:
            return self
        if self.free_terms is None:
            terms = Subscription(
                self.client_id,
                self.topic_filter,
                self.qos,
                identifier=self.identifier,
                deadline_ns=self.deadline_ns,
                price=0.0,
                keep_last=self.keep_last,
                is_ordered=self.is_ordered,
                notify_missed=self.notify_missed,
            )
            terms.is_free = True
            self.free_terms = terms
        return self.free_terms

    def is_timed(self) -> bool:
        """Whether its session needs a scheduled queue before anything waits."""
        return self.deadline_ns > 0 or self.keep_last


def _parts(dependency: Dependency, topic_filter: str) -> list[str]:
    """Return the filters it waits for except its own, which has already matched when they are tested."""
    filters = [cast(str, leaf.key) for leaf in Correlator(dependency).leaves]
    return [part for part in filters if part != topic_filter]
