"""What is expected to be sent again after a crash, and what that means for journals and storage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from timebound.config.values import JournalConfig
from timebound.core.values.message import Message
from timebound.core.values.store_orders import PutOffset
from timebound.node.journal.journals import Journals
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
