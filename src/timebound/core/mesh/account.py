"""The account of a mesh: the outcome of every pair of message and subscription, and the traffic.

A pair is opened once, where its message is published, and ends once: in time or late at its subscriber's
broker, or dropped at the broker that gave it up. The brokers of a simulated mesh share one account. A broker
on a network has its own, and `pairs`, the account of all its clients: there a pair counts where it ends, so
that the account of each broker adds up by itself.
"""

from __future__ import annotations

from typing import Final

from timebound.core.account.account import DROPPED, IN_TIME, LATE, Account
from timebound.core.mesh.table import HomeGroup, MeshSubscription
from timebound.core.values.message import Message
from timebound.records import Reason, sampled_traceparent

_NO_REASON: Final = ""
_NOT_SENT: Final = 0

# One record in the order of records.TRACE_FIELDS.
TraceRow = tuple[
    int,
    int,
    str,
    str,
    str,
    str,
    int,
    int,
    int,
    int,
    int,
    str,
    str,
    int,
    int,
    int,
    str,
    int,
    int,
    str,
    int,
    int,
    str,
]


class MeshAccount:
    """Totals since start; with `is_tracing`, also one row per pair as in records.TRACE_FIELDS."""

    __slots__ = (
        "dropped",
        "duplicates",
        "earned_micro",
        "in_time",
        "is_tracing",
        "late",
        "matched",
        "open_penalty_micro",
        "paid_micro",
        "pairs",
        "published",
        "received",
        "rows",
        "unreachable",
    )

    def __init__(self, is_tracing: bool = False, pairs: Account | None = None) -> None:
        self.pairs = pairs
        self.published = 0
        self.matched = 0
        self.in_time = 0
        self.late = 0
        self.dropped: dict[str, int] = {reason.value: 0 for reason in Reason}
        self.unreachable = 0  # of those dropped: pairs without a path
        self.earned_micro = 0
        self.paid_micro = 0
        self.open_penalty_micro = 0  # due if nothing under way arrives in time
        self.received = 0  # by brokers, from publishers too: the papers' traffic
        self.duplicates = 0
        self.is_tracing = is_tracing
        self.rows: list[TraceRow] = []

    def dropped_total(self) -> int:
        return sum(self.dropped.values())

    def open_pairs(self) -> int:
        """Return the number of pairs still under way."""
        return self.matched - self.in_time - self.late - self.dropped_total()

    def open(self, group: HomeGroup) -> None:
        """Open the pairs of a published message with the subscriptions of a group."""
        self.matched += len(group.subscriptions)
        self.open_penalty_micro += group.penalty_micro

    def close(self, reason: Reason) -> None:
        """Count all pairs still under way as dropped."""
        self.dropped[reason.value] += self.open_pairs()
        self.paid_micro += self.open_penalty_micro
        self.open_penalty_micro = 0

    def delivered(self, message: Message, group: HomeGroup, size_bytes: int, hops: int, now_ns: int) -> None:
        """Count a message that reached the home of a group: each subscriber gets it after its last mile."""
        age_ns = now_ns - message.published_ns
        self.open_penalty_micro -= group.penalty_micro
        for subscription in group.subscriptions:
            allowed_ns = message.allowed_ns(subscription)
            if allowed_ns and age_ns + subscription.last_mile_ns > allowed_ns:
                self.late += 1
                self.paid_micro += subscription.penalty_micro
                outcome = LATE
            else:
                self.in_time += 1
                self.earned_micro += subscription.price_micro
                outcome = IN_TIME
            if self.is_tracing:
                arrived_ns = now_ns + subscription.last_mile_ns
                link = subscription.client_id
                self._trace(
                    message, subscription, size_bytes, hops, link, arrived_ns, 0, now_ns, outcome, _NO_REASON
                )

    def drop(
        self,
        message: Message,
        group: HomeGroup,
        size_bytes: int,
        hops: int,
        link: str,
        queued_ns: int,
        reason: Reason,
        now_ns: int,
    ) -> None:
        """Count a message as dropped for all subscriptions of a group."""
        self.dropped[reason.value] += len(group.subscriptions)
        self.paid_micro += group.penalty_micro
        self.open_penalty_micro -= group.penalty_micro
        if self.pairs is not None:
            for subscription in group.subscriptions:
                self.pairs.drop_under_way(
                    subscription.subscriber, subscription, message, link, queued_ns, reason, now_ns
                )
        if self.is_tracing:
            for subscription in group.subscriptions:
                self._trace(
                    message,
                    subscription,
                    size_bytes,
                    hops,
                    link,
                    now_ns,
                    queued_ns,
                    _NOT_SENT,
                    DROPPED,
                    reason.value,
                )

    def _trace(
        self,
        message: Message,
        subscription: MeshSubscription,
        size_bytes: int,
        hops: int,
        link: str,
        time_ns: int,
        queued_ns: int,
        sent_ns: int,
        outcome: str,
        reason: str,
    ) -> None:
        name = message.name
        self.rows.append(
            (
                time_ns,
                message.sequence,
                message.topic,
                message.publisher,
                subscription.client_id,
                subscription.topic_filter,
                0,
                size_bytes,
                message.published_ns,
                queued_ns,
                message.allowed_ns(subscription),
                outcome,
                reason,
                subscription.price_micro,
                subscription.penalty_micro,
                hops,
                link,
                sent_ns,
                message.promised_ns,
                name.origin if name is not None else "",
                name.started_ns if name is not None else 0,
                name.number if name is not None else message.sequence,
                sampled_traceparent(message.user_properties),
            )
        )
