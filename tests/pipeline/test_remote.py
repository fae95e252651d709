"""The same commands in processes of their own, against a Spark Connect server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.traces import SPARK_TIMEOUT_S, dropped, row, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

SCENARIO = Path(__file__).parents[2] / "scenarios" / "quick.toml"


@pytest.fixture
def remote(spark: SparkSession, connect_port: int) -> str:
    """The address of a server. The session of all tests is one, too, and has most of Spark loaded."""
    assert spark.conf.get("spark.connect.grpc.binding.port") == str(connect_port)
    return f"sc://127.0.0.1:{connect_port}"


def timebound(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "timebound", *words],
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sweeps_and_traces_are_processed_by_a_server(remote: str, tmp_path: Path) -> None:
    write_file(tmp_path / "trace", [row(1), row(2), dropped(3, penalty_micro=500_000)])

    swept = timebound(
        *["sweep", str(SCENARIO), "--vary", "minutes=1", "--seeds", "2", "--json"],
        *["--remote", remote, "--out", str(tmp_path / "sweep")],
    )
    processed = timebound(
        *["pipeline", "run", "--no-tuning", "--json", "--remote", remote],
        *["--trace", str(tmp_path / "trace"), "--out", str(tmp_path / "out")],
    )

    assert [(run["seed"], run["error"]) for run in json.loads(swept)] == [(1, ""), (2, "")]
    figures = json.loads(processed)["figures"]
    assert (figures["in_time"], figures["dropped"]) == (2, 1)
    assert (figures["earned_micro"], figures["paid_micro"]) == (2_000_000, 500_000)
