"""Trace files: rows equal counters, rotation, names, bounds, and what a crash leaves."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.node.trace_doubles import FullDisk
from tests.peer import join

from timebound.core.account import Account
from timebound.core.message import Delivery, Message
from timebound.core.subscription import Subscription
from timebound.core.trace_run import TraceRun
from timebound.node.trace import TraceLimits, TraceWriter, to_table, trace_schema
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION, Reason
from timebound.units import MILLISECOND
from timebound.wire.packets import Ack

MANY = TraceLimits(file_bytes_max=1 << 30, file_age_max_s=3_600.0, disk_bytes_max=1 << 40)
TIMEOUT_S = 10.0


def runs_of(count: int, *, start: int = 1) -> list[TraceRun]:
    """Runs as the account makes them: some in time, every third dropped."""
    account = Account()
    account.is_tracing = True
    wanted = Subscription("s", "t/#", 1, deadline_ns=50 * MILLISECOND, price=2.5, penalty=0.5)
    for number in range(start, start + count):
        message = Message(f"t/{number % 2}", b"x" * 10, 1, False, number * 1_000, "p", sequence=number)
        delivery = Delivery(message, 1, False, subscription=wanted, offered_ns=number * 1_000)
        if number % 3:
            delivery.sent_ns = number * 1_000 + 7
            account.delivered("s", delivery, number * 1_000 + 9)
        else:
            account.drop("s", delivery, Reason.HOPELESS, number * 1_000 + 9)
    return account.take_runs()


def parts(path: Path) -> list[Path]:
    return sorted(path.glob("date=*/node=*/part-*.parquet"))


def read(path: Path) -> list[dict[str, Any]]:
    return [row for part in parts(path) for row in pq.ParquetFile(part).read().to_pylist()]


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        # Looked at again: this process may have been stopped in between.
        assert time.monotonic() < end_s or condition(), f"this did not happen in {TIMEOUT_S} s"
        time.sleep(0.01)


def test_the_schema_is_that_of_the_records() -> None:
    schema = trace_schema()

    assert [(field.name, str(field.type)) for field in schema] == list(TRACE_FIELDS)
    assert schema.metadata == {b"timebound.trace.version": str(TRACE_SCHEMA_VERSION).encode()}


def test_a_run_becomes_one_row_for_each_message() -> None:
    account = Account()
    account.is_tracing = True
    wanted = Subscription("s", "t", price=0.1)
    for number in (5, 6, 7):
        message = Message("t", b"abc", 0, False, 1_000, "p", sequence=number)
        message.promised_ns = 7_000
        delivery = Delivery(message, 0, False, subscription=wanted, offered_ns=1_100)
        delivery.sent_ns = 1_400
        account.delivered("s", delivery, 1_500)
    [run] = account.take_runs()

    rows = to_table([run]).to_pylist()

    assert [row["message_id"] for row in rows] == [5, 6, 7]
    assert rows[0] == {
        "time_ns": 1_500,
        "message_id": 5,
        "topic": "t",
        "publisher": "p",
        "subscriber": "s",
        "topic_filter": "t",
        "qos": 0,
        "size_bytes": 12,
        "published_ns": 1_000,
        "queued_ns": 300,
        "allowed_ns": 0,
        "outcome": "in_time",
        "reason": "",
        "price_micro": 100_000,
        "penalty_micro": 0,
        "hop": 0,
        "link": "s",
        "sent_ns": 1_400,
        "promised_ns": 7_000,
    }


def test_rows_are_written_in_order_and_none_is_lost(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "node1", MANY)
    for start in range(1, 1_001, 100):
        writer.write(runs_of(100, start=start))
    writer.close()

    rows = read(tmp_path)

    assert [row["message_id"] for row in rows] == list(range(1, 1_001))
    assert Counter(row["outcome"] for row in rows) == {"in_time": 667, "dropped": 333}
    assert (writer.rows_written, writer.rows_lost) == (1_000, 0)
    [part] = parts(tmp_path)
    file = pq.ParquetFile(part)
    assert [(field.name, str(field.type)) for field in file.schema_arrow] == list(TRACE_FIELDS)
    assert file.metadata.metadata[b"timebound.trace.version"] == str(TRACE_SCHEMA_VERSION).encode()
    assert part.parent.name == "node=node1"
    assert part.parent.parent.name == time.strftime("date=%Y-%m-%d", time.gmtime())


def test_a_file_is_closed_at_its_size(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", TraceLimits(1_024, 3_600.0, 1 << 40))
    for start in range(1, 5):
        rows = len(parts(tmp_path))
        writer.write(runs_of(1_000, start=start * 1_000))
        wait_until(lambda rows=rows: len(parts(tmp_path)) > rows)  # type: ignore[misc]  # bound here

    assert len(parts(tmp_path)) == 4
    writer.close()
    assert len(read(tmp_path)) == 4_000


def test_a_file_is_closed_at_its_age(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", TraceLimits(1 << 30, 0.2, 1 << 40))
    writer.write(runs_of(3))

    wait_until(lambda: len(parts(tmp_path)) == 1)

    assert len(read(tmp_path)) == 3
    writer.close()
    assert len(parts(tmp_path)) == 1


def test_a_file_is_hidden_until_it_is_complete(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)
    writer.write(runs_of(3))
    wait_until(lambda: writer.rows_written == 3)

    assert parts(tmp_path) == []
    [hidden] = tmp_path.glob("date=*/node=n/.*")
    assert hidden.name.endswith(".tmp")

    writer.close()
    assert len(parts(tmp_path)) == 1
    assert not hidden.exists()


def test_the_oldest_files_go_when_all_are_too_large(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", TraceLimits(1_024, 3_600.0, 1 << 40))
    writer.write(runs_of(1_000))
    wait_until(lambda: len(parts(tmp_path)) == 1)
    size = parts(tmp_path)[0].stat().st_size
    writer.close()
    writer = TraceWriter(tmp_path, "n", TraceLimits(1_024, 3_600.0, 3 * size))
    for start in range(2, 8):
        last = parts(tmp_path)[-1]
        writer.write(runs_of(1_000, start=start * 1_000))
        wait_until(lambda last=last: parts(tmp_path)[-1] > last)  # type: ignore[misc]  # bound here
    writer.close()

    assert sum(part.stat().st_size for part in parts(tmp_path)) <= 3 * size
    rows = read(tmp_path)
    assert rows[-1]["message_id"] == 7_999
    assert rows[0]["message_id"] > 3_000


def test_what_an_earlier_run_left_unfinished_is_swept(tmp_path: Path) -> None:
    folder = tmp_path / "date=2026-01-01" / "node=n"
    folder.mkdir(parents=True)
    (folder / ".part-1-000001.parquet.tmp").write_bytes(b"half a file")
    other = tmp_path / "date=2026-01-01" / "node=m" / ".part-1-000001.parquet.tmp"
    other.parent.mkdir()
    other.write_bytes(b"another broker is writing this")

    TraceWriter(tmp_path, "n", MANY).close()

    assert list(folder.iterdir()) == []
    assert other.exists()


def test_a_disk_that_refuses_costs_records_and_not_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TraceWriter(tmp_path / "trace", "n", MANY)
    (tmp_path / "trace").rmdir()
    (tmp_path / "trace").write_text("a file where the folder was")
    writer.write(runs_of(5))
    wait_until(lambda: writer.rows_lost == 5)
    (tmp_path / "trace").unlink()
    writer.write(runs_of(7))
    writer.close()

    assert len(read(tmp_path / "trace")) == 7
    assert (writer.rows_written, writer.rows_lost) == (7, 5)


@pytest.mark.parametrize(("refusals", "saved"), [(1, 3), (2, 0)])
def test_a_disk_that_is_full_costs_no_records_but_those_it_has_no_room_for(
    tmp_path: Path, refusals: int, saved: int
) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)
    writer.write(runs_of(3))
    wait_until(lambda: writer.rows_written == 3)
    assert writer._file is not None
    FullDisk.under(writer._file._file, refusals=refusals)

    writer.write(runs_of(5))
    wait_until(lambda: writer.rows_lost > 0)
    writer.write(runs_of(7))
    writer.close()

    assert len(read(tmp_path)) == saved + 7
    assert (writer.rows_written, writer.rows_lost) == (saved + 7, 8 - saved)
    assert not list(tmp_path.rglob(".*"))


def test_a_disk_that_has_no_room_for_the_end_of_a_file_costs_its_records(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)
    writer.write(runs_of(3))
    wait_until(lambda: writer.rows_written == 3)
    assert writer._file is not None
    FullDisk.under(writer._file._file, refusals=1)

    writer.close()

    assert (writer.rows_written, writer.rows_lost) == (0, 3)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_more_than_may_wait_is_counted_as_lost(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timebound.node.trace.PENDING_BYTES_MAX", 0)
        writer.write(runs_of(11))
    writer.write(runs_of(10))
    writer.close()

    assert (writer.rows_written, writer.rows_lost) == (10, 11)
    assert len(read(tmp_path)) == 10


def test_what_was_written_waits_no_more(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)
    for _ in range(2):
        writer.write(runs_of(10))
        wait_until(lambda: writer._pending_bytes == 0)
    writer.close()

    assert (writer.rows_written, writer.rows_lost) == (20, 0)


def test_runs_that_wait_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timebound.node.trace.GROUP_RUNS", 5)
    writer = TraceWriter(tmp_path, "n", MANY)
    for start in (1, 5, 9, 13):
        writer.write(runs_of(4, start=start))
    writer.close()

    [part] = parts(tmp_path)

    assert pq.ParquetFile(part).num_row_groups >= 2
    assert [row["message_id"] for row in read(tmp_path)] == list(range(1, 17))


CONFIG = """
sys_interval = "0s"
[trace]
enabled = true
path = "trace"
"""


def test_a_broker_without_a_trace_loads_nothing_for_one(broker: BrokerProcess) -> None:
    with join(broker.port) as peer:
        peer.subscribe("off/#")
        peer.publish("off/1", b"x")
        peer.expect_publish("off/1", b"x")

    loaded = Path(f"/proc/{broker.process.pid}/maps").read_text()

    assert "numpy" not in loaded
    assert "pyarrow" not in loaded


def test_a_broker_traces_what_it_counts(start_broker: StartBroker) -> None:
    process = start_broker(CONFIG)
    terms = [("deadline", "10s"), ("price", "2"), ("penalty", "1")]
    with join(process.port, "publisher") as publisher, join(process.port, "reader") as reader:
        reader.subscribe("t/#", user_properties=terms)
        for number in range(50):
            publisher.publish(f"t/{number % 3}", b"%d" % number)
        for number in range(50):
            reader.expect_publish(f"t/{number % 3}", b"%d" % number)
    process.check()
    assert process.stop() == 0

    rows = read(process.folder / "trace")

    assert len(rows) == 50
    assert {row["outcome"] for row in rows} == {"in_time"}
    assert {(row["publisher"], row["subscriber"], row["topic_filter"]) for row in rows} == {
        ("publisher", "reader", "t/#")
    }
    assert {(row["allowed_ns"], row["price_micro"], row["penalty_micro"]) for row in rows} == {
        (10_000 * MILLISECOND, 2_000_000, 1_000_000)
    }
    assert [row["message_id"] for row in rows] == sorted(row["message_id"] for row in rows)
    assert all(0 <= row["time_ns"] - row["published_ns"] < 10_000 * MILLISECOND for row in rows)


def test_messages_within_a_contract_carry_what_was_promised(start_broker: StartBroker) -> None:
    # With a stop of a second allowed for, nothing that is measured here changes a promise by a tenth.
    process = start_broker(CONFIG + '[input]\nquantum_time = "100us"\nturn = "2ms"\nstop_allowance = "1s"\n')
    with join(process.port, "press") as press, join(process.port, "reader") as reader:
        reader.subscribe("#")
        terms = [("period", "10s"), ("size", "10"), ("delay", "2s")]
        press.publish("$timebound/advertise/slow", qos=1, user_properties=terms)
        assert press.expect(Ack).reason_code == 0
        for topic in ("slow", "slow", "other"):
            press.publish(topic, b"1")
        for topic in ("slow", "slow", "other"):
            reader.expect_publish(topic, b"1")
    assert process.stop() == 0

    rows = read(process.folder / "trace")

    # The second comes long before its period: it is beyond the contract.
    promises = [(row["topic"], row["promised_ns"]) for row in rows]
    assert sorted(promises) == [("other", 0), ("slow", 0), ("slow", 1_008_300_000)]
    assert all(row["published_ns"] <= row["sent_ns"] <= row["time_ns"] for row in rows)


def test_a_killed_broker_leaves_nothing_that_cannot_be_read(start_broker: StartBroker) -> None:
    process = start_broker(CONFIG)
    trace = process.folder / "trace"
    with join(process.port) as peer:
        peer.subscribe("t")
        peer.publish("t", b"x")
        peer.expect_publish("t", b"x")
        wait_until(lambda: any(trace.glob("date=*/node=*/.*")))
    process.kill()
    assert parts(trace) == []
    os.rename(trace, process.folder / "kept")

    config = CONFIG.replace('"trace"', f'"{process.folder / "kept"}"')
    second = start_broker(config)
    second.stop()

    assert [path for path in (process.folder / "kept").rglob("*") if path.is_file()] == []
