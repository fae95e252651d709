"""What is expected to be sent again after a crash, and what that means for journals and storage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.config.storage import JournalConfig
from timebound.core.values.message import Message
from timebound.core.values.store_orders import PutOffset
from timebound.node.journal.journals import Journals
from timebound.node.journal.repeats import Repeats
from timebound.node.storage.storage import Storage
from timebound.translate import to_subscription

WAIT_S = 10.0


def message(payload: bytes, publisher: str = "p", qos: int = 2, *, is_repeated: bool = False) -> Message:
    made = Message("t", payload, qos, False, 7, publisher, user_properties=(("a", "b"),))
    made.is_repeated = is_repeated
    return made


def write(journals: Journals, *messages: Message) -> int:
    """Write messages; gives how many rows the journal has then."""
    journals.write(list(messages))
    written = threading.Event()
    journals.sync(written.set)
    assert written.wait(WAIT_S)
    return journals.journals[0].log.next_offset


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[Journals]:
    """A journal of four messages of which the storage knows the first."""
    made = Journals.open([JournalConfig("j")], tmp_path, fsync=False)
    first = message(b"stored")
    rows = write(made, first, message(b"1"), message(b"1"), message(b"2", "other"), message(b"3", qos=1))
    assert rows == 5
    made.expect_repeats({made.journals[0].log.identity: 1}, {"p", "other"})
    yield made
    made.close()


def test_only_what_the_storage_did_not_have_is_expected_and_as_often(journals: Journals) -> None:
    again = [message(payload, is_repeated=True) for payload in (b"1", b"1", b"1")]

    assert write(journals, *again) == 6  # the third one is new
    assert write(journals, message(b"2", "other", is_repeated=True)) == 6
    assert write(journals, message(b"stored", is_repeated=True)) == 7


def test_a_message_that_is_no_repetition_ends_what_is_expected_of_its_publisher(journals: Journals) -> None:
    assert write(journals, message(b"1")) == 6
    assert write(journals, message(b"1", is_repeated=True)) == 7
    assert write(journals, message(b"2", "other", is_repeated=True)) == 7


def test_the_end_is_not_noted_while_something_is_expected(journals: Journals) -> None:
    identity = journals.journals[0].log.identity
    write(journals, message(b"1"))
    assert journals.offsets() == []

    write(journals, message(b"2", "other", is_repeated=True))

    assert journals.offsets() == [(identity, 6)]


def test_of_publishers_without_session_nothing_is_expected(tmp_path: Path) -> None:
    journals = Journals.open([JournalConfig("j")], tmp_path, fsync=False)
    write(journals, message(b"1"))
    identity = journals.journals[0].log.identity

    journals.expect_repeats({identity: 0}, {"other"})

    assert journals.offsets() == [(identity, 1)]
    journals.close()


def test_storage_keeps_offsets_by_journal(tmp_path: Path) -> None:
    with Storage.open(tmp_path, to_subscription, fsync=False) as storage:
        storage.submit([PutOffset("a", 3), PutOffset("b", 5), PutOffset("a", 4)], lambda: None)
    with Storage.open(tmp_path, to_subscription, fsync=False) as storage:
        assert storage.load(0).offsets == {"a": 4, "b": 5}


def fresh(journals: Journals, start: int, *publishers: str) -> Repeats:
    repeats = Repeats()
    repeats.expect(0, journals.journals[0].log, start, set(publishers))
    return repeats


def test_nothing_is_expected_at_first() -> None:
    repeats = Repeats()

    assert repeats.is_empty()
    assert not repeats.has(0, message(b"1", is_repeated=True))


def test_only_rows_of_qos_2_from_the_offset_on_are_expected(journals: Journals) -> None:
    repeats = fresh(journals, 1, "p", "other")

    assert not repeats.has(0, message(b"3", is_repeated=True))  # of QoS 1
    assert not repeats.has(0, message(b"stored", is_repeated=True))  # before the offset
    assert repeats.has(0, message(b"2", "other", is_repeated=True))


@pytest.mark.parametrize("changed", ["topic", "payload", "retain", "user_properties"])
def test_a_message_that_differs_in_anything_is_not_the_one_expected(journals: Journals, changed: str) -> None:
    repeats = fresh(journals, 1, "p")
    other = message(b"1", is_repeated=True)
    setattr(other, changed, {"topic": "u", "payload": b"x", "retain": True, "user_properties": ()}[changed])

    assert not repeats.has(0, other)
    assert not repeats.has(1, message(b"1", is_repeated=True))  # of another journal
    assert repeats.has(0, message(b"1", is_repeated=True))


@given(
    st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("12")), max_size=8),
    st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("12")), max_size=8),
)
@settings(max_examples=15, deadline=None)
def test_each_row_is_recognised_once(
    tmp_path_factory: pytest.TempPathFactory, kept: list[tuple[str, str]], sent: list[tuple[str, str]]
) -> None:
    journals = Journals.open([JournalConfig("j")], tmp_path_factory.mktemp("repeats"), fsync=False)
    write(journals, *[message(payload.encode(), publisher) for publisher, payload in kept])
    repeats = fresh(journals, 0, "p", "q")
    left = Counter(kept)

    for publisher, payload in sent:
        expected = left[(publisher, payload)] > 0
        left[(publisher, payload)] -= expected
        assert repeats.has(0, message(payload.encode(), publisher, is_repeated=True)) == expected

    assert repeats.is_empty() == (left.total() == 0)
    journals.close()
