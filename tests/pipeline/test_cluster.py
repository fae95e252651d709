"""The source and a sweep on executors that are processes of their own, as on a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.brokers import JournalBroker

pytest.importorskip("pyspark", reason="pyspark is not installed")

# A session holds its master for good, so this one needs a process; it may run beside the others' session.
pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(300)]

SCENARIO = Path(__file__).parents[2] / "scenarios" / "quick.toml"
ROWS = 1_000
# Starting executors is the dear part: the command finds the session that is there.
JOB = """
import sys
from timebound.cli import app
from timebound.pipeline.spark.session import Scale, spark_session
server, *sweep = sys.argv[1:]
spark = spark_session(master="local-cluster[2,1,1024]", scale=Scale.FEW_ROWS)
frame = spark.read.format("timebound").option("servers", server).option("rowsPerPartition", "250").load()
counts = frame.selectExpr("count(topic)", "sum(offset)").first()
print("rows", counts[0], counts[1])
app(["sweep", *sweep, "--master", "local-cluster[2,1,1024]", "--json"])
"""


def test_executors_in_processes_of_their_own_read_topics_and_run_sweeps(tmp_path: Path) -> None:
    broker = JournalBroker(tmp_path / "broker")
    broker.publish(f"t/{number}" for number in range(ROWS))
    varied = ["--vary", "rate=2,4", "--vary", "strategy=eb,fifo", "--vary", "minutes=1", "--seeds", "2"]

    ended = subprocess.run(
        [sys.executable, "-c", JOB, broker.server, str(SCENARIO), *varied, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=tmp_path,
    )
    broker.kill()

    assert ended.returncode == 0, ended.stderr[-3000:]
    counted, _, told = ended.stdout.partition("\n")
    assert counted == f"rows {ROWS} {sum(range(ROWS))}"
    rows = json.loads(told)
    assert [(row["rate"], row["strategy"], row["seed"]) for row in rows] == [
        (rate, strategy, seed) for rate in (2.0, 4.0) for strategy in ("eb", "fifo") for seed in (1, 2)
    ]
    assert all(row["error"] == "" and row["matched"] > 0 for row in rows)
    assert (tmp_path / "out" / "runs.parquet").exists()
