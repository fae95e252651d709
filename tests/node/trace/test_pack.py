"""Packs of trace records: batches one behind the other, and memory that is used again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.account.trace_log import TraceBatch, TraceLog, TraceRecord
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.node.trace.pack import PACK_BYTES, SPARE_MAX, TracePack, TracePacks


def add(log: TraceLog, *ids: int, topic: str = "t") -> None:
    wanted = Subscription(client_id="s", topic_filter=topic)
    for number in ids:
        message = Message(topic, b"x", 0, False, number, "p", sequence=number)
        delivery = Delivery(message, 0, False, subscription=wanted, offered_ns=number + 1)
        log.add("s", delivery, wanted, "in_time", "", number + 2)


def batch_of(log: TraceLog, *ids: int, topic: str = "t") -> TraceBatch:
    add(log, *ids, topic=topic)
    return log.take()


def of_size(log: TraceLog, size_bytes: int) -> TraceBatch:
    """Records that all differ, as many as fit."""
    one = batch_of(log, 1)
    count = size_bytes // one.size_bytes()
    return TraceBatch(count, one.message_columns, one.receiver_columns, one.runs * count, one.rows * count)


def records_of(pack: TracePack) -> list[TraceRecord]:
    return list(pack.batch().records())


def ids_of(pack: TracePack) -> list[int]:
    return [record.message_id for record in records_of(pack)]


@settings(max_examples=50, deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 1 << 61), min_size=1, max_size=5)),
        min_size=1,
        max_size=8,
    )
)
def test_batches_of_the_same_tables_stand_one_behind_the_other(batches: list[tuple[str, list[int]]]) -> None:
    log = TraceLog()
    packs = TracePacks()
    taken = [batch_of(log, *ids, topic=topic) for topic, ids in batches]

    for batch in taken:
        packs.add(batch)
    [pack] = packs.take()

    assert records_of(pack) == [record for batch in taken for record in batch.records()]
    assert [(record.message.topic, record.message_id) for record in records_of(pack)] == [
        (topic, number) for topic, ids in batches for number in ids
    ]
    assert pack.count == sum(batch.count for batch in taken)
    assert pack.size_bytes == sum(batch.size_bytes() for batch in taken)
    assert pack.size_bytes == pack.batch().size_bytes()


def test_a_batch_of_other_tables_begins_another_pack() -> None:
    packs = TracePacks()
    first, second = TraceLog(), TraceLog()

    packs.add(batch_of(first, 1))
    packs.add(batch_of(second, 2, topic="u"))
    packs.add(batch_of(second, 3, topic="u"))
    packs.add(batch_of(first, 4))

    assert [[(one.message.topic, one.message_id) for one in records_of(pack)] for pack in packs.take()] == [
        [("t", 1)],
        [("u", 2), ("u", 3)],
        [("t", 4)],
    ]


def test_a_pack_that_is_large_enough_gets_no_more() -> None:
    log = TraceLog()
    packs = TracePacks()
    almost = of_size(log, PACK_BYTES - 1)
    assert almost.size_bytes() < PACK_BYTES

    packs.add(almost)
    packs.add(batch_of(log, 2))
    packs.add(batch_of(log, 3))
    packs.add(batch_of(log, 4))
    full, rest = packs.take()

    assert full.size_bytes >= PACK_BYTES
    assert (full.count, ids_of(full)[-1]) == (almost.count + 1, 2)
    assert ids_of(rest) == [3, 4]


def test_a_batch_stays_whole_however_large() -> None:
    log = TraceLog()
    packs = TracePacks()
    large = of_size(log, 2 * PACK_BYTES)

    packs.add(batch_of(log, 7))
    packs.add(large)
    [pack] = packs.take()

    assert pack.count == large.count + 1
    assert pack.size_bytes > 2 * PACK_BYTES


def test_nothing_makes_no_pack() -> None:
    log = TraceLog()
    wanted = Subscription(client_id="s", topic_filter="t")
    add(log, 1)
    log.remove("s", 1, wanted)
    packs = TracePacks()

    packs.add(log.take())

    assert packs.take() == []


def test_taken_packs_are_not_added_to() -> None:
    log = TraceLog()
    packs = TracePacks()
    packs.add(batch_of(log, 1))
    [taken] = packs.take()

    packs.add(batch_of(log, 2))

    assert ids_of(taken) == [1]
    assert [ids_of(pack) for pack in packs.take()] == [[2]]
    assert packs.take() == []


def test_a_pack_that_was_given_back_holds_only_what_is_new() -> None:
    packs = TracePacks()
    packs.add(batch_of(TraceLog(), *range(100)))
    [written] = packs.take()
    batch = written.batch()
    packs.recycle(written)
    log = TraceLog()

    packs.add(batch_of(log, 5, 6, topic="u"))
    packs.add(batch_of(log, 7, topic="v"))
    [pack] = packs.take()

    assert pack is written
    assert [(record.message.topic, record.message_id) for record in records_of(pack)] == [
        ("u", 5),
        ("u", 6),
        ("v", 7),
    ]
    assert pack.count == 3
    assert pack.size_bytes == pack.batch().size_bytes()
    assert (pack.message_columns, pack.receiver_columns) == (
        log.take().message_columns,
        log.take().receiver_columns,
    )
    assert [record.message_id for record in batch.records()] == list(range(100))  # as it was


def test_no_more_packs_wait_for_use_than_allowed() -> None:
    packs = TracePacks()
    for number in range(SPARE_MAX + 2):
        packs.add(batch_of(TraceLog(), number))
    first = packs.take()
    for pack in first:
        packs.recycle(pack)

    for number in range(SPARE_MAX + 2):
        packs.add(batch_of(TraceLog(), 10 + number))
    second = packs.take()

    assert sum(pack in first for pack in second) == SPARE_MAX
    assert [ids_of(pack) for pack in second] == [[10 + number] for number in range(SPARE_MAX + 2)]
