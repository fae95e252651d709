"""An account under random traffic, and a plain list of the trace records that it should have."""

from __future__ import annotations

from collections.abc import Iterator
from struct import iter_unpack
from typing import Any, Final

from hypothesis import strategies as st

from timebound.core.account.account import Account
from timebound.core.account.trace_log import ROW_FIELDS, RUN_FIELDS, TraceBatch, TraceRecord
from timebound.core.values.message import Delivery, Message, MessageName
from timebound.core.values.subscription import Subscription
from timebound.core.values.trace_columns import TraceHint
from timebound.records import Reason
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND

LARGE: Final = 1 << 20
PAYLOADS: Final = tuple(bytes(size) for size in (0, 1, 2, LARGE, 3 * LARGE + 1))


def tracing() -> Account:
    account = Account()
    account.is_tracing = True
    return account


def runs_of(batch: TraceBatch) -> list[tuple[int, ...]]:
    return list(iter_unpack(f"<{len(RUN_FIELDS)}q", batch.runs))


def rows_of(batch: TraceBatch) -> list[tuple[int, ...]]:
    return list(iter_unpack(f"<{len(ROW_FIELDS)}i", batch.rows))


def add_up(batch: TraceBatch) -> bool:
    return batch.count == sum(run[0] for run in runs_of(batch)) == sum(row[0] for row in rows_of(batch))


Told = tuple[object, ...]


def told(record: TraceRecord) -> Told:
    """All that a record says."""
    message, receiver, *numbers = record
    return (
        *(message.topic, message.publisher, message.timeout_ns, message.promised_ns, message.hops),
        *(receiver.client_id, receiver.topic_filter, receiver.price_micro, receiver.penalty_micro),
        *(receiver.outcome, receiver.reason, receiver.qos, receiver.allowed_ns, receiver.link),
        *numbers,
        *(message.origin, message.started_ns, message.traceparent),
    )


