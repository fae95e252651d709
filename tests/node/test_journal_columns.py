"""What journals take over of messages: by filter, in order, with what is lost in its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.message import Message
from timebound.core.topic import matches
from timebound.node import journal_columns
from timebound.node.journal_columns import QOS_MASK, RETAIN_BIT, Columns, Intake

FILTERS = ["#", "a/+", "b", "a/#"]
messages = st.lists(
    st.builds(
        Message,
        st.sampled_from(["a", "a/b", "a/b/c", "b"]),
        st.binary(max_size=4),
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 10),
        st.sampled_from(["p", "q"]),
        user_properties=st.sampled_from([(), (("k", "v"),)]),
    ),
    max_size=20,
)


def deal(published: list[Message], *, is_lossy: bool = False) -> tuple[Intake, list[Columns]]:
    intake = Intake(FILTERS)
    columns = [Columns() for _ in FILTERS]
    intake.deal(published, columns, is_lossy=is_lossy)
    return intake, columns


@given(messages)
def test_each_journal_has_the_columns_of_what_its_filter_matches(published: list[Message]) -> None:
    intake, dealt = deal(published)

    for topic_filter, columns in zip(FILTERS, dealt, strict=True):
        wanted = [one for one in published if matches(topic_filter, one.topic)]
        assert columns.topics == [one.topic for one in wanted]
        assert columns.payloads == [one.payload for one in wanted]
        assert columns.publishers == [one.publisher for one in wanted]
        assert [kind & QOS_MASK for kind in columns.kinds] == [one.qos for one in wanted]
        assert [bool(kind & RETAIN_BIT) for kind in columns.kinds] == [one.retain for one in wanted]
        assert columns.published_ns == [one.published_ns for one in wanted]
        told = [columns.properties.get(row, ()) for row in range(len(wanted))]
        assert told == [one.user_properties for one in wanted]
        assert columns.gaps == []
    assert intake.rows_in == sum(columns.row_count() for columns in dealt)
    assert intake.bytes_in == sum(len(payload) for columns in dealt for payload in columns.payloads)


@given(messages)
def test_without_room_those_of_qos_0_are_lost_in_their_places(published: list[Message]) -> None:
    intake, dealt = deal(published, is_lossy=True)

    for topic_filter, columns in zip(FILTERS, dealt, strict=True):
        wanted = [one for one in published if matches(topic_filter, one.topic)]
        kept: list[Message | None] = []
        lost = dict(columns.gaps)
        assert len(lost) == len(columns.gaps)
        payloads = iter([one for one in wanted if one.qos])
        for row in range(columns.row_count() + 1):
            kept += [None] * lost.get(row, 0)
            kept += [next(payloads)] if row < columns.row_count() else []
        assert kept == [one if one.qos else None for one in wanted]
    assert intake.rows_in == sum(columns.row_count() for columns in dealt)


def test_parts_end_at_rows_and_at_bytes() -> None:
    columns = Columns()
    for size in (1, 2, 3, 100, 1):
        columns.add(Message("t", bytes(size), 0, False, 0))

    assert columns.end_of(0, 2, 1_000) == 2
    assert columns.end_of(0, 10, 4) == 3
    assert columns.end_of(3, 10, 1) == 4  # one row at least
    assert columns.end_of(4, 10, 1_000) == 5


def test_payloads_on_disk_are_let_go() -> None:
    columns = Columns()
    for size in (1, 2, 3):
        columns.add(Message("t", bytes(size), 0, False, 0))

    assert columns.forget(0, 2) == 3
    assert columns.payloads == [b"", b"", bytes(3)]


def test_topics_beyond_what_is_remembered_are_dealt_alike() -> None:
    published = [
        Message(f"a/{number}", b"", 0, False, 0)
        for number in range(journal_columns.TOPICS_REMEMBERED_MAX + 10)
    ]

    _, dealt = deal(published)

    assert [columns.row_count() for columns in dealt] == [len(published), len(published), 0, len(published)]
