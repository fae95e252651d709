"""One suite for both storages, then what only the one on disk promises: order, groups, retries."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import (
    DropDelivery,
    DropMessage,
    PutDelivery,
    PutMessage,
    PutRetained,
    PutSession,
    StoreOrder,
)
from timebound.core.values.subscription import Subscription
from timebound.errors import StorageError
from timebound.node.storage.storage import NoStorage, Storage

WAIT_S = 10.0
NOW_NS = 1_700_000_000_000_000_000


def plain_subscription(*, client_id: str, topic_filter: str, **options: object) -> Subscription:
    return Subscription(client_id=client_id, topic_filter=topic_filter)


def open_storage(path: Path, on_error: Callable[[StorageError], None] | None = None) -> Storage:
    return Storage.open(path, plain_subscription, on_error=on_error, fsync=False)


def write(storage: Storage | NoStorage, orders: list[StoreOrder]) -> None:
    written = threading.Event()
    storage.submit(orders, written.set)
    assert written.wait(WAIT_S)


def retained(topic: str, payload: bytes = b"1", sequence: int = 1) -> PutRetained:
    return PutRetained(Message(topic, payload, 1, True, NOW_NS, sequence=sequence))


def queued(client_id: str, sequence: int) -> list[StoreOrder]:
    message = Message("t", b"x" * 64, 1, False, NOW_NS, sequence=sequence)
    return [PutMessage(message), PutDelivery(client_id, Delivery(message, 1, False, sequence=sequence))]


def topics(storage: Storage) -> list[str]:
    return [message.topic for message in storage.load(NOW_NS).retained]


def hold(storage: Storage) -> threading.Event:
    """Keep the worker busy until the event is set, so that what is submitted meanwhile is one group."""
    gate = threading.Event()
    storage.submit([], lambda: gate.wait(WAIT_S) and None)
    return gate


def trace(storage: Storage) -> list[str]:
    statements: list[str] = []
    storage._connection.set_trace_callback(statements.append)
    return statements


def limit_pages(storage: Storage, extra: int) -> None:
    """Let the database grow by so many pages and then be full, as a disk would be."""
    with storage._connection_lock:
        (pages,) = storage._connection.execute("PRAGMA page_count").fetchone()
        storage._connection.execute(f"PRAGMA max_page_count = {pages + extra}")


@pytest.fixture(params=["disk", "none"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage | NoStorage]:
    with open_storage(tmp_path / "data") if request.param == "disk" else NoStorage() as opened:
        yield opened


def test_new_storage_is_empty(storage: Storage | NoStorage) -> None:
    snapshot = storage.load(NOW_NS)

    assert (snapshot.sessions, snapshot.retained, snapshot.wills) == ([], [], [])
    assert snapshot.sequence_max == 0


def test_every_done_is_called_once_and_in_order(storage: Storage | NoStorage) -> None:
    called: list[int] = []

    for number in range(50):
        storage.submit([retained(f"t/{number % 3}")], lambda number=number: called.append(number))
    write(storage, [])

    assert called == list(range(50))
    assert storage.pending_orders == 0
    assert not storage.failed


def test_close_twice_is_allowed_and_submit_after_it_is_refused(storage: Storage | NoStorage) -> None:
    storage.close()
    storage.close()

    with pytest.raises(StorageError, match="is closed"):
        storage.submit([], lambda: None)


def test_close_calls_every_done_before_it_returns(storage: Storage | NoStorage) -> None:
    called: list[int] = []
    for number in range(20):
        storage.submit([retained(f"t/{number}")], lambda number=number: called.append(number))

    storage.close()

    assert called == list(range(20))


def test_done_is_called_on_another_thread_and_submit_does_not_wait(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []
    with open_storage(tmp_path) as storage:
        gate = hold(storage)

        storage.submit([retained("t")], lambda: threads.append(threading.current_thread()))

        assert threads == []
        gate.set()
        write(storage, [])
    assert threads[0] is not threading.current_thread()


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    with open_storage(tmp_path) as storage:
        write(storage, [retained("a"), retained("b")])

    with open_storage(tmp_path) as storage:
        assert topics(storage) == ["a", "b"]


def test_close_leaves_one_file_without_a_log(tmp_path: Path) -> None:
    with open_storage(tmp_path) as storage:
        write(storage, [retained("a")])
        assert (tmp_path / "timebound.db-wal").stat().st_size > 0

    assert not (tmp_path / "timebound.db-wal").exists()


def test_batches_that_wait_are_committed_together(tmp_path: Path) -> None:
    with open_storage(tmp_path) as storage:
        gate = hold(storage)
        statements = trace(storage)
        for number in range(100):
            storage.submit([retained(f"t/{number}")], lambda: None)

        gate.set()
        write(storage, [])

        assert statements.count("COMMIT") == 1
        assert len(topics(storage)) == 100


def test_message_put_and_dropped_in_one_group_costs_no_statement(tmp_path: Path) -> None:
    with open_storage(tmp_path) as storage:
        write(storage, [PutSession("c", 60, 0, "")])
        gate = hold(storage)
        statements = trace(storage)

        storage.submit(queued("c", 1), lambda: None)
        storage.submit([DropDelivery("c", 1), DropMessage(1)], lambda: None)
        gate.set()
        write(storage, [])

        assert statements == []


def test_drop_of_a_delivery_updated_in_the_same_group_reaches_the_disk(tmp_path: Path) -> None:
    with open_storage(tmp_path) as storage:
        write(storage, [PutSession("c", 60, 0, ""), *queued("c", 1)])
        gate = hold(storage)

        storage.submit(queued("c", 1)[1:], lambda: None)
        storage.submit([DropDelivery("c", 1)], lambda: None)
        gate.set()
        write(storage, [])

        assert storage.load(NOW_NS).sessions[0].deliveries == []


@pytest.mark.parametrize("in_one_group", [True, False])
def test_sequence_is_remembered_after_its_message_is_gone(tmp_path: Path, in_one_group: bool) -> None:
    drops: list[StoreOrder] = [DropDelivery("c", 7), DropMessage(7)]
    with open_storage(tmp_path) as storage:
        write(storage, [PutSession("c", 60, 0, "")])
        if in_one_group:
            write(storage, queued("c", 7) + drops)
        else:
            write(storage, queued("c", 7))
            write(storage, drops)

    with open_storage(tmp_path) as storage:
        assert storage.load(NOW_NS).sequence_max == 7


def test_group_is_bounded_but_a_large_batch_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timebound.node.storage.storage.GROUP_ORDERS_MAX", 10)
    with open_storage(tmp_path) as storage:
        gate = hold(storage)
        statements = trace(storage)
        for batch in range(3):
            storage.submit([retained(f"{batch}/{number}") for number in range(8)], lambda: None)
        storage.submit([retained(f"large/{number}") for number in range(40)], lambda: None)

        gate.set()
        write(storage, [])

        assert statements.count("COMMIT") == 4
        assert len(topics(storage)) == 64


def test_done_that_raises_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("loop is closed")

    with open_storage(tmp_path) as storage:
        storage.submit([retained("a")], fail)
        write(storage, [retained("b")])

        assert topics(storage) == ["a", "b"]
    assert "loop is closed" in caplog.text


@pytest.mark.parametrize("size", [10, 5000, 3_000_000])
def test_payload_of_any_size_comes_back(tmp_path: Path, size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    with open_storage(tmp_path) as storage:
        write(storage, [retained("a", payload), retained("b", b""), retained("c", payload)])

        assert [message.payload for message in storage.load(NOW_NS).retained] == [payload, b"", payload]


def test_full_disk_holds_back_done_and_recovers_in_order(tmp_path: Path) -> None:
    errors: list[StorageError] = []
    has_failed = threading.Event()

    def on_error(exc: StorageError) -> None:
        errors.append(exc)
        has_failed.set()

    called: list[int] = []
    with open_storage(tmp_path, on_error) as storage:
        write(storage, [retained("small")])
        limit_pages(storage, 4)
        for number in range(5):
            orders: list[StoreOrder] = [retained(f"t/{number}", bytes(20_000))]
            storage.submit(orders, lambda number=number: called.append(number))

        assert has_failed.wait(WAIT_S)
        assert storage.failed
        assert called == list(range(len(called)))
        held = len(called)
        assert held < 5
        assert storage.pending_orders == 5 - held
        assert "database or disk is full" in str(errors[0])

        limit_pages(storage, 1000)
        write(storage, [])

        assert called == list(range(5))
        assert not storage.failed
        assert topics(storage) == ["small", "t/0", "t/1", "t/2", "t/3", "t/4"]


def test_group_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    has_failed = threading.Event()
    storage = open_storage(tmp_path, lambda exc: has_failed.set())
    limit_pages(storage, 4)
    called: list[str] = []
    storage.submit([retained("small"), retained("large", bytes(50_000))], lambda: called.append("stored"))

    assert has_failed.wait(WAIT_S)
    with pytest.raises(StorageError, match="1 batches not written"):
        storage.close()

    assert called == []
    with open_storage(tmp_path) as storage:
        assert topics(storage) == []


def test_write_lock_of_another_program_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timebound.node.storage.schema.BUSY_S_MAX", 0.01)
    has_failed = threading.Event()
    with open_storage(tmp_path, lambda exc: has_failed.set()) as storage:
        other = sqlite3.connect(tmp_path / "timebound.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        written = threading.Event()
        storage.submit([retained("a")], written.set)
        assert has_failed.wait(WAIT_S)
        assert not written.is_set()

        other.execute("ROLLBACK")
        other.close()

        assert written.wait(WAIT_S)
        assert topics(storage) == ["a"]
