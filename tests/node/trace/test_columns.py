"""Columns of trace records: tables and files hold what the records say, one by one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.account.account import Account
from timebound.core.account.trace_log import TraceBatch, TraceLog, TraceRecord
from timebound.core.values.message import Delivery, Message, MessageName
from timebound.core.values.subscription import Subscription
from timebound.core.values.trace_columns import TraceHint
from timebound.node.trace.columns import _TABLE_MAX, TRACE_METADATA, parquet_columns, to_table, trace_schema
from timebound.node.trace.pack import TracePacks
from timebound.node.trace.parquet.runs import RunsFile
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION, Reason
from timebound.terms import Terms
from timebound.units import MILLISECOND

HUGE: Final = bytes(_TABLE_MAX + 5)
times = st.one_of(st.integers(0, 40), st.integers(0, 1 << 61))


def row_of(record: TraceRecord) -> dict[str, Any]:
    """The naive way: field by field."""
    message, receiver = record.message, record.receiver
    return {
        "time_ns": record.time_ns,
        "message_id": record.message_id,
        "topic": message.topic,
        "publisher": message.publisher,
        "subscriber": receiver.client_id,
        "topic_filter": receiver.topic_filter,
        "qos": receiver.qos,
        "size_bytes": record.size_bytes,
        "published_ns": record.published_ns,
        "queued_ns": (record.sent_ns or record.time_ns) - record.offered_ns,
        "allowed_ns": receiver.allowed_ns,
        "outcome": receiver.outcome,
        "reason": receiver.reason,
        "price_micro": receiver.price_micro,
        "penalty_micro": receiver.penalty_micro,
        "hop": message.hops,
        "link": receiver.link or receiver.client_id,
        "sent_ns": record.sent_ns,
        "promised_ns": message.promised_ns,
        "origin": message.origin,
        "started_ns": message.started_ns,
        "number": record.number,
        "traceparent": message.traceparent,
    }


def naive(batches: Iterable[TraceBatch]) -> pa.Table:
    rows = [row_of(record) for batch in batches for record in batch.records()]
    return pa.Table.from_pylist(rows, trace_schema())


def read_back(path: Path, batches: Iterable[TraceBatch]) -> pa.Table:
    """What a file holds, with a row group for each batch."""
    file = RunsFile(path, TRACE_FIELDS, TRACE_METADATA, "timebound version 1")
    for batch in batches:
        file.write_group(*parquet_columns(batch))
    file.finish()
    return pq.ParquetFile(path).read()


def check(path: Path, batch: TraceBatch) -> None:
    """Table and file are as the records one by one."""
    expected = naive([batch])
    table = to_table(batch)
    assert table.num_rows == batch.count
    assert table.cast(trace_schema()).equals(expected)
    assert read_back(path, [batch]).equals(expected)


# --- anything, against the naive way ----------------------------------------------------

# Copies that differ in their id alone; then what they say.
turns = st.tuples(
    st.one_of(st.integers(1, 3), st.integers(30, 90)),
    st.sampled_from(("a", "plant/7/temp", "über")),
    st.sampled_from(("", "p")),
    st.sampled_from((b"", b"x", b"xy", HUGE)),
    st.integers(0, 3),  # which subscription
    st.sampled_from((0, 0, 1, 2)),
    st.sampled_from(("", "", "b1-b2")),
    st.sampled_from((0, 0, 5)),  # timeout
    st.sampled_from((0, 3)),  # hops
    st.sampled_from((0, 1 << 40)),  # promised
    st.sampled_from((None, None, Reason.HOPELESS)),
    st.booleans(),  # whether times are those of the turn before
    st.tuples(times, times, times, times, times),
)


def batch_of(account: Account, given_turns: list[tuple[Any, ...]]) -> TraceBatch:
    subscriptions = [
        Subscription(client_id="s", topic_filter="#"),
        Subscription(client_id="s", topic_filter="a", terms=Terms(price=2.5, penalty=0.25)),
        Subscription(client_id="u", topic_filter="+", terms=Terms(deadline_ns=20)),
        None,
    ]
    next_id = 0
    latest = given_turns[0][-1]
    for *fields, is_same_time, moments in given_turns:
        count, topic, publisher, payload, number, qos, link, timeout_ns, hops, promised_ns, reason = fields
        if not is_same_time:
            latest = moments
            next_id = moments[0]
        _, now_ns, published_ns, offered_ns, sent_ns = latest
        wanted = subscriptions[number]
        client_id = wanted.client_id if wanted is not None else "gone"
        copies = []
        for message_id in range(next_id, next_id + count):
            message = Message(topic, payload, qos, False, published_ns, publisher, sequence=message_id)
            message.timeout_ns, message.hops, message.promised_ns = timeout_ns, hops, promised_ns
            copy = Delivery(message, qos, False, subscription=wanted, offered_ns=offered_ns)
            copy.link, copy.sent_ns = link, sent_ns
            copies.append(copy)
        next_id += count
        if reason is not None:
            for copy in copies:
                copy.sent_ns = 0
                account.drop(client_id, copy, reason, now_ns)
        elif qos:
            for copy in copies:
                account.delivered(client_id, copy, now_ns)
        else:
            account.delivered_now(client_id, copies, 0, now_ns)
    return account.trace.take()


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(turns, min_size=1, max_size=8), min_size=1, max_size=3))
def test_tables_and_files_hold_the_records_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[Any, ...]]]
) -> None:
    account = Account()
    account.is_tracing = True
    taken = [batch_of(account, one) for one in batches]
    packs = TracePacks()
    for batch in taken:
        packs.add(batch)
    [pack] = packs.take()
    expected = naive(taken)

    file = read_back(tmp_path_factory.mktemp("columns") / "a.parquet", taken)

    assert to_table(pack.batch()).cast(trace_schema()).equals(expected)
    assert file.equals(expected)


# --- how many different values there are ------------------------------------------------


def batch_of_topics(count: int, rows_of_topic: int) -> TraceBatch:
    log = TraceLog()
    wanted = Subscription(client_id="s", topic_filter="#")
    copies = [
        Delivery(
            Message(f"t/{number}", b"x", 0, False, 5, "p", sequence=number * rows_of_topic + offset),
            0,
            False,
            subscription=wanted,
        )
        for number in range(count)
        for offset in range(rows_of_topic)
    ]
    log.add_untimed("s", copies, 0, len(copies), "in_time", 9)
    return log.take()


def batch_of_sizes(sizes: Iterable[int]) -> TraceBatch:
    """A record for each; the topic has one byte, and each message counts 8 more."""
    log = TraceLog()
    wanted = Subscription(client_id="s", topic_filter="#")
    for number, size in enumerate(sizes):
        message = Message("t", bytes(size - 9), 0, False, 5, "p", sequence=number)
        log.add("s", Delivery(message, 0, False, subscription=wanted), wanted, "in_time", "", 9)
    return log.take()


@pytest.mark.parametrize("rows_of_topic", [1, 2, 40])
@pytest.mark.parametrize("count", [1, 2, 256, 257])
def test_some_topics_fit(tmp_path: Path, count: int, rows_of_topic: int) -> None:
    batch = batch_of_topics(count, rows_of_topic)

    assert batch.count == count * rows_of_topic
    assert len(batch.rows) < 40 * count
    check(tmp_path / "a.parquet", batch)


def test_more_topics_than_two_bytes_can_number_fit(tmp_path: Path) -> None:
    check(tmp_path / "a.parquet", batch_of_topics(65_537, 1))


@pytest.mark.parametrize("count", [1, 2, 256, 257])
def test_some_sizes_fit(tmp_path: Path, count: int) -> None:
    check(tmp_path / "a.parquet", batch_of_sizes(9 + number * 7 % count for number in range(500)))


def test_more_sizes_than_two_bytes_can_number_fit(tmp_path: Path) -> None:
    batch = batch_of_sizes(range(9, 9 + 65_537))

    assert max(record.size_bytes for record in batch.records()) < _TABLE_MAX
    check(tmp_path / "a.parquet", batch)


@pytest.mark.parametrize(
    "sizes",
    [
        (_TABLE_MAX - 1, 9),
        (_TABLE_MAX, 9),
        (_TABLE_MAX + 1, _TABLE_MAX, 9, 10),
        (5 * _TABLE_MAX,),
        (5 * _TABLE_MAX, 5 * _TABLE_MAX, 5 * _TABLE_MAX),
        (10, 5 * _TABLE_MAX, 11, 5 * _TABLE_MAX + 1, 10, 10, 5 * _TABLE_MAX),
    ],
)
def test_sizes_too_large_for_a_table_fit(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    batch = batch_of_sizes(sizes)

    check(tmp_path / "a.parquet", batch)
    assert to_table(batch)["size_bytes"].to_pylist() == list(sizes)


@pytest.mark.parametrize("counts", [[1], [20_000], [1, 500, 1], [1, 1, 1, 70, 1, 2, 1], [1] * 200 + [90]])
def test_rows_that_are_alike_and_single_ones_mix(tmp_path: Path, counts: list[int]) -> None:
    log = TraceLog()
    wanted = Subscription(client_id="s", topic_filter="#")
    first = 0
    for number, count in enumerate(counts):
        copies = [
            Delivery(
                Message(f"t/{number % 3}", bytes(number % 5), 0, False, number, "p", sequence=message_id),
                0,
                False,
                subscription=wanted,
                offered_ns=number,
            )
            for message_id in range(first, first + count)
        ]
        log.add_untimed("s", copies, 0, count, "in_time", number)
        first += count
    batch = log.take()

    assert len(batch.rows) == 16 * len(counts)
    check(tmp_path / "a.parquet", batch)


# --- what they are called ---------------------------------------------------------------


def test_texts_of_a_table_stay_coded_and_each_stands_once() -> None:
    batch = batch_of_topics(3, 50)

    topics = to_table(batch)["topic"].combine_chunks()

    assert topics.type == pa.dictionary(pa.int32(), pa.string())
    assert topics.dictionary.to_pylist() == ["t/0", "t/1", "t/2"]


def test_columns_are_those_of_the_records_and_the_version_is_said(tmp_path: Path) -> None:
    batch = batch_of_topics(2, 2)

    table = to_table(batch)
    file = read_back(tmp_path / "a.parquet", [batch])

    assert trace_schema().names == [name for name, _ in TRACE_FIELDS]
    assert table.schema.names == file.schema.names == trace_schema().names
    for schema in (trace_schema(), table.schema, file.schema):
        assert schema.metadata[b"timebound.trace.version"] == str(TRACE_SCHEMA_VERSION).encode()
    assert file.schema.equals(trace_schema())


def test_numbers_of_a_record_are_those_that_were_given() -> None:
    log = TraceLog()
    log.origin, log.started_ns = "b1", 3
    wanted = Subscription(
        client_id="s", topic_filter="#", terms=Terms(deadline_ns=MILLISECOND, price=2.5, penalty=0.5)
    )
    message = Message("a/b", b"xyz", 1, False, 1_000, "p", sequence=7)
    message.hops, message.promised_ns = 2, 9_000
    sent = Delivery(message, 1, False, subscription=wanted, offered_ns=1_100)
    sent.sent_ns, sent.link = 1_500, "b1-b2"
    given_up = Delivery(message, 1, False, subscription=wanted, offered_ns=1_100)
    log.add("s", sent, wanted, "in_time", "", 1_700)
    log.add("s", given_up, wanted, "dropped", "hopeless", 1_900)

    first, second = to_table(log.take()).to_pylist()

    assert first == {
        "time_ns": 1_700,
        "message_id": 7,
        "topic": "a/b",
        "publisher": "p",
        "subscriber": "s",
        "topic_filter": "#",
        "qos": 1,
        "size_bytes": 14,
        "published_ns": 1_000,
        "queued_ns": 400,
        "allowed_ns": MILLISECOND,
        "outcome": "in_time",
        "reason": "",
        "price_micro": 2_500_000,
        "penalty_micro": 500_000,
        "hop": 2,
        "link": "b1-b2",
        "sent_ns": 1_500,
        "promised_ns": 9_000,
        "origin": "b1",
        "started_ns": 3,
        "number": 7,
        "traceparent": "",
    }
    changes = {"time_ns": 1_900, "queued_ns": 800, "outcome": "dropped", "reason": "hopeless"}
    assert second == first | changes | {"link": "s", "sent_ns": 0}


def test_a_message_from_another_broker_keeps_the_name_it_got_there(tmp_path: Path) -> None:
    log = TraceLog()
    log.origin, log.started_ns = "b1", 3
    wanted = Subscription(client_id="s", topic_filter="#")
    hint = TraceHint()
    for sequence, number in ((1, 0), (2, 40), (3, 41), (4, 0), (5, 0)):
        message = Message("t", b"", 0, False, 0, "p", sequence=sequence)
        message.trace_hint = hint
        if number:
            message.name = MessageName("b2", 9, number)
        log.add("s", Delivery(message, 0, False, subscription=wanted), wanted, "in_time", "", 0)

    batch = log.take()

    names = [(row["origin"], row["started_ns"], row["number"]) for row in to_table(batch).to_pylist()]
    assert names == [("b1", 3, 1), ("b2", 9, 40), ("b2", 9, 41), ("b1", 3, 4), ("b1", 3, 5)]
    check(tmp_path / "a.parquet", batch)
