"""`timebound pipeline`: over the trace of a real broker, whose counters judge it; and what needs no Spark."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
from tests.commands.shell import Run
from tests.conftest import StartBroker
from tests.peer import Peer, join, props
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.commands import pipeline as command
from timebound.commands._connection import Connecting
from timebound.commands.pipeline import _follow, _lines, _scale, _source_options
from timebound.wire.packets import Ack

pytest.importorskip("pyspark", reason="pyspark is not installed")

from timebound.pipeline.batch import SUMMARY, BatchSummary
from timebound.pipeline.spark.session import Scale
from timebound.pipeline.stream import Restarted

CONFIG = """
sys_interval = "0s"
[input]
quantum_time = "100us"
[trace]
enabled = true
path = "trace"
[metrics]
port = {port}
"""


@pytest.fixture
def port() -> int:
    """A free one, for the figures."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def pipeline(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "timebound", "pipeline", *words],
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT_S,
        check=False,
    )


def counters(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if not line.startswith("#")}


def wait_settled(port: int, pairs: int) -> dict[str, float]:
    """Wait until the broker has said what became of so many pairs."""
    end = time.monotonic() + 20
    while True:
        found = counters(port)
        delivered = [value for name, value in found.items() if name.startswith("timebound_delivered_total")]
        dropped = [value for name, value in found.items() if name.startswith("timebound_dropped_total")]
        if sum(delivered) + sum(dropped) == pairs:
            return found
        assert time.monotonic() < end, f"{pairs} pairs were not settled: {found}"
        time.sleep(0.02)


def publish_some(publisher: Peer) -> None:
    terms = [("period", "1ms"), ("burst", "100"), ("size", "100"), ("delay", "1s")]
    publisher.publish("$timebound/advertise/t/0", qos=1, user_properties=terms)
    assert publisher.expect(Ack).reason_code == 0
    for number in range(60):
        publisher.publish(f"t/{number % 3}", b"%d" % number)
    publisher.publish("t/qos", b"x" * 2_000, 1)
    publisher.expect(Ack)


# Its Spark is a process of its own: it may run beside the session of the others.
@pytest.mark.xdist_group("spark-processes")
@pytest.mark.timeout(SPARK_TIMEOUT_S)
def test_bills_of_a_real_broker_equal_its_counters(
    start_broker: StartBroker, tmp_path: Path, port: int
) -> None:
    process = start_broker(CONFIG.format(port=port))
    with join(process.port, "publisher") as publisher, join(process.port, "reader") as reader:
        reader.subscribe("t/#", user_properties=[("price", "1.000001"), ("deadline", "10s")])
        other = Peer(process.port)
        other.connect("small", properties=props(maximum_packet_size=500))  # one message is too large
        other.subscribe("t/#", user_properties=[("price", "3"), ("penalty", "0.25")])
        publish_some(publisher)
        found = wait_settled(port, 122)
        other.close()
    assert process.stop() == 0
    trace, out = process.folder / "trace", tmp_path / "out"

    done = pipeline("run", "--trace", str(trace), "--out", str(out), "--json")

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    lines: list[dict[str, Any]] = pq.read_table(out / "bills").to_pylist()
    earned, paid = (sum(line[name] for line in lines) for name in ("price_micro", "penalty_micro"))
    assert earned == round(found["timebound_earned_total"] * 1_000_000)
    assert paid == round(found["timebound_penalties_total"] * 1_000_000)
    assert paid == 250_000
    assert (summary["rows"], summary["quarantined"]) == (122, 0)
    assert summary["figures"]["published"] == 61
    [audited] = pq.read_table(out / "bounds").to_pylist()
    assert (audited["publisher"], audited["topic"], audited["pairs"]) == ("publisher", "t/0", 40)
    assert {one["topic"] for one in pq.read_table(out / "advice").to_pylist()} == {
        "t/0",
        "t/1",
        "t/2",
        "t/qos",
    }
    assert len(pq.read_table(out / "tuning").to_pylist()) > 0

    # Nothing new: the same figures, at once and for people.
    again = pipeline("run", "--trace", str(trace), "--out", str(out))
    assert again.returncode == 0, again.stderr
    assert "nothing new" in again.stderr
    assert "122, 0 of them quarantined" in again.stdout
    assert f"{earned / 1_000_000:,.6f}" in again.stdout


