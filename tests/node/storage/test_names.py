"""Names of stored messages: the same after a restart, without a row per message for those published here."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest
from tests.node.storage.test_load import load, plain_subscription

from timebound.core.values.message import Message, MessageName
from timebound.core.values.store_orders import PutRetained
from timebound.node.storage.names import STARTS_MAX, Starts, name_text, note_start
from timebound.node.storage.storage import Storage

Name = tuple[str, int, int]


def names(path: Path, now_ns: int) -> dict[str, Name | None]:
    """The names of retained messages, by topic, as a start at this time finds them."""
    return {message.topic: told(message.name) for message in load(path, now_ns).retained}


def told(name: MessageName | None) -> Name | None:
    return None if name is None else (name.origin, name.started_ns, name.number)


def run(path: Path, started_ns: int, *messages: Message) -> None:
    """Start a broker's storage, and retain messages."""
    with Storage.open(path, plain_subscription, fsync=False) as storage:
        storage.load(started_ns)
        storage.submit([PutRetained(message) for message in messages], lambda: None)


def message(sequence: int, name: MessageName | None = None) -> Message:
    made = Message(f"t/{sequence}", b"", 0, True, 1, sequence=sequence)
    made.name = name
    return made


def test_messages_of_earlier_starts_keep_the_name_of_theirs(tmp_path: Path) -> None:
    run(tmp_path, 100, message(1), message(2))
    run(tmp_path, 200)  # stores nothing
    run(tmp_path, 300, message(3), message(7))

    assert names(tmp_path, 400) == {
        "t/1": ("", 100, 1),
        "t/2": ("", 100, 2),
        "t/3": ("", 300, 3),
        "t/7": ("", 300, 7),
    }


def test_a_name_from_elsewhere_is_stored_with_its_message(tmp_path: Path) -> None:
    run(tmp_path, 100, message(1, MessageName("hill", 9, 42)))

    assert names(tmp_path, 200) == {"t/1": ("hill", 9, 42)}


def test_messages_of_a_database_without_starts_have_a_start_that_is_not_known(tmp_path: Path) -> None:
    with Storage.open(tmp_path, plain_subscription, fsync=False) as storage:
        storage.submit([PutRetained(message(1))], lambda: None)

    assert names(tmp_path, 200) == {"t/1": ("", 0, 1)}


def test_only_the_latest_starts_are_remembered() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")

    for number in range(STARTS_MAX + 3):
        note_start(connection, number, number + 1_000)

    assert connection.execute("SELECT count(*) FROM counter").fetchone() == (STARTS_MAX,)
    starts = Starts.read(connection)
    assert told(starts.name_of(3, "")) == ("", 0, 3)
    assert told(starts.name_of(4, "")) == ("", 1_003, 4)
    assert told(starts.name_of(10_000, "")) == ("", STARTS_MAX + 1_002, 10_000)
    connection.close()


def test_a_disk_that_refuses_the_start_does_not_prevent_it(caplog: pytest.LogCaptureFixture) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
    connection.execute("PRAGMA query_only = 1")

    with caplog.at_level(logging.WARNING):
        note_start(connection, 1, 2)

    assert "names of messages lose the time of this start" in caplog.text
    connection.close()


def test_only_a_name_of_its_own_is_stored() -> None:
    assert name_text(message(1)) == ""
    assert name_text(message(1, MessageName("hill", 9, 42))) == "hill:9.42"
