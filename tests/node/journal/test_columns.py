"""What journals take over of messages: by filter, in order, with what is lost in its place."""

from __future__ import annotations

import itertools
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.values.message import Message
from timebound.node.journal import columns as journal_columns
from timebound.node.journal.columns import PACK_ROWS, QOS_MASK, RETAIN_BIT, Intake, Pack, Packs
from timebound.topics import matches

FILTERS = ["#", "a/+", "b", "a/#"]
T = TypeVar("T")
messages = st.lists(
    st.builds(
        Message,
        st.sampled_from(["a", "a/b", "a/b/c", "b"]),
        st.binary(max_size=4),
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 3),
        st.sampled_from(["p", "q"]),
        user_properties=st.sampled_from([(), (("k", "v"),)]),
    ),
    max_size=20,
)


def deal(published: list[Message], *, is_lossy: bool = False) -> tuple[Intake, list[Packs]]:
    intake = Intake(FILTERS)
    packed = [Packs(bytes_max=10) for _ in FILTERS]
    middle = len(published) // 2
    for turn in (published[:middle], published[middle:]):
        intake.deal(turn, packed, is_lossy=is_lossy)
    return intake, packed


def spread(values: list[T], first_rows: list[int], rows: int) -> list[T]:
    ends = [*first_rows, rows][1:]
    return [
        value for value, first, end in zip(values, first_rows, ends, strict=True) for _ in range(first, end)
    ]


def rows_of(pack: Pack) -> list[tuple[object, ...]]:
    """What a pack has, row by row."""
    rows = pack.rows
    whole = b"".join([*pack.blobs, *pack.payloads])
    ends = [0, *itertools.accumulate(spread(pack.sizes, pack.size_rows, rows))]
    kinds = spread(pack.kinds, pack.kind_rows, rows)
    return list(
        zip(
            spread(pack.topics, pack.topic_rows, rows),
            [whole[start:end] for start, end in itertools.pairwise(ends)],
            [kind & QOS_MASK for kind in kinds],
            [bool(kind & RETAIN_BIT) for kind in kinds],
            spread(pack.published_ns, pack.published_rows, rows),
            spread(pack.publishers, pack.publisher_rows, rows),
            [pack.properties.get(row, ()) for row in range(rows)],
            strict=True,
        )
    )


def row_of(one: Message) -> tuple[object, ...]:
    return one.topic, one.payload, one.qos, one.retain, one.published_ns, one.publisher, one.user_properties


@given(messages)
def test_each_journal_has_what_its_filter_matches_in_order(published: list[Message]) -> None:
    intake, dealt = deal(published)

    found = [[row for pack in packed.packs for row in rows_of(pack)] for packed in dealt]
    for topic_filter, rows in zip(FILTERS, found, strict=True):
        assert rows == [row_of(one) for one in published if matches(topic_filter, one.topic)]
    packs = [pack for packed in dealt for pack in packed.packs]
    assert all(pack.lost == 0 for pack in packs)
    assert intake.rows_in == sum(pack.rows for pack in packs)
    assert intake.bytes_in == sum(pack.payload_bytes for pack in packs)


@given(messages)
def test_without_room_those_of_qos_0_are_lost_in_their_places(published: list[Message]) -> None:
    _, dealt = deal(published, is_lossy=True)

    for topic_filter, packed in zip(FILTERS, dealt, strict=True):
        found: list[object] = []
        for pack in packed.packs:
            found += rows_of(pack) + [None] * pack.lost
        wanted = [one for one in published if matches(topic_filter, one.topic)]
        assert found == [row_of(one) if one.qos else None for one in wanted]


def test_packs_have_so_many_rows_and_bytes() -> None:
    small, large = Packs(), Packs(bytes_max=100)
    for _ in range(PACK_ROWS + 1):
        small.add(Message("t", b"x", 0, False, 0))
    for size in (60, 60, 1_000, 1):
        large.add(Message("t", bytes(size), 0, False, 0))

    assert [pack.rows for pack in small.packs] == [PACK_ROWS, 1]
    assert [pack.payload_bytes for pack in large.packs] == [120, 1_000, 1]


def test_payloads_of_a_large_turn_are_put_together_at_once() -> None:
    packs = Packs()
    turn = [Message("t", b"x", 0, False, 0)] * journal_columns.JOIN_MIN

    Intake(["#"]).deal(turn, [packs], is_lossy=False)

    assert packs.packs[0].payloads == []
    assert packs.packs[0].blobs == [b"x" * len(turn)]


def test_topics_beyond_what_is_remembered_are_dealt_alike() -> None:
    published = [
        Message(f"a/{number}", b"", 0, False, 0)
        for number in range(journal_columns.TOPICS_REMEMBERED_MAX + 10)
    ]

    _, dealt = deal(published)

    rows = [sum(pack.rows for pack in packed.packs) for packed in dealt]
    assert rows == [len(published), len(published), 0, len(published)]
