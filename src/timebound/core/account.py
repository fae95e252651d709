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
from timebound.core.trace_run import TraceKind, TraceRun, count_alike
from timebound.records import Outcome, Reason

IN_TIME: Final = Outcome.IN_TIME.value
LATE: Final = Outcome.LATE.value
DROPPED: Final = Outcome.DROPPED.value
# Kinds of records that are remembered, some megabytes of them; beyond, all are forgotten and made again.
KINDS_MAX: Final = 10_000


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
        "_kind",
        "_kinds",
        "_kinds_of_topics",
        "_kinds_remembered",
        "_run",
        "dropped",
        "earned_micro",
        "in_time",
        "is_tracing",
        "late",
        "matched",
        "missed",
        "paid_micro",
        "runs",
    )

    def __init__(self) -> None:
        self.matched = 0
        self.in_time = 0
        self.late = 0
        self.dropped: dict[str, int] = {reason.value: 0 for reason in Reason}
        self.earned_micro = 0
        self.paid_micro = 0
        self.is_tracing = False
        self.runs: list[TraceRun] = []
        self._kind: TraceKind | None = None  # of the latest record
        # Kinds that were made, by session and outcome, then by topic; and those of the latest record.
        self._kinds: dict[tuple[str, str], dict[str, TraceKind]] = {}
        self._kinds_of_topics: dict[str, TraceKind] = {}
        self._kinds_remembered = 0
        self._run: TraceRun | None = None  # that the latest record is in; None if it may not grow
        self.missed: list[Missed] = []

    def delivered(self, client_id: str, delivery: Delivery, now_ns: int, count: int = 1) -> None:
        """A copy has reached its session, and so many more as `count_alike` has found to be alike.

        `sent_ns` says when they left.
        """
        subscription = delivery.subscription
        message = delivery.message
        if (
            subscription is not None
            and not delivery.others
            and not subscription.deadline_ns
            and not message.timeout_ns
        ):
            self.in_time += count
            self.earned_micro += subscription.price_micro * count
            if self.is_tracing:
                self._trace(client_id, delivery, subscription, IN_TIME, "", now_ns, count)
            return
        for one in pairs(delivery):
            allowed_ns = message.allowed_ns(one)
            if allowed_ns and delivery.sent_ns - message.published_ns > allowed_ns:
                self.late += count
                self.paid_micro += one.penalty_micro * count if one is not None else 0
                outcome = LATE
            else:
                self.in_time += count
                self.earned_micro += one.price_micro * count if one is not None else 0
                outcome = IN_TIME
            if self.is_tracing:
                self._trace(client_id, delivery, one, outcome, "", now_ns, count)

    def delivered_now(self, client_id: str, deliveries: list[Delivery], first: int, now_ns: int) -> None:
        """Those from `first` on were sent now; those of QoS 0 have thereby reached their session.

        For a trace, those that are alike are taken together: one by one that takes twice the time.
        """
        index = first
        while index < len(deliveries):
            delivery = deliveries[index]
            count = 1
            if delivery.qos == 0:
                if self.is_tracing:
                    count = count_alike(deliveries, index)
                self.delivered(client_id, delivery, now_ns, count)
            index += count

    def drop(self, client_id: str, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """A copy will never reach its session."""
        for one in pairs(delivery):
            self.dropped[reason.value] += 1
            if one is not None:
                self.paid_micro += one.penalty_micro
            self.missed.append(Missed(client_id, delivery.message, one, reason))
            if self.is_tracing:
                self._trace(client_id, delivery, one, DROPPED, reason.value, now_ns, 1)

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
        """A message was given up on its way to another broker; the pair is matched and ends here."""
        self.matched += 1
        delivery = Delivery(message, 0, False, subscription=subscription, offered_ns=now_ns - queued_ns)
        delivery.link = link
        self.drop(client_id, delivery, reason, now_ns)

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
                self._untrace(client_id, message.sequence, one)

    def take_runs(self) -> list[TraceRun]:
        """The trace since the last call."""
        runs = self.runs
        self.runs = []
        self._run = None
        return runs

    def _untrace(self, client_id: str, message_id: int, subscription: Subscription | None) -> None:
        """Take the latest such record out of its run: what is behind it becomes a run of its own."""
        self._run = None
        runs = self.runs
        index = len(runs)
        while index > 0:
            index -= 1
            run = runs[index]
            offset = message_id - run.message_id
            if not 0 <= offset < run.count:
                continue
            kind = run.kind_at(offset)
            if kind.client_id == client_id and kind.subscription is subscription and not kind.reason:
                del runs[index]
                behind = run.count - offset - 1
                if behind:
                    runs.insert(index, run.part(message_id + 1, behind))
                if offset:
                    runs.insert(index, run.part(run.message_id, offset))
                return

    def _trace(
        self,
        client_id: str,
        delivery: Delivery,
        subscription: Subscription | None,
        outcome: str,
        reason: str,
        now_ns: int,
        count: int,
    ) -> None:
        kind = self._kind
        if kind is None or not kind.describes(client_id, delivery, subscription, outcome, reason):
            kind = self._find_kind(client_id, delivery, subscription, outcome, reason)
            self._kind = kind
        run = self._run
        if run is not None and run.takes(delivery, now_ns) and run.extend(kind, count):
            return
        message = delivery.message
        run = TraceRun(
            kind, now_ns, message.published_ns, delivery.offered_ns, delivery.sent_ns, message.sequence, count
        )
        self._run = run
        self.runs.append(run)

    def _find_kind(
        self, client_id: str, delivery: Delivery, subscription: Subscription | None, outcome: str, reason: str
    ) -> TraceKind:
        """One of before, where several take turns: as topics do, or those who get the same messages."""
        latest = self._kind
        kinds = self._kinds_of_topics
        if latest is None or latest.client_id != client_id or latest.outcome is not outcome:
            kinds = self._kinds.setdefault((client_id, outcome), {})
            self._kinds_of_topics = kinds
        topic = delivery.message.topic
        kind = kinds.get(topic)
        if kind is not None and kind.describes(client_id, delivery, subscription, outcome, reason):
            return kind
        if kind is None:
            if self._kinds_remembered >= KINDS_MAX:
                self._kinds_remembered = 0
                kinds = {}
                self._kinds_of_topics = kinds
                self._kinds = {(client_id, outcome): kinds}
            self._kinds_remembered += 1
        kind = TraceKind(client_id, delivery, subscription, outcome, reason)
        kinds[topic] = kind
        return kind


def pairs(delivery: Delivery) -> list[Subscription | None]:
    """The subscriptions a copy is for; [None] where they have gone since it was stored."""
    found: list[Subscription | None] = [delivery.subscription]
    for other in delivery.others:
        found.append(other)
    return found