FIELDS: Final[dict[str, tuple[Any, ...]]] = {
    "topic": ("a", "b", "c/d"),
    "publisher": ("p", "q"),
    "payload": PAYLOADS,
    "properties": (b"", b"abc"),
    "timeout_ns": (0, 0, MILLISECOND, SECOND),
    "promised_ns": (0, 5),
    "hops": (0, 3),
    "name": (None, None, ("b2", 7, 1_000), ("b2", 7, 2_000), ("b3", 0, 1_000)),
    "is_sampled": (False, False, True),
    "published_ns": (0, 1_000),
    "offered_ns": (0, 2_000),
    "qos": (0, 0, 1, 2),
    "link": ("", "", "b1-b2"),
    "wanted": (0, 1, 2, 3, None),
    "has_others": (False, True),
    "has_hint": (True, True, False),
    "id_step": (1, 1, 2),
}
Change = tuple[str, Any]
changes = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(FIELDS[name]))
)
# Messages that come together; most are as the one before, and some differ in one thing.
together = st.lists(st.one_of(st.none(), st.none(), changes), min_size=1, max_size=6)
clients = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True)
moments = st.sampled_from((3_000, 3_000, 4_000, SECOND // 2, 1 << 61))
deliver_now = st.tuples(st.just("deliver_now"), together, clients, moments, st.integers(0, 1))
steps = st.one_of(
    st.tuples(st.just("change"), changes),
    deliver_now,
    deliver_now,
    deliver_now,
    st.tuples(st.just("deliver"), together, clients, moments),
    st.tuples(
        *(st.just("drop"), together, clients, moments),
        st.sampled_from((Reason.HOPELESS, Reason.TOO_LARGE)),
    ),
    st.tuples(st.just("retract"), st.integers(0, 9)),
    st.tuples(st.just("forget_matches")),
    st.tuples(st.just("take")),
)


class Turns:
    """An account under random traffic, and the records that it should have."""

    def __init__(self) -> None:
        self.account = tracing()
        self.account.trace.origin, self.account.trace.started_ns = "b1", 5
        self.expected: list[Told] = []
        self.is_untouched = True  # since records were taken
        self.values = {name: values[0] for name, values in FIELDS.items()}
        self.hints: dict[str, TraceHint] = {}
        self.retractable: list[tuple[str, Delivery]] = []
        self.next_id = 0
        everybodys = Subscription(client_id="", topic_filter="everybody", terms=Terms(price=0.5))
        self.subscriptions = {
            f"s{number}": (
                Subscription(client_id=f"s{number}", topic_filter="#"),
                Subscription(client_id=f"s{number}", topic_filter="+", terms=Terms(price=2.5, penalty=0.5)),
                everybodys,
                Subscription(
                    client_id=f"s{number}",
                    topic_filter="a",
                    terms=Terms(deadline_ns=2 * MILLISECOND, penalty=0.25),
                ),
            )
            for number in range(3)
        }

    def change(self, change: Change) -> None:
        name, value = change
        self.values[name] = value

    def deliver_now(self, together: list[Change | None], numbers: list[int], now_ns: int, first: int) -> None:
        for client_id, copies in self.hand_out(together, numbers, now_ns):
            self.account.delivered_now(client_id, copies, first, now_ns)
            for copy in copies[first:]:
                if copy.qos == 0:
                    self.expect_delivered(client_id, copy, now_ns)

    def deliver(self, together: list[Change | None], numbers: list[int], now_ns: int) -> None:
        for client_id, copies in self.hand_out(together, numbers, now_ns):
            for copy in copies:
                self.account.delivered(client_id, copy, now_ns + 9)
                self.expect_delivered(client_id, copy, now_ns + 9)

    def drop(self, together: list[Change | None], numbers: list[int], now_ns: int, reason: Reason) -> None:
        for client_id, copies in self.hand_out(together, numbers, 0):
            for copy in copies:
                self.account.drop(client_id, copy, reason, now_ns)
                for one in (copy.subscription, *copy.others):
                    self.expect(client_id, copy, one, "dropped", reason.value, now_ns)

    def retract(self, index: int) -> None:
        """One of the latest, or one whose record is gone already."""
        if index < len(self.retractable):
            client_id, copy = self.retractable.pop(-1 - index)
            self.account.retract(client_id, copy)
            filters = [one.topic_filter if one else "" for one in (copy.subscription, *copy.others)]
            self.expected = [
                one
                for one in self.expected
                if one[10] or (one[5], one[15]) != (client_id, copy.message.sequence) or one[6] not in filters
            ]

    def forget_matches(self) -> None:
        self.hints.clear()

    def take(self) -> None:
        assert self.account.trace.is_empty() == self.is_untouched
        batch = self.account.trace.take()
        assert [told(record) for record in batch.records()] == self.expected
        assert batch.count == len(self.expected)
        assert add_up(batch)
        assert [columns.number for columns in batch.message_columns] == list(
            range(len(batch.message_columns))
        )
        assert [reader.number for reader in batch.receiver_columns] == list(
            range(len(batch.receiver_columns))
        )
        assert self.account.trace.is_empty()
        self.expected = []
        self.is_untouched = True

    def hand_out(
        self, together: list[Change | None], numbers: list[int], sent_ns: int
    ) -> Iterator[tuple[str, list[Delivery]]]:
        """Publish messages; gives some clients and their copies."""
        all_values = [self.values | ({change[0]: change[1]} if change else {}) for change in together]
        messages = [self.message(values) for values in all_values]
        for number in numbers:
            client_id = f"s{number}"
            yield (
                client_id,
                [
                    self.copy(client_id, message, values, sent_ns)
                    for message, values in zip(messages, all_values, strict=True)
                ],
            )

    def message(self, values: dict[str, Any]) -> Message:
        self.next_id += values["id_step"]
        message = Message(values["topic"], values["payload"], 0, False, values["published_ns"])
        for name in ("publisher", "properties", "timeout_ns", "promised_ns", "hops"):
            setattr(message, name, values[name])
        message.sequence = self.next_id
        if values["name"] is not None:
            origin, started_ns, first = values["name"]
            message.name = MessageName(origin, started_ns, first + self.next_id)
        if values["is_sampled"]:
            message.user_properties = (("traceparent", f"00-{self.next_id + 1:032x}-00f067aa0ba902b7-01"),)
        if values["has_hint"]:
            message.trace_hint = self.hints.setdefault(message.topic, TraceHint())
        return message

    def copy(self, client_id: str, message: Message, values: dict[str, Any], sent_ns: int) -> Delivery:
        wanted = values["wanted"]
        copy = Delivery(message, values["qos"], False)
        if wanted is not None:
            subscriptions = self.subscriptions[client_id]
            copy.subscription = subscriptions[wanted]
            if values["has_others"]:
                copy.others = (*subscriptions[:wanted], *subscriptions[wanted + 1 :])
        copy.link = values["link"]
        copy.offered_ns = values["offered_ns"]
        copy.sent_ns = sent_ns
        return copy

    def expect_delivered(self, client_id: str, copy: Delivery, time_ns: int) -> None:
        message = copy.message
        for one in (copy.subscription, *copy.others):
            limits = [limit for limit in (message.timeout_ns, one.deadline_ns if one else 0) if limit]
            is_late = any(copy.sent_ns - message.published_ns > limit for limit in limits)
            self.expect(client_id, copy, one, "late" if is_late else "in_time", "", time_ns)
        if copy.qos == 0:
            self.retractable.append((client_id, copy))

    def expect(
        self,
        client_id: str,
        copy: Delivery,
        one: Subscription | None,
        outcome: str,
        reason: str,
        time_ns: int,
    ) -> None:
        self.is_untouched = False
        message = copy.message
        name = message.name
        limits = [limit for limit in (message.timeout_ns, one.deadline_ns if one else 0) if limit]
        size_bytes = 8 + len(message.topic) + len(message.payload) + len(message.properties)
        terms: Told = (one.topic_filter, one.price_micro, one.penalty_micro) if one else ("", 0, 0)
        self.expected.append(
            (
                *(message.topic, message.publisher, message.timeout_ns, message.promised_ns, message.hops),
                *(client_id, *terms, outcome, reason, copy.qos, min(limits, default=0), copy.link),
                *(size_bytes, message.sequence, time_ns),
                *(message.published_ns, copy.offered_ns, copy.sent_ns),
                *(
                    (name.number, name.origin, name.started_ns)
                    if name is not None
                    else (message.sequence, "b1", 5)
                ),
                dict(message.user_properties).get("traceparent", ""),
            )
        )
