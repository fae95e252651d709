"""Journals as the driver uses them: handing over, syncing, falling behind, failing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from timebound.config.storage import JournalConfig
from timebound.core.account.trace_log import TraceLog
from timebound.core.values.message import Delivery, Message
from timebound.errors import ConfigError
from timebound.node.journal import journals as journal_module
from timebound.node.journal.journals import Journals

WAIT_S = 10.0

Open = Callable[..., Journals]


@pytest.fixture
def open_journals(tmp_path: Path) -> Iterator[Open]:
    opened: list[Journals] = []

    def open_them(*configs: JournalConfig) -> Journals:
        journals = Journals.open(configs, tmp_path, fsync=False)
        opened.append(journals)
        return journals

    yield open_them
    for journals in opened:
        journals.close()


def message(topic: str, payload: bytes = b"", qos: int = 0) -> Message:
    return Message(topic, payload, qos, False, 1, "c", user_properties=(("k", "v"),))


def sync(journals: Journals) -> None:
    done = threading.Event()
    journals.sync(done.set)
    assert done.wait(WAIT_S)


def topics(journals: Journals, name: str) -> list[str | None]:
    """Topics in a journal from its first offset; None for each row that is lost."""
    journal = journals.find(name)
    assert journal is not None
    found: list[str | None] = []
    for _, count, batch in journal.log.read(0, journal.log.next_offset):
        found += [None] * count if batch is None else batch.column("topic").to_pylist()
    return found


def test_each_journal_keeps_what_its_filter_matches(open_journals: Open) -> None:
    journals = open_journals(JournalConfig(name="all"), JournalConfig(name="a", filter="a/+"))

    journals.write([message("a/1"), message("b/1")])
    journals.write([message("a/2")])
    sync(journals)

    assert topics(journals, "all") == ["a/1", "b/1", "a/2"]
    assert topics(journals, "a") == ["a/1", "a/2"]
    assert journals.topic_filters() == ["#", "a/+"]


def test_rows_are_on_disk_without_a_sync_before_long(open_journals: Open) -> None:
    journals = open_journals(JournalConfig(name="all"))
    log = journals.journals[0].log

    journals.write([message("a")])

    waited = threading.Event()
    for _ in range(1000):
        if log.next_offset:
            break
        waited.wait(0.01)
    assert topics(journals, "all") == ["a"]


def test_close_writes_what_is_waiting(tmp_path: Path) -> None:
    journals = Journals.open([JournalConfig(name="all")], tmp_path, fsync=False)
    journals.write([message(f"t/{number}") for number in range(5000)])
    journals.close()

    again = Journals.open([JournalConfig(name="all")], tmp_path, fsync=False)
    try:
        assert topics(again, "all") == [f"t/{number}" for number in range(5000)]
    finally:
        again.close()


def test_large_messages_are_written_in_several_frames(open_journals: Open) -> None:
    journals = open_journals(JournalConfig(name="all"))

    journals.write([message("large", bytes(3 << 20)) for _ in range(4)])
    sync(journals)

    assert topics(journals, "all") == ["large"] * 4


def test_trace_records_go_to_a_journal_of_their_own(open_journals: Open) -> None:
    journals = open_journals(JournalConfig(name="all"), JournalConfig(name="trace", trace=True))
    log = TraceLog()
    for sequence in (7, 8):
        delivery = Delivery(message("a"), 0, False)
        delivery.message.sequence = sequence
        log.add("c", delivery, None, "in_time", "", 10)

    journals.write_trace(log.take())
    sync(journals)

    assert journals.has_trace()
    assert topics(journals, "all") == []
    assert topics(journals, "trace") == ["a", "a"]
    trace = journals.find("trace")
    assert trace is not None
    [(_, _, batch)] = trace.log.read(0, 2)
    assert batch is not None
    assert batch.column("message_id").to_pylist() == [7, 8]


def test_publishers_wait_while_much_is_pending(open_journals: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "PENDING_MESSAGES_MAX", 3)
    journals = open_journals(JournalConfig(name="all"))
    held, writing = threading.Event(), threading.Event()
    log = journals.journals[0].log
    commit = log.commit

    def slow_commit(now_ns: int) -> None:
        writing.set()
        assert held.wait(WAIT_S)
        commit(now_ns)

    monkeypatch.setattr(log, "commit", slow_commit)
    journals.write([message("a")] * 4)
    assert writing.wait(WAIT_S)
    was_behind = journals.is_behind()
    held.set()
    sync(journals)

    assert was_behind
    assert not journals.is_behind()


def test_a_failing_disk_keeps_what_must_be_acknowledged_and_tells_what_is_lost(
    open_journals: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_module, "PENDING_MESSAGES_MAX", 2)
    journals = open_journals(JournalConfig(name="all"))
    log = journals.journals[0].log
    append = log.append
    broken, tried = threading.Event(), threading.Event()
    broken.set()

    def failing_append(batch: pa.RecordBatch, newest_ns: int) -> None:
        tried.set()
        if broken.is_set():
            raise OSError("no space left on device")
        append(batch, newest_ns)

    monkeypatch.setattr(log, "append", failing_append)
    journals.write([message("before")] * 3)
    assert tried.wait(WAIT_S)
    while not journals._is_failing:
        threading.Event().wait(0.001)
    was_behind = journals.is_behind()
    journals.write([message("lost"), message("kept", qos=1), message("lost")])
    broken.clear()
    sync(journals)

    assert not was_behind  # a disk that fails does not stop the broker
    assert topics(journals, "all") == ["before"] * 3 + [None, "kept", None]
    assert journals.rows_lost == 2
    assert "no space left on device" in caplog.text


def test_without_pyarrow_the_configuration_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(ConfigError, match="pip install '\\.\\[trace\\]'"):
        Journals.open([JournalConfig(name="all")], tmp_path, fsync=False)


def test_parts_stay_small_when_much_is_written_at_once(open_journals: Open) -> None:
    journals = open_journals(JournalConfig(name="all", bytes_max=1 << 20))

    journals.write([message("large", bytes(50_000)) for _ in range(40)])
    sync(journals)

    log = journals.journals[0].log
    assert len(log._segments()) > 5
    assert topics(journals, "all") == ["large"] * 40
