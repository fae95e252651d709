"""The same commands against a Spark Connect server, which runs in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.pipeline.conftest import FEW_ROWS
from tests.pipeline.traces import SPARK_TIMEOUT_S, dropped, row, write_file

from timebound.pipeline.session import _home_without_archive

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
OPTIONS = {
    **FEW_ROWS,
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-Xss8m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
SCENARIO = Path(__file__).parents[2] / "scenarios" / "quick.toml"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    folder = tmp_path_factory.mktemp("connect")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    options = {**OPTIONS, "spark.connect.grpc.binding.port": str(port)}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", SERVER]
    command += ["--master", "local[2]"]
    command += [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SPARK_HOME": str(_home_without_archive(folder / "home")),
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        wait_listening(server, port)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def wait_listening(server: subprocess.Popen[bytes], port: int) -> None:
    until_s = time.monotonic() + SPARK_TIMEOUT_S / 2
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < until_s, "the server does not listen"
            time.sleep(0.1)
        else:
            return


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
