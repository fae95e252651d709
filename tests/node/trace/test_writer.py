"""The trace of a broker: what it counts is what a process of its own writes, whatever happens to either."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.node.trace.doubles import batch_of, parts, read
from tests.peer import join

from timebound.errors import ConfigError
from timebound.node.trace.writer import TraceLimits, TraceWriter
from timebound.units import MILLISECOND
from timebound.wire.packets import Ack

MANY = TraceLimits(file_bytes_max=1 << 30, file_age_max_s=3_600.0, disk_bytes_max=1 << 40)
TIMEOUT_S = 20.0


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        # Looked at again: this process may have been stopped in between.
        assert time.monotonic() < end_s or condition(), f"this did not happen in {TIMEOUT_S} s"
        time.sleep(0.01)


def children_of(process_id: int) -> list[int]:
    tasks = Path(f"/proc/{process_id}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def is_running(process_id: int) -> bool:
    return Path(f"/proc/{process_id}/cmdline").exists()


def writing_process(path: Path) -> int:
    """The process that writes to a folder."""
    [found] = [
        child
        for child in children_of(os.getpid())
        if str(path).encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
    ]
    return found


def test_what_is_handed_over_is_written(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "node1", MANY)
    for start in range(1, 1_001, 100):
        writer.write(batch_of(100, start=start))
    writer.close()

    rows = read(tmp_path)

    assert [row["message_id"] for row in rows] == list(range(1, 1_001))
    assert (writer.rows_written, writer.rows_lost) == (1_000, 0)
    assert {part.parent.name for part in parts(tmp_path)} == {"node=node1"}


def test_a_file_is_put_in_its_place_when_it_is_old_though_nothing_more_comes(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", TraceLimits(1 << 30, 0.2, 1 << 40))
    writer.write(batch_of(3))

    wait_until(lambda: len(parts(tmp_path)) == 1)

    assert len(read(tmp_path)) == 3
    writer.close()
    assert len(parts(tmp_path)) == 1
    assert (writer.rows_written, writer.rows_lost) == (3, 0)


def test_more_than_may_wait_is_counted_as_lost(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timebound.node.trace.writer.PENDING_BYTES_MAX", 0)
        writer.write(batch_of(11))
    writer.write(batch_of(10))
    writer.close()

    assert (writer.rows_written, writer.rows_lost) == (10, 11)
    assert len(read(tmp_path)) == 10


def test_what_was_written_waits_no_more(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)
    for _ in range(2):
        writer.write(batch_of(10))
        wait_until(lambda: writer._pending_bytes == 0)
    writer.close()

    assert (writer.rows_written, writer.rows_lost) == (20, 0)


def test_a_disk_that_refuses_is_told_of_and_costs_records_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = tmp_path / "trace"
    writer = TraceWriter(trace, "n", MANY)
    writer.write(batch_of(2))
    wait_until(lambda: writer.rows_written == 2)
    trace.rename(tmp_path / "gone")
    trace.write_text("a file where the folder was")
    writer.write(batch_of(5))
    writer.close()

    # The file is open, so that it takes the records; but it has no place to go any more.
    assert (writer.rows_written, writer.rows_lost) == (0, 7)
    assert "trace lost 7 records" in caplog.text


def test_a_process_that_ends_by_itself_costs_what_is_not_in_a_complete_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = TraceLimits(1_024, 3_600.0, 1 << 40)
    writer = TraceWriter(tmp_path, "n", limits)
    writer.write(batch_of(1_000))
    wait_until(lambda: writer.rows_written == 1_000)
    assert len(parts(tmp_path)) == 1
    writer.write(batch_of(3, start=2_000))
    wait_until(lambda: writer.rows_written == 1_003)

    os.kill(writing_process(tmp_path), signal.SIGKILL)
    writer.write(batch_of(5, start=3_000))
    wait_until(lambda: writer.rows_lost == 8)
    writer.write(batch_of(7, start=4_000))
    writer.close()

    ids = [row["message_id"] for row in read(tmp_path)]
    assert ids == [*range(1, 1_001), *range(4_000, 4_007)]
    assert (writer.rows_written, writer.rows_lost) == (1_007, 8)
    assert "trace lost 8 records: its process ended with code -9" in caplog.text
    assert not list(tmp_path.rglob(".*"))


def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)
    os.kill(writing_process(tmp_path), signal.SIGKILL)
    program = writer._command[0]
    writer._command[0] = str(tmp_path / "nothing")
    writer.write(batch_of(3))
    wait_until(lambda: writer.rows_lost == 3)
    writer.write(batch_of(5))
    wait_until(lambda: writer.rows_lost == 8)
    writer._command[0] = program
    writer.write(batch_of(7))
    writer.close()

    assert (writer.rows_written, writer.rows_lost) == (7, 8)
    assert len(read(tmp_path)) == 7
    assert "trace lost 5 records: its process cannot be started" in caplog.text


def test_a_process_that_is_killed_at_the_end_costs_what_it_had(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "n", MANY)
    writer.write(batch_of(3))
    wait_until(lambda: writer.rows_written == 3)

    os.kill(writing_process(tmp_path), signal.SIGKILL)
    writer.close()

    assert (writer.rows_written, writer.rows_lost) == (0, 3)


def test_a_missing_package_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"tracing needs the packages numpy and pyarrow; .*'\.\[trace\]'"):
        TraceWriter(tmp_path / "trace", "n", MANY)

    assert not (tmp_path / "trace").exists()


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
    # With a stop of a second allowed for, nothing that is measured here changes a delay bound by a tenth.
    process = start_broker(CONFIG + '[input]\nquantum_time = "100us"\nturn = "2ms"\nstall_allowance = "1s"\n')
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


def test_the_trace_of_a_killed_broker_is_brought_to_its_end(start_broker: StartBroker) -> None:
    process = start_broker(CONFIG)
    trace = process.folder / "trace"
    with join(process.port) as peer:
        peer.subscribe("t")
        peer.publish("t", b"x")
        peer.expect_publish("t", b"x")
        wait_until(lambda: any(trace.glob("date=*/node=*/.*")))
    process.kill()

    wait_until(lambda: len(parts(trace)) == 1)

    assert [row["topic"] for row in read(trace)] == ["t"]
    assert not list(trace.glob("date=*/node=*/.*"))


def test_who_stops_all_processes_of_a_broker_loses_no_records(start_broker: StartBroker) -> None:
    process = start_broker(CONFIG)
    with join(process.port) as peer:
        peer.subscribe("t")
        peer.publish("t", b"x")
        peer.expect_publish("t", b"x")
    [writing] = children_of(process.process.pid)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(writing, number)

    assert process.stop() == 0
    assert len(read(process.folder / "trace")) == 1
    assert not is_running(writing)


def test_a_broker_leaves_the_work_on_its_trace_to_another_process(start_broker: StartBroker) -> None:
    process = start_broker(CONFIG)

    loaded = Path(f"/proc/{process.process.pid}/maps").read_text()

    assert "numpy" not in loaded
    assert "pyarrow" not in loaded
