"""Reading back: sharing, order, what is left out, and clocks that were set back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from timebound.core.values.message import RELEASED, SENT, Delivery, Message
from timebound.core.values.store_orders import (
    PutDelivery,
    PutInbound,
    PutMessage,
    PutRetained,
    PutSession,
    PutSubscription,
    PutWill,
    Snapshot,
    StoreOrder,
    Will,
)
from timebound.core.values.subscription import Subscription
from timebound.errors import FilterError, ProtocolError, StorageError
from timebound.node.storage.load import read_snapshot, sweep
from timebound.node.storage.plan import Marks
from timebound.node.storage.schema import open_database
from timebound.node.storage.storage import Storage

NOW_NS = 1_700_000_000_000_000_000
HOUR_NS = 3_600_000_000_000


def plain_subscription(*, client_id: str, topic_filter: str, **options: object) -> Subscription:
    if topic_filter == "bad/filter":
        raise FilterError("content filter ends too early", position=7)
    if topic_filter == "bad/terms":
        raise ProtocolError(0x83, "deadline '3 parsecs' is not a duration")
    return Subscription(client_id=client_id, topic_filter=topic_filter)


def store(path: Path, orders: list[StoreOrder]) -> None:
    with Storage.open(path, plain_subscription, fsync=False) as storage:
        storage.submit(orders, lambda: None)


def load(path: Path, now_ns: int = NOW_NS) -> Snapshot:
    with Storage.open(path, plain_subscription, fsync=False) as storage:
        return storage.load(now_ns)


def execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path / "timebound.db", isolation_level=None)
    connection.execute(sql)
    connection.close()


def message(sequence: int, published_ns: int = NOW_NS, expires_ns: int = 0) -> Message:
    return Message("t", b"x", 2, False, published_ns, expires_ns=expires_ns, sequence=sequence)


def test_message_of_two_deliveries_is_loaded_once(tmp_path: Path) -> None:
    shared = message(5)
    store(
        tmp_path,
        [
            PutSession("a", 60, 0, ""),
            PutSession("b", 60, 0, ""),
            PutMessage(shared),
            PutDelivery("a", Delivery(shared, 1, False, (3, 9), sequence=1)),
            PutDelivery("b", Delivery(shared, 2, True, (), sequence=4, packet_id=77, state=SENT)),
        ],
    )

    first, second = (session.deliveries[0] for session in load(tmp_path).sessions)

    assert first.message is second.message
    assert first.message.stored_copies == 2
    assert first.stored
    assert second.stored
    assert (first.subscription_ids, second.packet_id, second.state) == ((3, 9), 77, SENT)


def test_deliveries_and_packet_ids_come_in_order(tmp_path: Path) -> None:
    orders: list[StoreOrder] = [PutSession("a", 60, 0, "")]
    for sequence in (12, 3, 100, 7):
        one = message(sequence)
        orders += [PutMessage(one), PutDelivery("a", Delivery(one, 2, False, (), sequence, state=RELEASED))]
        orders.append(PutInbound("a", sequence))
    store(tmp_path, orders)

    (session,) = load(tmp_path).sessions

    assert [delivery.sequence for delivery in session.deliveries] == [3, 7, 12, 100]
    assert session.inbound == [3, 7, 12, 100]


def test_subscription_with_terms_nobody_understands_is_left_out_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("good/1", "bad/filter", "bad/terms", "good/2")
    store(
        tmp_path,
        [
            PutSession("a", 60, 0, ""),
            *(PutSubscription(Subscription(client_id="a", topic_filter=n)) for n in names),
        ],
    )

    (session,) = load(tmp_path).sessions

    assert [subscription.topic_filter for subscription in session.subscriptions] == ["good/1", "good/2"]
    assert "subscription of 'a' to 'bad/filter' is skipped: content filter ends too early" in caplog.text
    assert "subscription of 'a' to 'bad/terms' is skipped: deadline '3 parsecs'" in caplog.text
    connection = sqlite3.connect(tmp_path / "timebound.db")
    assert connection.execute("SELECT count(*) FROM subscription").fetchone() == (4,)
    connection.close()


def test_rows_without_owner_are_removed_at_opening(tmp_path: Path) -> None:
    orphan, lost = message(8), message(9)
    store(
        tmp_path,
        [
            PutSession("a", 60, 0, ""),
            PutMessage(orphan),
            PutDelivery("a", Delivery(lost, 1, False, sequence=1)),
            PutInbound("nobody", 4),
            PutSubscription(Subscription(client_id="nobody", topic_filter="#")),
        ],
    )

    snapshot = load(tmp_path)

    assert snapshot.sessions[0].deliveries == []
    assert snapshot.sequence_max == 8
    connection = sqlite3.connect(tmp_path / "timebound.db")
    for table in ("message", "delivery", "inbound", "subscription"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()


def test_sequence_max_counts_retained_messages_and_wills(tmp_path: Path) -> None:
    store(tmp_path, [PutRetained(message(40)), PutWill(Will("a", message(41), 5))])
    execute(tmp_path, "DELETE FROM counter WHERE name = 'sequence_max'")

    assert load(tmp_path).sequence_max == 41


def test_times_of_a_clock_since_set_back_are_pulled_to_now(tmp_path: Path) -> None:
    ahead_ns = NOW_NS + HOUR_NS
    store(
        tmp_path,
        [
            PutSession("a", 60, ahead_ns, ""),
            PutRetained(message(1, published_ns=ahead_ns, expires_ns=ahead_ns + 5)),
            PutWill(Will("a", message(2, published_ns=ahead_ns, expires_ns=7), 30, ahead_ns)),
        ],
    )

    snapshot = load(tmp_path)

    assert snapshot.sessions[0].ended_ns == NOW_NS
    # The lifetime of a will begins with its publication, so a clock cannot make it longer.
    assert (snapshot.wills[0].message.published_ns, snapshot.wills[0].message.expires_ns) == (NOW_NS, 7)
    assert (snapshot.retained[0].published_ns, snapshot.retained[0].expires_ns) == (NOW_NS, NOW_NS + 5)
    assert snapshot.wills[0].due_ns == NOW_NS + 30_000_000_000


def test_times_before_now_and_never_stay_as_they_are(tmp_path: Path) -> None:
    store(
        tmp_path,
        [
            PutSession("a", 60, 0, ""),
            PutSession("b", 60, NOW_NS - 1, ""),
            PutRetained(message(1, published_ns=NOW_NS - 9, expires_ns=NOW_NS + HOUR_NS)),
            PutWill(Will("a", message(2), 30)),
        ],
    )

    snapshot = load(tmp_path)

    assert [session.ended_ns for session in snapshot.sessions] == [0, NOW_NS - 1]
    assert snapshot.retained[0].published_ns == NOW_NS - 9
    assert snapshot.retained[0].expires_ns == NOW_NS + HOUR_NS
    assert snapshot.wills[0].due_ns == 0


@pytest.mark.parametrize("text", ["not json", "[1]", '[["a","b","c"]]'])
def test_row_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    store(tmp_path, [PutRetained(message(1))])
    execute(tmp_path, f"UPDATE retained SET user_properties = '{text}'")

    with pytest.raises(StorageError, match=r"timebound\.db' cannot be used"):
        load(tmp_path)


def test_equal_files_give_equal_snapshots_in_the_order_of_their_keys(tmp_path: Path) -> None:
    store(tmp_path, [PutSession(name, 60, 0, "") for name in ("c", "a", "b")])
    store(tmp_path, [PutInbound("b", number) for number in (9, 7, 8)])

    connection = open_database(tmp_path, fsync=False)
    snapshot = read_snapshot(connection, Marks.read(connection), plain_subscription, NOW_NS)
    connection.close()

    assert [session.client_id for session in snapshot.sessions] == ["a", "b", "c"]
    assert snapshot.sessions[1].inbound == [7, 8, 9]


def test_reading_changes_nothing_in_the_file(tmp_path: Path) -> None:
    store(tmp_path, [PutSession("a", 60, NOW_NS + HOUR_NS, ""), PutWill(Will("a", message(1), 5))])
    connection = open_database(tmp_path, fsync=False)
    before = list(connection.iterdump())

    read_snapshot(connection, Marks.read(connection), plain_subscription, NOW_NS)

    assert list(connection.iterdump()) == before
    connection.close()


def test_a_sweep_logs_what_it_removed_and_a_second_one_finds_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store(tmp_path, [PutInbound("nobody", 4), PutInbound("nobody", 5), PutMessage(message(8))])
    connection = open_database(tmp_path, fsync=False)

    sweep(connection)
    first = list(caplog.messages)
    sweep(connection)

    assert first == ["removed 2 packet ids without session", "removed 1 messages without delivery"]
    assert caplog.messages == first
    connection.close()


def test_a_sweep_that_fails_changes_nothing(tmp_path: Path) -> None:
    store(tmp_path, [PutInbound("nobody", 4)])
    connection = open_database(tmp_path, fsync=False)
    connection.execute("CREATE TRIGGER refuse BEFORE DELETE ON message BEGIN SELECT RAISE(ABORT, 'no'); END")
    connection.execute("INSERT INTO message SELECT 1, 't', x'', 0, 0, 0, '', x'', '', 0, 0, 0, ''")

    with pytest.raises(sqlite3.IntegrityError):
        sweep(connection)

    assert connection.execute("SELECT count(*) FROM inbound").fetchone() == (1,)
    assert not connection.in_transaction
    connection.close()
