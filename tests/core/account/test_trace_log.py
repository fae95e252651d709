"""The log of a trace: records come out as they went in, whatever stands once for many of them.

The property drives an account as a broker does, against a plain list of records.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.account import trace_log
from timebound.core.account.trace_log import DICTIONARY_MAX, ROW_FIELDS, RUN_FIELDS, TraceBatch, TraceLog
from timebound.core.values.message import Delivery, Message, MessageName
from timebound.core.values.subscription import Subscription
from timebound.core.values.trace_columns import TraceHint
from timebound.records import Reason
from timebound.terms import Terms
from timebound.units import SECOND

from .trace_turns import Turns, add_up, rows_of, runs_of, steps, tracing


def copy_of(
    wanted: Subscription | None, sequence: int, *, topic: str = "t", hint: TraceHint | None = None
) -> Delivery:
    message = Message(topic, b"x", 0, False, 0, "p", sequence=sequence)
    message.trace_hint = hint
    return Delivery(message, 0, False, subscription=wanted)


def ids_of(batch: TraceBatch) -> list[int]:
    return [record.message_id for record in batch.records()]


# --- what is stored once ----------------------------------------------------------------


@pytest.mark.parametrize("change", ["sequence", "time", "published", "sent", "queued"])
def test_records_that_differ_in_time_are_not_one_run(change: str) -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    first, second = copy_of(wanted, 1), copy_of(wanted, 2)
    now_ns = 7
    if change == "sequence":
        second.message.sequence = 5
    elif change == "time":
        now_ns = 8
    elif change == "published":
        second.message.published_ns = 3
    elif change == "sent":
        second.sent_ns = SECOND
    else:
        second.offered_ns = 2

    account.delivered("s", first, 7)
    account.delivered("s", second, now_ns)
    batch = account.trace.take()

    assert [run[0] for run in runs_of(batch)] == [1, 1]
    assert [record.time_ns for record in batch.records()] == [7, now_ns]


@pytest.mark.parametrize("change", ["subscription", "payload", "qos", "topic", "link"])
def test_records_that_differ_in_anything_else_are_one_run(change: str) -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=SECOND))
    copies = [copy_of(wanted, sequence) for sequence in (1, 2, 3)]
    if change == "subscription":
        copies[1].subscription = Subscription(
            client_id="s", topic_filter="#", terms=Terms(deadline_ns=SECOND)
        )
    elif change == "payload":
        copies[1].message.payload = b"xyz"
    elif change == "qos":
        copies[1].qos = 1
    elif change == "topic":
        copies[1].message.topic = "other"
    else:
        copies[1].link = "b1-b2"

    for copy in copies:
        account.delivered("s", copy, 7)
    batch = account.trace.take()
    first, second, third = batch.records()

    assert [run[:3] for run in runs_of(batch)] == [(3, 1, 7)]
    assert (first.message, first.receiver, first.size_bytes) == (
        third.message,
        third.receiver,
        third.size_bytes,
    )
    assert (first.message, first.receiver, first.size_bytes) != (
        second.message,
        second.receiver,
        second.size_bytes,
    )


def test_records_that_are_alike_take_one_row() -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    copies = [copy_of(wanted, sequence, topic="a" if sequence < 600 else "b") for sequence in range(1_000)]

    account.delivered_now("s", copies, 0, 7)
    batch = account.trace.take()

    assert [row[0] for row in rows_of(batch)] == [600, 400]
    assert [run[0] for run in runs_of(batch)] == [1_000]
    assert batch.size_bytes() == 2 * 4 * len(ROW_FIELDS) + 8 * len(RUN_FIELDS)
    assert [(record.message_id, record.message.topic) for record in batch.records()] == [
        (sequence, "a" if sequence < 600 else "b") for sequence in range(1_000)
    ]


def test_kinds_and_readers_that_take_turns_are_made_once() -> None:
    account = tracing()
    readers = [Subscription(client_id=f"s{number}", topic_filter="t") for number in range(3)]
    topics = ("a", "b")
    expected = []

    for sequence in range(8):
        for reader in readers:
            copy = copy_of(reader, sequence, topic=topics[sequence % 2])
            account.delivered(reader.client_id, copy, sequence)
            account.delivered_now(reader.client_id, [copy], 0, sequence)
            account.drop(reader.client_id, copy, Reason.HOPELESS, sequence)
            expected += [(topics[sequence % 2], reader.client_id, reason) for reason in ("", "", "hopeless")]
    batch = account.trace.take()

    assert [kind.topic for kind in batch.message_columns] == ["a", "b"]
    assert len(batch.receiver_columns) == 6
    assert [
        (record.message.topic, record.receiver.client_id, record.receiver.reason)
        for record in batch.records()
    ] == expected


def test_kinds_and_readers_are_still_known_after_taking() -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    account.delivered("s", copy_of(wanted, 1), 7)
    first = account.trace.take()

    account.delivered("s", copy_of(wanted, 2), 7)
    second = account.trace.take()

    assert (second.message_columns, second.receiver_columns) == (
        first.message_columns,
        first.receiver_columns,
    )
    assert second.message_columns is first.message_columns
    assert len(second.message_columns) == len(second.receiver_columns) == 1
    assert (ids_of(first), ids_of(second)) == ([1], [2])


def test_kinds_are_right_whatever_came_before() -> None:
    account = tracing()
    readers = [Subscription(client_id=f"s{number}", topic_filter="#") for number in range(2)]
    hints = [TraceHint() for _ in range(7)]
    expected = []
    for number in range(300):
        reader = readers[number // 3 % 2]
        copy = copy_of(reader, number * 2, topic=f"t/{number % 7}", hint=hints[number % 7])
        if number % 5:
            account.delivered(reader.client_id, copy, number)
        else:
            account.drop(reader.client_id, copy, Reason.HOPELESS, number)
        expected.append((reader.client_id, copy.message.topic, "in_time" if number % 5 else "dropped"))

    found = [
        (record.receiver.client_id, record.message.topic, record.receiver.outcome)
        for record in account.trace.take().records()
    ]

    assert found == expected


# --- tables that begin anew -------------------------------------------------------------


def fill_tables(log: TraceLog) -> None:
    """Have so many kinds that the tables begin anew when these are taken."""
    wanted = Subscription(client_id="filler", topic_filter="#")
    for number in range(DICTIONARY_MAX):
        log.add("filler", copy_of(wanted, number, topic=f"filler/{number}"), wanted, "in_time", "", number)


def test_no_more_kinds_and_readers_are_remembered_than_allowed() -> None:
    account = tracing()
    fill_tables(account.trace)

    full = account.trace.take()
    account.delivered("s", copy_of(Subscription(client_id="s", topic_filter="t"), 1), 7)
    after = account.trace.take()

    assert len(full.message_columns) == DICTIONARY_MAX
    assert [record.message.topic for record in full.records()] == [
        f"filler/{number}" for number in range(DICTIONARY_MAX)
    ]
    assert ([kind.topic for kind in after.message_columns], len(after.receiver_columns)) == (["t"], 1)


def test_as_many_kinds_and_readers_as_allowed_are_remembered() -> None:
    log = TraceLog()
    wanted = Subscription(client_id="s", topic_filter="#")
    for number in range(DICTIONARY_MAX - 1):
        log.add("s", copy_of(wanted, number, topic=f"t/{number}"), wanted, "in_time", "", number)
    first = log.take()

    log.add("s", copy_of(wanted, DICTIONARY_MAX, topic="t/0"), wanted, "in_time", "", DICTIONARY_MAX)
    second = log.take()

    assert len(first.message_columns) + len(first.receiver_columns) == DICTIONARY_MAX
    assert second.message_columns is first.message_columns
    assert len(second.message_columns) == DICTIONARY_MAX - 1


@pytest.mark.parametrize("is_together", [True, False])
def test_what_knows_kinds_and_readers_of_old_tables_gets_new_ones(is_together: bool) -> None:
    account = tracing()
    subscriptions = [Subscription(client_id=f"s{number}", topic_filter="#") for number in range(2)]
    hints = [TraceHint() for _ in range(2)]
    copies = [
        copy_of(subscriptions[number], number, topic=f"t/{number}", hint=hints[number]) for number in range(2)
    ]

    def add_all() -> None:
        for copy, subscription in zip(copies, subscriptions, strict=True):
            if is_together:
                account.delivered_now(subscription.client_id, [copy], 0, 7)
            else:
                account.delivered(subscription.client_id, copy, 7)

    add_all()
    fill_tables(account.trace)
    old = account.trace.take()
    copies.reverse()
    subscriptions.reverse()  # so that their numbers are not those of before
    add_all()
    new = account.trace.take()

    assert [(kind.topic, kind.number) for kind in new.message_columns] == [("t/1", 0), ("t/0", 1)]
    assert [(reader.client_id, reader.number) for reader in new.receiver_columns] == [("s1", 0), ("s0", 1)]
    assert [(record.message.topic, record.receiver.client_id) for record in new.records()] == [
        ("t/1", "s1"),
        ("t/0", "s0"),
    ]
    assert [record.message.topic for record in old.records()][:2] == ["t/0", "t/1"]
    assert new.message_columns is not old.message_columns
    assert new.receiver_columns is not old.receiver_columns


def test_what_knows_a_kind_or_a_reader_keeps_no_old_table_alive() -> None:
    account = tracing()
    wanted, hint = Subscription(client_id="s", topic_filter="t"), TraceHint()
    account.delivered_now("s", [copy_of(wanted, 1, hint=hint)], 0, 7)
    fill_tables(account.trace)

    old = account.trace.take()

    assert hint.columns in old.message_columns
    assert wanted.trace_receiver in old.receiver_columns
    # One of the batch, and one of the call.
    assert (sys.getrefcount(old.message_columns), sys.getrefcount(old.receiver_columns)) == (2, 2)


def test_a_message_of_another_kind_than_the_latest_of_its_topic_has_its_own() -> None:
    account = tracing()
    hint = TraceHint()
    wanted = Subscription(client_id="s", topic_filter="t")
    copies = [copy_of(wanted, number, hint=hint) for number in range(8)]
    copies[1].message.publisher = "q"
    copies[3].message.timeout_ns = 5
    copies[5].message.promised_ns = 6
    copies[7].message.hops = 2

    account.delivered_now("s", copies, 0, 7)
    found = [
        (kind.publisher, kind.timeout_ns, kind.promised_ns, kind.hops)
        for kind, *_ in account.trace.take().records()
    ]

    assert found[::2] == [("p", 0, 0, 0)] * 4
    assert found[1::2] == [("q", 0, 0, 0), ("p", 5, 0, 0), ("p", 0, 6, 0), ("p", 0, 0, 2)]


@pytest.mark.parametrize("before", ["dropped", "qos", "timeout", "link", "client"])
def test_copies_that_leave_together_have_a_reader_of_their_own_whatever_came_before(before: str) -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    other = copy_of(wanted, 1)
    if before == "qos":
        other.qos = 1
    elif before == "timeout":
        other.message.timeout_ns = SECOND
    elif before == "link":
        other.link = "b1-b2"
    if before == "dropped":
        account.drop("s", other, Reason.HOPELESS, 7)
    else:
        account.delivered("u" if before == "client" else "s", other, 7)

    account.delivered_now("s", [copy_of(wanted, 2), copy_of(wanted, 3)], 0, 7)
    first, *others = (record.receiver for record in account.trace.take().records())

    assert [
        (reader.client_id, reader.outcome, reader.reason, reader.qos, reader.allowed_ns, reader.link)
        for reader in others
    ] == [("s", "in_time", "", 0, 0, "")] * 2
    assert first is not others[0]


def test_copies_that_leave_together_have_the_reader_of_their_subscription() -> None:
    account = tracing()
    first, second = (
        Subscription(client_id="s", topic_filter="t"),
        Subscription(client_id="s", topic_filter="#"),
    )
    copies = [copy_of(first if number < 2 else second, number) for number in range(4)]

    account.delivered_now("s", copies, 0, 7)

    found = [record.receiver.topic_filter for record in account.trace.take().records()]
    assert found == ["t", "t", "#", "#"]


# --- what is taken back -----------------------------------------------------------------


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("taken_back", [{0}, {3}, {5}, {1, 2}, {0, 4, 5}, {0, 1, 2, 3, 4, 5}])
def test_what_is_taken_back_leaves_no_record(taken_back: set[int], is_together: bool) -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    copies = [copy_of(wanted, sequence) for sequence in range(6)]
    if is_together:
        account.delivered_now("s", copies, 0, 5)
    else:
        for copy in copies:
            account.delivered("s", copy, 5)

    for sequence in sorted(taken_back):
        account.retract("s", copies[sequence])
    batch = account.trace.take()

    assert ids_of(batch) == [sequence for sequence in range(6) if sequence not in taken_back]
    assert add_up(batch)
    assert account.trace.is_empty()


def test_of_messages_without_an_id_only_the_latest_is_taken_back() -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    copies = [copy_of(wanted, 0) for _ in range(3)]
    account.delivered("s", copies[0], 1)
    account.delivered("s", copies[1], 2)

    account.retract("s", copies[1])
    account.delivered("s", copies[2], 3)

    assert [record.time_ns for record in account.trace.take().records()] == [1, 3]


def test_what_is_taken_back_leaves_what_others_got_and_that_it_was_dropped() -> None:
    account = tracing()
    first, other = (
        Subscription(client_id="s", topic_filter="t"),
        Subscription(client_id="s", topic_filter="#"),
    )
    copy = copy_of(first, 1)
    account.delivered("u", copy_of(Subscription(client_id="u", topic_filter="t"), 1), 5)
    account.delivered("s", copy_of(other, 1), 5)
    account.delivered("s", copy, 5)

    account.retract("s", copy)
    account.drop("s", copy, Reason.TOO_LARGE, 5)

    assert [
        (reader.client_id, reader.topic_filter, reader.reason)
        for _, reader, *_ in account.trace.take().records()
    ] == [("u", "t", ""), ("s", "#", ""), ("s", "t", "too_large")]


def test_what_is_taken_back_leaves_the_kinds_and_sizes_of_the_others() -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    copies = [copy_of(wanted, sequence, topic=f"t/{sequence}") for sequence in range(4)]
    for sequence, copy in enumerate(copies):
        copy.message.payload = bytes(10 * sequence)
        account.delivered("s", copy, 5)

    account.retract("s", copies[1])

    assert [
        (record.message_id, record.message.topic, record.size_bytes)
        for record in account.trace.take().records()
    ] == [(0, "t/0", 11), (2, "t/2", 31), (3, "t/3", 41)]


def test_of_messages_without_an_id_as_many_are_taken_back_as_said_and_none_that_was_dropped() -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    copies = [copy_of(wanted, 0) for _ in range(4)]
    for time_ns, copy in enumerate(copies[:3]):
        account.delivered("s", copy, time_ns)
    account.drop("s", copies[3], Reason.HOPELESS, 3)

    account.retract("s", copies[2])
    account.retract("s", copies[1])

    assert [(record.time_ns, record.receiver.reason) for record in account.trace.take().records()] == [
        (0, ""),
        (3, "hopeless"),
    ]


def test_what_was_taken_back_does_not_concern_later_records() -> None:
    account = tracing()
    wanted = Subscription(client_id="s", topic_filter="t")
    copy = copy_of(wanted, 1)
    account.delivered("s", copy, 5)
    account.retract("s", copy)
    assert ids_of(account.trace.take()) == []

    account.delivered_now("s", [copy_of(wanted, sequence) for sequence in range(2, 102)], 0, 6)
    batch = account.trace.take()

    assert ids_of(batch) == list(range(2, 102))
    assert len(rows_of(batch)) == len(runs_of(batch)) == 1


# --- anything, against a plain list -----------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(turns=st.lists(steps, max_size=20), columns_max=st.sampled_from((0, 4, DICTIONARY_MAX)))
def test_records_are_those_of_a_plain_list(turns: list[tuple[Any, ...]], columns_max: int) -> None:
    world = Turns()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_log, "DICTIONARY_MAX", columns_max)

        for name, *arguments in turns:
            getattr(world, name)(*arguments)

        world.take()


def test_a_message_is_named_after_this_broker_unless_it_has_a_name() -> None:
    log = TraceLog()
    log.origin, log.started_ns = "b1", 3
    message = Message("t", b"", 0, False, 0, sequence=7)

    assert log.name_of(message) == "b1:3.7"
    message.name = MessageName("b2", 9, 40)
    assert log.name_of(message) == "b2:9.40"
