"""Rows per second through the data source `timebound`, at one task and at two.

    python benchmarks/spark_source.py [--rows 1000000]

A journal is made on disk, a broker serves it, and Spark counts its rows with all columns read. The
plain Flight client shows what the broker and the network allow without Spark.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from timebound.config.storage import JournalConfig
from timebound.core.values.message import Message
from timebound.node.journal.journals import Journals
from timebound.pipeline.datasource.flight import FlightClient, Range
from timebound.pipeline.datasource.options import Options
from timebound.pipeline.spark.session import Scale, spark_session

CONFIG = '[[listeners]]\nport = 0\n[[journals]]\nname = "all"\n[flight]\nport = 0\n'
ROUNDS = 3


def fill(folder: Path, rows: int) -> float:
    """Write messages of 100 bytes as the broker would; gives rows per second."""
    journals = Journals.open([JournalConfig(name="all")], folder, fsync=True)
    now_ns = time.time_ns()
    started = time.perf_counter()
    for start in range(0, rows, 1000):
        journals.write(
            [
                Message(f"plant/{number % 50}/temperature", b"x" * 100, 1, False, now_ns + number, "sensor")
                for number in range(start, min(start + 1000, rows))
            ]
        )
        while journals.is_behind():
            time.sleep(0.001)
    journals.close()
    return rows / (time.perf_counter() - started)


def best_rate(rows: int, read: Callable[[], int]) -> float:
    """Rows per second of the fastest of some rounds; the first one also warms up."""
    best_s = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        assert read() == rows
        best_s = min(best_s, time.perf_counter() - started)
    return rows / best_s


def read_plainly(server: str) -> int:
    with FlightClient(server, Options((server,))) as client:
        state = client.find()
        wanted = Range(server, state.journal, state.identity, state.first, state.next)
        columns = [
            "offset",
            "topic",
            "payload",
            "publisher",
            "qos",
            "retain",
            "published_ns",
            "properties",
            "gap",
        ]
        return sum(batch.num_rows for batch in client.read(wanted, columns))


def spark_rate(server: str, rows: int, tasks: int) -> float:
    spark = spark_session(master=f"local[{tasks}]", scale=Scale.LONG)
    frame = (
        spark.read.format("timebound")
        .option("servers", server)
        .option("rowsPerPartition", str(-(-rows // tasks)))
        .load()
    )

    def read() -> int:
        # Every column is asked for, so every row crosses from Python to Spark.
        counted = frame.selectExpr(
            "count(topic) n", "sum(length(payload))", "max(offset)", "count(properties)", "max(published)"
        ).first()
        assert counted is not None
        return int(counted.n)

    rate = best_rate(rows, read)
    spark.stop()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "timebound.toml").write_text(CONFIG)
        print(f"written          {fill(folder / 'data' / 'journals', rows):12,.0f} rows/s")
        broker = subprocess.Popen(
            [sys.executable, "-m", "timebound", "serve", "--config", str(folder / "timebound.toml")],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert broker.stdout is not None
            server = next(
                line.split("grpc://")[1].strip()
                for line in broker.stdout
                if line.startswith("listening on grpc")
            )
            results = {"flight": best_rate(rows, lambda: read_plainly(server))}
            for tasks in (1, 2):
                results[f"spark, {tasks} task{'s' if tasks > 1 else ''}"] = spark_rate(server, rows, tasks)
        finally:
            broker.terminate()
            broker.wait(10)
    for what, rate in results.items():
        print(f"{what:16} {rate:12,.0f} rows/s")
    print(json.dumps({"rows": rows, **{what: round(rate) for what, rate in results.items()}}))


if __name__ == "__main__":
    main()
