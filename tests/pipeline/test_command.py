"""`timebound pipeline run` over the trace of a real broker, whose own counters are the judge."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import StartBroker
from tests.peer import Peer, join, props
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.wire.packets import Ack

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

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


def test_a_missing_trace_is_said_before_spark_starts(tmp_path: Path) -> None:
    done = pipeline("run", "--trace", str(tmp_path / "nowhere"))

    assert done.returncode == 2
    assert "does not exist" in " ".join(done.stderr.split())
