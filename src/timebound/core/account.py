"""What became of every matched (message, subscription): in time, late, or dropped.

Each pair is counted once when it matches and once when its outcome is known, so at any moment
matched = in time + late + dropped + still queued or unacknowledged. A QoS 0 copy is delivered
when it is handed to the connection, a QoS 1 or 2 copy when it is acknowledged; in time means
that it was handed over within its limit. Money is in millionths, as integers: sums are exact.
"""

from __future__ import annotations

from typing import Final

from timebound.core.message import Delivery, Message
from timebound.core.subscription import Subscription
from timebound.records import Outcome, Reason

IN_TIME: Final = Outcome.IN_TIME.value
LATE: Final = Outcome.LATE.value
DROPPED: Final = Outcome.DROPPED.value

# One row in the order of records.TRACE_FIELDS.
TraceRow = tuple[int, int, str, str, str, str, int, int, int, int, int, str, str, int, int, int, str]


class Missed:
    """A pair that was not delivered, for those who asked to be told."""

    __slots__ = ("client_id", "message", "reason", "subscription")

    def __init__(
        self, client_id: str, message: Message, subscription: Subscription | None, reason: Reason
    ) -> None:
        self.client_id = client_id
        self.message = message
        self.subscription = subscription
        self.reason = reason


class Account:
    """Totals of all pairs since start, the rows of a trace, and what was missed."""

    __slots__ = (
        "dropped",
        "earned_micro",
        "in_time",
        "is_tracing",
        "late",
        "matched",
        "missed",
        "paid_micro",
        "rows",
    )

    def __init__(self) -> None:
        self.matched = 0
        self.in_time = 0
        self.late = 0
        self.dropped: dict[str, int] = {reason.value: 0 for reason in Reason}
        self.earned_micro = 0
        self.paid_micro = 0
        self.is_tracing = False
        self.rows: list[TraceRow] = []
        self.missed: list[Missed] = []

    def delivered(self, client_id: str, delivery: Delivery, now_ns: int) -> None:
        """A copy has reached its session; `sent_ns` says when it left."""
        subscription = delivery.subscription
        message = delivery.message
        if (
            subscription is not None
            and not delivery.others
            and not subscription.deadline_ns
            and not message.timeout_ns
        ):
            self.in_time += 1
            self.earned_micro += subscription.price_micro
            if self.is_tracing:
                self._trace(client_id, delivery, subscription, IN_TIME, "", now_ns)
            return
        for one in pairs(delivery):
            allowed_ns = message.allowed_ns(one)
            if allowed_ns and delivery.sent_ns - message.published_ns > allowed_ns:
                self.late += 1
                self.paid_micro += one.penalty_micro if one is not None else 0
                outcome = LATE
            else:
                self.in_time += 1
                self.earned_micro += one.price_micro if one is not None else 0
                outcome = IN_TIME
            if self.is_tracing:
                self._trace(client_id, delivery, one, outcome, "", now_ns)

    def drop(self, client_id: str, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """A copy will never reach its session."""
        for one in pairs(delivery):
            self.dropped[reason.value] += 1
            if one is not None:
                self.paid_micro += one.penalty_micro
            self.missed.append(Missed(client_id, delivery.message, one, reason))
            if self.is_tracing:
                self._trace(client_id, delivery, one, DROPPED, reason.value, now_ns)

    def retract(self, client_id: str, delivery: Delivery) -> None:
        """Take back what `delivered` said of a QoS 0 copy that could not be sent after all."""
        message = delivery.message
        for one in pairs(delivery):
            allowed_ns = message.allowed_ns(one)
            if allowed_ns and delivery.sent_ns - message.published_ns > allowed_ns:
                self.late -= 1
                self.paid_micro -= one.penalty_micro if one is not None else 0
            else:
                self.in_time -= 1
                self.earned_micro -= one.price_micro if one is not None else 0
        if self.is_tracing:
            self.rows = [row for row in self.rows if row[1] != message.sequence or row[4] != client_id]

    def take_rows(self) -> list[TraceRow]:
        rows = self.rows
        self.rows = []
        return rows

    def _trace(
        self,
        client_id: str,
        delivery: Delivery,
        subscription: Subscription | None,
        outcome: str,
        reason: str,
        now_ns: int,
    ) -> None:
        message = delivery.message
        left_ns = delivery.sent_ns if delivery.sent_ns else now_ns
        self.rows.append(
            (
                now_ns,
                message.sequence,
                message.topic,
                message.publisher,
                client_id,
                subscription.topic_filter if subscription is not None else "",
                delivery.qos,
                message.size(),
                message.published_ns,
                left_ns - delivery.offered_ns,
                message.allowed_ns(subscription),
                outcome,
                reason,
                subscription.price_micro if subscription is not None else 0,
                subscription.penalty_micro if subscription is not None else 0,
                0,
                client_id,
            )
        )


def pairs(delivery: Delivery) -> list[Subscription | None]:
    """The subscriptions a copy is for; [None] where they have gone since it was stored."""
    found: list[Subscription | None] = [delivery.subscription]
    for other in delivery.others:
        found.append(other)
    return found
