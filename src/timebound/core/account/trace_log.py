"""The trace log: records of pairs, from the account to the shell that writes them.

A record is a row of four numbers in a buffer: how often it repeats, the columns of its message and of its
receiver, and the size. Times stand once for all rows that share them and whose message ids count up: a run,
such as what was read together and left together. So topics, receivers and sizes may take turns, and no
message is kept alive. The number in a message's name is its id, unless it came from another broker; then it
is a run by itself, and so is a message that its publisher samples (`traceparent`). A record as an object
would cost more than its message: there would be many of them while a trace is written, and the collector
would look at all of them again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from librt.strings import BytesWriter, write_i32_le, write_i64_le

from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.core.values.trace_columns import ColumnsEpoch, MessageColumns, ReceiverColumns
from timebound.records import message_name, sampled_traceparent

# What stands in the buffers, in this order: for each record, and for each run.
ROW_FIELDS: Final = ("repeats", "message", "receiver", "size_bytes")
RUN_FIELDS: Final = ("count", "message_id", "time_ns", "published_ns", "offered_ns", "sent_ns", "number")
_ROW: Final = Struct(f"<{len(ROW_FIELDS)}i")
_RUN: Final = Struct(f"<{len(RUN_FIELDS)}q")
# Columns that are remembered, some megabytes; when there are more, all are made again.
DICTIONARY_MAX: Final = 32_768

_MessageKey = tuple[str, str, int, int, int, str, int, str]
_CopyKey = tuple[str, int, str]
_ReceiverKey = tuple[str, str, int, int, str, str, int, int, str]


class TraceRecord(NamedTuple):
    """One record as an object, for tests and for rare changes."""

    message: MessageColumns
    receiver: ReceiverColumns
    size_bytes: int
    message_id: int
    time_ns: int  # when the outcome was known
    published_ns: int
    offered_ns: int
    sent_ns: int  # 0 = not sent
    number: int  # of the message at its origin


class TraceBatch:
    """Records in buffers, and the columns of messages and receivers that they refer to by number."""

    __slots__ = ("count", "message_columns", "receiver_columns", "rows", "runs")

    def __init__(
        self,
        count: int,
        message_columns: list[MessageColumns],
        receiver_columns: list[ReceiverColumns],
        runs: bytes,
        rows: bytes,
    ) -> None:
        self.count = count  # of records
        self.message_columns = message_columns
        self.receiver_columns = receiver_columns
        self.runs = runs
        self.rows = rows

    def size_bytes(self) -> int:
        return len(self.runs) + len(self.rows)

    def records(self) -> Iterator[TraceRecord]:
        rows = _ROW.iter_unpack(self.rows)
        for count, message_id, time_ns, published_ns, offered_ns, sent_ns, number in _RUN.iter_unpack(
            self.runs
        ):
            end = message_id + count
            while message_id < end:
                repeats, message, receiver, size_bytes = next(rows)
                for _ in range(repeats):
                    yield TraceRecord(
                        self.message_columns[message],
                        self.receiver_columns[receiver],
                        size_bytes,
                        message_id,
                        time_ns,
                        published_ns,
                        offered_ns,
                        sent_ns,
                        number,
                    )
                    message_id += 1
                    number += 1


class TraceLog:
    """Collects records.

    Topics and receivers take turns, so their columns are remembered. The latest columns of a topic and of
    a subscription are stored there and tried first: a lookup by all values takes longer than the record.
    """

    __slots__ = (
        "_by_message",
        "_by_receiver",
        "_count",
        "_epoch",
        "_first_id",
        "_message_columns",
        "_next_id",
        "_offered_ns",
        "_published_ns",
        "_receiver_columns",
        "_removed",
        "_rows",
        "_runs",
        "_sent_ns",
        "_time_ns",
        "origin",
        "started_ns",
    )

    def __init__(self) -> None:
        self.origin = ""  # this broker, and when it started: the names of what is published here
        self.started_ns = 0
        self._rows = BytesWriter()
        self._runs = BytesWriter()
        self._count = 0  # records
        self._removed: list[tuple[int, _CopyKey]] = []  # each with the number of records at that time
        # Of the run that is not in its buffer yet; it is empty if both ids are equal.
        self._first_id = 0
        self._next_id = 0
        self._time_ns = 0
        self._published_ns = 0
        self._offered_ns = 0
        self._sent_ns = 0
        self._epoch = ColumnsEpoch()
        self._message_columns: list[MessageColumns] = []
        self._receiver_columns: list[ReceiverColumns] = []
        self._by_message: dict[_MessageKey, MessageColumns] = {}
        self._by_receiver: dict[_ReceiverKey, ReceiverColumns] = {}

    def name_of(self, message: Message) -> str:
        """Return the name of a message, as text."""
        name = message.name
        if name is None:
            return message_name(self.origin, self.started_ns, message.sequence)
        return message_name(name.origin, name.started_ns, name.number)

    def is_empty(self) -> bool:
        return self._count == 0

    def add(
        self,
        client_id: str,
        delivery: Delivery,
        subscription: Subscription | None,
        outcome: str,
        reason: str,
        now_ns: int,
    ) -> None:
        """Add the record of a pair."""
        allowed_ns = delivery.message.allowed_ns(subscription)
        receiver = self._find_receiver(
            client_id, subscription, outcome, reason, delivery.qos, allowed_ns, delivery.link
        )
        self._append(delivery, receiver, now_ns, 1)

    def add_untimed(
        self, client_id: str, deliveries: list[Delivery], first: int, end: int, outcome: str, now_ns: int
    ) -> None:
        """Add the records of QoS 0 copies without a time limit that were sent together."""
        index = first
        while index < end:
            delivery = deliveries[index]
            subscription = delivery.subscription
            receiver = subscription.trace_receiver if subscription is not None else None
            if (
                receiver is None
                or receiver.epoch is not self._epoch
                or receiver.outcome is not outcome
                or receiver.allowed_ns
                or receiver.qos
                or receiver.link != delivery.link
                or receiver.client_id != client_id
            ):
                receiver = self._find_receiver(client_id, subscription, outcome, "", 0, 0, delivery.link)
            count = 1
            if index + 1 < end and _may_repeat(delivery, deliveries[index + 1]):
                count = _count_repeats(deliveries, index, end)
            self._append(delivery, receiver, now_ns, count)
            index += count

    def remove(self, client_id: str, message_id: int, subscription: Subscription | None) -> None:
        """Remove the record that a copy was delivered."""
        topic_filter = subscription.topic_filter if subscription is not None else ""
        self._removed.append((self._count, (client_id, message_id, topic_filter)))

    def take(self) -> TraceBatch:
        """Take the records since the last call."""
        self._end_run()
        runs, rows = self._runs.getvalue(), self._rows.getvalue()
        batch = TraceBatch(self._count, self._message_columns, self._receiver_columns, runs, rows)
        self._count = 0
        self._rows.truncate(0)
        self._runs.truncate(0)
        if self._removed:
            batch = _without(batch, self._removed)
            self._removed = []
        if len(self._message_columns) + len(self._receiver_columns) > DICTIONARY_MAX:
            self._epoch = ColumnsEpoch()
            self._message_columns = []
            self._receiver_columns = []
            self._by_message = {}
            self._by_receiver = {}
        return batch

    def _append(self, delivery: Delivery, receiver: ReceiverColumns, now_ns: int, count: int) -> None:
        message = delivery.message
        if is_single(message):
            self._append_single(delivery, receiver, now_ns, count)
            return
        if (
            message.sequence != self._next_id
            or now_ns != self._time_ns
            or message.published_ns != self._published_ns
            or delivery.offered_ns != self._offered_ns
            or delivery.sent_ns != self._sent_ns
        ):
            self._end_run()
            self._first_id = message.sequence
            self._next_id = message.sequence
            self._time_ns = now_ns
            self._published_ns = message.published_ns
            self._offered_ns = delivery.offered_ns
            self._sent_ns = delivery.sent_ns
        self._next_id += count
        self._count += count
        hint = message.trace_hint
        columns = hint.columns if hint is not None else None
        if (
            columns is None
            or columns.epoch is not self._epoch
            or columns.publisher != message.publisher
            or columns.timeout_ns != message.timeout_ns
            or columns.promised_ns != message.promised_ns
            or columns.hops != message.hops
        ):
            columns = self._find_message(message, self.origin, self.started_ns, "")
            if hint is not None:
                hint.columns = columns
        rows = self._rows
        write_i32_le(rows, count)
        write_i32_le(rows, columns.number)
        write_i32_le(rows, receiver.number)
        write_i32_le(rows, message.size())

    def _append_single(self, delivery: Delivery, receiver: ReceiverColumns, now_ns: int, count: int) -> None:
        """Append the record of a message with columns of its own, as a run of its own.

        Its columns are not those that the next message of the topic tries first.
        """
        assert count == 1, "messages with columns of their own do not repeat"
        self._end_run()
        message, name = delivery.message, delivery.message.name
        self._count += 1
        self._write_run(
            1,
            message.sequence,
            now_ns,
            message.published_ns,
            delivery.offered_ns,
            delivery.sent_ns,
            message.sequence if name is None else name.number,
        )
        columns = self._find_message(
            message,
            self.origin if name is None else name.origin,
            self.started_ns if name is None else name.started_ns,
            sampled_traceparent(message.user_properties),
        )
        rows = self._rows
        write_i32_le(rows, 1)
        write_i32_le(rows, columns.number)
        write_i32_le(rows, receiver.number)
        write_i32_le(rows, message.size())

    def _end_run(self) -> None:
        first_id = self._first_id
        count = self._next_id - first_id
        if count == 0:
            return
        self._write_run(
            count, first_id, self._time_ns, self._published_ns, self._offered_ns, self._sent_ns, first_id
        )
        self._first_id = self._next_id

    def _write_run(
        self,
        count: int,
        message_id: int,
        time_ns: int,
        published_ns: int,
        offered_ns: int,
        sent_ns: int,
        number: int,
    ) -> None:
        runs = self._runs
        write_i64_le(runs, count)
        write_i64_le(runs, message_id)
        write_i64_le(runs, time_ns)
        write_i64_le(runs, published_ns)
        write_i64_le(runs, offered_ns)
        write_i64_le(runs, sent_ns)
        write_i64_le(runs, number)

    def _find_message(
        self, message: Message, origin: str, started_ns: int, traceparent: str
    ) -> MessageColumns:
        key = (
            message.topic,
            message.publisher,
            message.timeout_ns,
            message.promised_ns,
            message.hops,
            origin,
            started_ns,
            traceparent,
        )
        columns = self._by_message.get(key)
        if columns is None:
            columns = MessageColumns(self._epoch, len(self._message_columns), *key)
            self._message_columns.append(columns)
            self._by_message[key] = columns
        return columns

    def _find_receiver(
        self,
        client_id: str,
        subscription: Subscription | None,
        outcome: str,
        reason: str,
        qos: int,
        allowed_ns: int,
        link: str,
    ) -> ReceiverColumns:
        topic_filter = subscription.topic_filter if subscription is not None else ""
        price_micro = subscription.price_micro if subscription is not None else 0
        penalty_micro = subscription.penalty_micro if subscription is not None else 0
        key = (client_id, topic_filter, price_micro, penalty_micro, outcome, reason, qos, allowed_ns, link)
        receiver = self._by_receiver.get(key)
        if receiver is None:
            receiver = ReceiverColumns(self._epoch, len(self._receiver_columns), *key)
            self._receiver_columns.append(receiver)
            self._by_receiver[key] = receiver
        if subscription is not None:
            subscription.trace_receiver = receiver
        return receiver


def is_single(message: Message) -> bool:
    """Whether a message has columns of its own: it came from another broker, or its publisher samples it."""
    if message.name is not None:
        return True
    return len(message.user_properties) > 0 and len(sampled_traceparent(message.user_properties)) > 0


def _may_repeat(delivery: Delivery, following: Delivery) -> bool:
    """Whether to compare the rest: where topics or sizes take turns, this cheap test is all that is done."""
    return (
        following.subscription is delivery.subscription
        and len(following.message.payload) == len(delivery.message.payload)
        and following.message.topic == delivery.message.topic
    )


def _count_repeats(deliveries: list[Delivery], first: int, end: int) -> int:
    """Count the deliveries from `first` on whose records differ only in their id; all were sent together."""
    delivery = deliveries[first]
    subscription = delivery.subscription
    offered_ns = delivery.offered_ns
    link = delivery.link
    message = delivery.message
    if is_single(message):
        return 1
    next_id = message.sequence + 1
    topic = message.topic
    publisher = message.publisher
    published_ns = message.published_ns
    payload_length = len(message.payload)
    properties_length = len(message.properties)
    promised_ns = message.promised_ns
    hops = message.hops
    index = first + 1
    while index < end:
        delivery = deliveries[index]
        message = delivery.message
        if (
            message.sequence != next_id
            or delivery.subscription is not subscription
            or delivery.offered_ns != offered_ns
            or message.published_ns != published_ns
            or len(message.payload) != payload_length
            or message.topic != topic
            or message.publisher != publisher
            or message.promised_ns != promised_ns
            or message.hops != hops
            or len(message.properties) != properties_length
            or is_single(message)
            or delivery.link != link
        ):
            break
        next_id += 1
        index += 1
    return index - first


def _without(batch: TraceBatch, removed: list[tuple[int, _CopyKey]]) -> TraceBatch:
    """Return a batch without the removed records. This is rare, so each record becomes a run of its own.

    Messages of the broker itself have no id of their own: the latest such record at that time is removed.
    """
    records = list(batch.records())
    places: dict[_CopyKey, list[int]] = {}
    for index, record in enumerate(records):
        receiver = record.receiver
        if not receiver.reason:
            places.setdefault((receiver.client_id, record.message_id, receiver.topic_filter), []).append(
                index
            )
    gone: set[int] = set()
    for count, key in removed:
        indices = [index for index in places.get(key, []) if index < count and index not in gone]
        if indices:
            gone.add(indices[-1])
    runs: list[bytes] = []
    rows: list[bytes] = []
    for index, record in enumerate(records):
        if index not in gone:
            message, receiver, size_bytes, message_id, *times_ns = record
            runs.append(_RUN.pack(1, message_id, *times_ns))
            rows.append(_ROW.pack(1, message.number, receiver.number, size_bytes))
    return TraceBatch(
        len(runs), batch.message_columns, batch.receiver_columns, b"".join(runs), b"".join(rows)
    )
