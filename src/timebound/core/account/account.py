"""The account: the outcome of every pair of message and subscription (in time, late, or dropped).

Each pair is counted once when it matches and once when its outcome is known, so at any moment
matched = in time + late + dropped + still queued or unacknowledged. A QoS 0 copy is delivered
when it is handed to the connection, a QoS 1 or 2 copy when it is acknowledged (PUBACK, PUBREC). In
time means that this happened within its limit: an acknowledgement comes after the arrival, so a QoS 1
or 2 message that was late for its receiver never counts as in time. Money is counted in millionths, as
integers: sums are exact.
"""

from __future__ import annotations

from typing import Final

from timebound.core.account.trace_log import TraceLog
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.records import Outcome, Reason

IN_TIME: Final = Outcome.IN_TIME.value
LATE: Final = Outcome.LATE.value
DROPPED: Final = Outcome.DROPPED.value


class Missed:
    """A pair that was not delivered, for notices."""

    __slots__ = ("client_id", "message", "reason", "subscription", "time_ns")

    def __init__(
        self,
        client_id: str,
        message: Message,
        subscription: Subscription | None,
        reason: Reason,
        time_ns: int,
    ) -> None:
        self.client_id = client_id
        self.message = message
        self.subscription = subscription
        self.reason = reason
        self.time_ns = time_ns


class Account:
    """Totals of all pairs since start, their trace, and the missed pairs."""

    __slots__ = (
        "dropped",
        "earned_micro",
        "in_time",
        "is_tracing",
        "late",
        "matched",
        "missed",
        "paid_micro",
        "trace",
    )

    def __init__(self) -> None:
        self.matched = 0
        self.in_time = 0
        self.late = 0
        self.dropped: dict[str, int] = {reason.value: 0 for reason in Reason}
        self.earned_micro = 0
        self.paid_micro = 0
        self.is_tracing = False
        self.trace = TraceLog()
        self.missed: list[Missed] = []

    def outstanding(self) -> int:
        """Count the pairs whose outcome is not known yet."""
        return self.matched - self.in_time - self.late - sum(self.dropped.values())

    def reconcile(self, owed: int) -> None:
        """Count pairs that an error left without an outcome as dropped: all outstanding ones but `owed`."""
        self.dropped[Reason.FAULT.value] += self.outstanding() - owed

    def delivered(self, client_id: str, delivery: Delivery, now_ns: int) -> None:
        """Account for a delivered copy: QoS 0 at the time it was sent, QoS 1 and 2 now."""
        message = delivery.message
        known_ns = now_ns if delivery.qos else delivery.sent_ns
        for one in pairs(delivery):
            allowed_ns = message.allowed_ns(one)
            if allowed_ns and known_ns - message.published_ns > allowed_ns:
                self.late += 1
                self.paid_micro += one.penalty_micro if one is not None else 0
                outcome = LATE
            else:
                self.in_time += 1
                self.earned_micro += one.price_micro if one is not None else 0
                outcome = IN_TIME
            if self.is_tracing:
                self.trace.add(client_id, delivery, one, outcome, "", now_ns)

    def delivered_now(self, client_id: str, deliveries: list[Delivery], first: int, now_ns: int) -> None:
        """Account for the QoS 0 copies from `first` on, which were sent now."""
        index = first
        while index < len(deliveries):
            begin = index
            index = self._count_untimed(deliveries, index)
            if index == begin:
                delivery = deliveries[index]
                if delivery.qos == 0:
                    self.delivered(client_id, delivery, now_ns)
                index += 1
            elif self.is_tracing:
                self.trace.add_untimed(client_id, deliveries, begin, index, IN_TIME, now_ns)

    def _count_untimed(self, deliveries: list[Delivery], first: int) -> int:
        """Count the QoS 0 copies without a time limit from `first` on; return the index of the next other."""
        index = first
        while index < len(deliveries):
            delivery = deliveries[index]
            subscription = delivery.subscription
            if (
                delivery.qos
                or subscription is None
                or delivery.others
                or subscription.deadline_ns
                or delivery.message.timeout_ns
            ):
                break
            self.earned_micro += subscription.price_micro
            index += 1
        self.in_time += index - first
        return index

    def drop(self, client_id: str, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """Account for a copy that will not be delivered."""
        for one in pairs(delivery):
            self.dropped[reason.value] += 1
            if one is not None:
                self.paid_micro += one.penalty_micro
            self.missed.append(Missed(client_id, delivery.message, one, reason, now_ns))
            if self.is_tracing:
                self.trace.add(client_id, delivery, one, DROPPED, reason.value, now_ns)

    def drop_under_way(
        self,
        client_id: str,
        subscription: Subscription,
        message: Message,
        link: str,
        queued_ns: int,
        reason: Reason,
        now_ns: int,
    ) -> None:
        """Account for a message dropped on its way to another broker; its pair counts as matched here."""
        self.matched += 1
        delivery = Delivery(message, 0, False, subscription=subscription, offered_ns=now_ns - queued_ns)
        delivery.link = link
        self.drop(client_id, delivery, reason, now_ns)

    def retract(self, client_id: str, delivery: Delivery) -> None:
        """Undo `delivered` for a QoS 0 copy that could not be sent after all."""
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
                self.trace.remove(client_id, message.sequence, one)


def pairs(delivery: Delivery) -> list[Subscription | None]:
    """Return the subscriptions of a copy; [None] if they were removed since it was stored."""
    found: list[Subscription | None] = [delivery.subscription]
    for other in delivery.others:
        found.append(other)
    return found
