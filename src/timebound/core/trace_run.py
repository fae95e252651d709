"""Trace records in runs: what is the same for many records stands only once.

Messages that are read together are mostly alike: as a run they cost a comparison each, where a
record of its own would cost more than the message. Where topics take turns, only their times are
alike, and the run lists the kind of each record. A run keeps no message alive: while a trace is
written that would be many objects, and the collector would look at all of them again and again.
"""

from __future__ import annotations

from typing import Final

from timebound.core.message import Delivery
from timebound.core.subscription import Subscription

# From so many records of one kind on, they are a run of their own; fewer are listed.
ALIKE_MIN: Final = 4


class TraceKind:
    """What records have in common beside their times and numbers."""

    __slots__ = (
        "allowed_ns",
        "client_id",
        "hops",
        "link",
        "outcome",
        "payload_length",
        "promised_ns",
        "properties_length",
        "publisher",
        "qos",
        "reason",
        "size_bytes",
        "subscription",
        "timeout_ns",
        "topic",
    )

    def __init__(
        self, client_id: str, delivery: Delivery, subscription: Subscription | None, outcome: str, reason: str
    ) -> None:
        message = delivery.message
        self.client_id = client_id
        self.subscription = subscription
        self.outcome = outcome
        self.reason = reason
        self.qos = delivery.qos
        self.topic = message.topic
        self.publisher = message.publisher
        self.payload_length = len(message.payload)
        self.properties_length = len(message.properties)
        self.size_bytes = message.size()
        self.timeout_ns = message.timeout_ns
        self.allowed_ns = message.allowed_ns(subscription)
        self.promised_ns = message.promised_ns
        self.hops = message.hops
        self.link = delivery.link

    def describes(
        self, client_id: str, delivery: Delivery, subscription: Subscription | None, outcome: str, reason: str
    ) -> bool:
        message = delivery.message
        return (
            subscription is self.subscription
            and outcome is self.outcome
            and len(message.payload) == self.payload_length
            and message.topic == self.topic
            and message.publisher == self.publisher
            and client_id == self.client_id
            and delivery.qos == self.qos
            and message.timeout_ns == self.timeout_ns
            and message.promised_ns == self.promised_ns
            and reason == self.reason
            and message.hops == self.hops
            and delivery.link == self.link
            and len(message.properties) == self.properties_length
        )


class TraceRun:
    """Records that have all times in common, and message ids that count up from the first."""

    __slots__ = (
        "count",
        "kind",
        "kinds",
        "message_id",
        "next_id",
        "offered_ns",
        "published_ns",
        "sent_ns",
        "time_ns",
    )

    def __init__(
        self,
        kind: TraceKind,
        time_ns: int,
        published_ns: int,
        offered_ns: int,
        sent_ns: int,
        message_id: int,
        count: int,
    ) -> None:
        self.kind = kind
        self.kinds: list[TraceKind] | None = None  # of each record; None = all are of `kind`
        self.time_ns = time_ns  # when the outcome was known
        self.published_ns = published_ns
        self.offered_ns = offered_ns
        self.sent_ns = sent_ns  # 0 = it was not
        self.message_id = message_id
        self.next_id = message_id + count
        self.count = count

    def kind_at(self, offset: int) -> TraceKind:
        """The kind of a record, counted from the first."""
        return self.kind if self.kinds is None else self.kinds[offset]

    def queued_ns(self) -> int:
        """From being offered until it was sent, or given up."""
        return (self.sent_ns if self.sent_ns else self.time_ns) - self.offered_ns

    def takes(self, delivery: Delivery, now_ns: int) -> bool:
        """Whether the record of a delivery may be the next one of this run, but for its kind."""
        message = delivery.message
        return (
            message.sequence == self.next_id
            and now_ns == self.time_ns
            and delivery.offered_ns == self.offered_ns
            and message.published_ns == self.published_ns
            and delivery.sent_ns == self.sent_ns
        )

    def extend(self, kind: TraceKind, count: int) -> bool:
        """Add so many records of a kind, unless they are better in a run of their own."""
        kinds = self.kinds
        if kinds is not None or kind is not self.kind:
            if count >= ALIKE_MIN:
                return False
            if kinds is None:
                if self.count >= ALIKE_MIN:
                    return False
                kinds = [self.kind] * self.count
                self.kinds = kinds
            for _ in range(count):
                kinds.append(kind)
        self.next_id += count
        self.count += count
        return True

    def part(self, message_id: int, count: int) -> TraceRun:
        """The same records for some of the message ids."""
        offset = message_id - self.message_id
        part = TraceRun(
            self.kind_at(offset),
            self.time_ns,
            self.published_ns,
            self.offered_ns,
            self.sent_ns,
            message_id,
            count,
        )
        if self.kinds is not None:
            part.kinds = self.kinds[offset : offset + count]
        return part


def count_alike(deliveries: list[Delivery], first: int) -> int:
    """How many from `first` on would be one run: of QoS 0 and one subscription, sent at the same time."""
    delivery = deliveries[first]
    if delivery.others:
        return 1
    subscription = delivery.subscription
    offered_ns = delivery.offered_ns
    link = delivery.link
    message = delivery.message
    sequence = message.sequence
    topic = message.topic
    publisher = message.publisher
    published_ns = message.published_ns
    payload_length = len(message.payload)
    properties_length = len(message.properties)
    timeout_ns = message.timeout_ns
    promised_ns = message.promised_ns
    hops = message.hops
    count = 1
    for index in range(first + 1, len(deliveries)):
        delivery = deliveries[index]
        message = delivery.message
        if (
            message.sequence != sequence + count
            or delivery.subscription is not subscription
            or delivery.qos != 0
            or delivery.offered_ns != offered_ns
            or message.published_ns != published_ns
            or len(message.payload) != payload_length
            or message.topic != topic
            or message.publisher != publisher
            or message.timeout_ns != timeout_ns
            or message.promised_ns != promised_ns
            or message.hops != hops
            or len(message.properties) != properties_length
            or delivery.link != link
            or delivery.others
        ):
            break
        count += 1
    return count