def test_a_missing_trace_is_said_before_spark_starts(run: Run, tmp_path: Path) -> None:
    done = run("pipeline", "run", "--trace", tmp_path / "nowhere")

    assert done.returncode == 2
    assert "does not exist" in done.said


FIGURES = {
    "published": 61,
    "subscribers": 2,
    "in_time": 75,
    "late": 5,
    "dropped": 20,
    "earned_micro": 75_000_075,
    "paid_micro": 250_000,
    "links": 2,
    "drifts": 0,
    "flows": 4,
    "promised_flows": 1,
    "violations": 0,
}


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Path, Path]:
    """A trace without anything new, and the results of the last run."""
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    out.mkdir()
    summary = BatchSummary(3, 122, 122, 1, {"day/bad.parquet": "no rows"}, FIGURES)
    (out / SUMMARY).write_text(json.dumps(asdict(summary)))
    return trace, out


def test_without_anything_new_the_last_results_are_shown_without_spark(
    run: Run, finished: tuple[Path, Path]
) -> None:
    trace, out = finished

    shown = run("pipeline", "run", "--trace", trace, "--out", out)
    told = json.loads(run("pipeline", "run", "--trace", trace, "--out", out, "--json").stdout)

    lines = {line[:24].strip(): line[24:].strip() for line in shown.stdout.decode().splitlines()}
    assert lines["trace rows"] == "122, 1 of them quarantined"
    assert lines["in time"] == "75 (75.00%)"
    assert lines["earned"] == "75.000075"
    assert lines["flows"] == "4, 1 of them with a delay bound"
    assert "not read: day/bad.parquet: no rows" in shown.said
    assert "nothing new; tables are in" in shown.said
    assert "Spark" not in shown.said
    assert (told["files_new"], told["rows_read"], told["figures"]) == (0, 0, FIGURES)


def test_shares_of_no_pairs_are_zero() -> None:
    empty = BatchSummary(figures=dict.fromkeys(FIGURES, 0))

    assert _lines(empty, 0)["in time"] == "0"


@pytest.mark.parametrize(
    ("rows", "scale"), [(0, "FEW_ROWS"), (20_000, "FEW_ROWS"), (20_001, "SHORT"), (5_000_000, "LONG")]
)
def test_spark_is_set_up_for_the_rows_there_are(rows: int, scale: str) -> None:
    assert _scale(rows) is Scale[scale]


def test_the_source_gets_the_options_of_the_command_and_no_empty_ones(tmp_path: Path) -> None:
    secret = tmp_path / "password.txt"
    secret.write_text("s3cret\n")
    connecting = Connecting(user="ann", password_file=secret, ca_file=Path("ca.pem"))

    assert _source_options("a:1,b:2", connecting) == {
        "servers": "a:1,b:2",
        "user": "ann",
        "password": "s3cret",
        "caFile": "ca.pem",
    }
    assert _source_options("a:1", Connecting(tls=True)) == {"servers": "a:1", "tls": "true"}
    with pytest.raises(typer.BadParameter, match="use one of them"):
        _source_options("a:1", Connecting(password="x", password_file=secret))


class EndingQuery:
    """A query that has ended after its first batch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lastProgress = None
        self.looks = 0
        self.is_stopped = False

    @property
    def isActive(self) -> bool:
        self.looks += 1
        return self.looks < 2

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.is_stopped = True


def test_queries_are_followed_to_their_end_and_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "FOLLOW_S", 0.0)
    queries = [EndingQuery("alarms"), EndingQuery("links")]

    _follow([Restarted(lambda one=one: one) for one in queries], once=True)  # type: ignore[misc]

    assert [one.is_stopped for one in queries] == [True, True]
    assert "everything journalled so far has been read" in capsys.readouterr().err
