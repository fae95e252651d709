"""Trace rows a second through the whole batch pipeline, and how time and memory grow with the trace.

    python benchmarks/pipeline.py [--rows 1,10,30] [--master local[*]] [--json]

A trace is made with numpy: messages of 100 publishers on 400 topics for 200 subscribers, in files of
2 M rows as a broker writes them, over several days. Then `timebound pipeline run` processes all of
it in a process of its own. Memory is the largest sum seen over the command, Java and the Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from timebound.records import TRACE_FIELDS

MILLION = 1_000_000
FILE_ROWS = 2 * MILLION
GROUP_ROWS = 262_144  # as a broker writes them
START_NS = 1_800_000_000 * 1_000_000_000
DAY_S = 86_400
# Pairs a second: 30 M rows are a working day of a busy plant.
ROWS_PER_S = 1_000
SAMPLE_S = 0.1
RUN_TIMEOUT_S = 3_600.0


def make_trace(folder: Path, rows: int) -> int:
    """Write a trace of so many rows; gives its bytes."""
    draws = np.random.default_rng(1)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        table = _rows(draws, start, min(FILE_ROWS, rows - start))
        day = time.strftime("%Y-%m-%d", time.gmtime(START_NS // 1_000_000_000 + start // ROWS_PER_S))
        place = folder / f"date={day}" / "node=made"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"part-{number:06d}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def _rows(draws: np.random.Generator, start: int, count: int) -> pa.Table:
    message = np.arange(start, start + count)
    published = START_NS + message * (1_000_000_000 // ROWS_PER_S) + draws.integers(0, 500_000, count)
    queued = draws.exponential(3e6, count).astype(np.int64)
    sent = published + 200_000 + queued
    kind = draws.choice(3, count, p=[0.95, 0.03, 0.02])
    publisher, subscriber = message % 100, message % 200
    sent = np.where(kind == 2, 0, sent)
    values: dict[str, Any] = {
        "time_ns": published + 200_000 + queued,
        "message_id": message,
        "topic": _named("plant/%d/value", message % 400, 400),
        "publisher": _named("sensor-%d", publisher, 100),
        "subscriber": _named("client-%d", subscriber, 200),
        "topic_filter": _named("plant/%d/#", message % 400, 400),
        "qos": np.zeros(count),
        "size_bytes": draws.integers(50, 2_000, count),
        "published_ns": published,
        "queued_ns": queued,
        "allowed_ns": np.where(kind == 1, 100_000, 0),
        "outcome": pa.array(["in_time", "late", "dropped"]).take(pa.array(kind)),
        "reason": pa.array(["", "", "queue_full"]).take(pa.array(kind)),
        "price_micro": np.full(count, 10_000),
        "penalty_micro": np.full(count, 2_000),
        "hop": np.zeros(count),
        "link": _named("client-%d", subscriber, 200),
        "sent_ns": sent,
        "promised_ns": np.where(publisher == 7, 50_000_000, 0),
        "origin": _named("plant-%d", np.zeros(count, np.int64), 1),
        "started_ns": np.full(count, START_NS),
        "number": message,
    }
    columns = [_column(values[name], kind_name) for name, kind_name in TRACE_FIELDS]
    return pa.Table.from_arrays(columns, names=[name for name, _ in TRACE_FIELDS])


def _named(pattern: str, numbers: Any, count: int) -> pa.Array:
    return pa.array([pattern % number for number in range(count)]).take(pa.array(numbers))


def _column(values: Any, kind: str) -> pa.Array:
    return values if kind == "string" else pa.array(values.astype(kind))


class Memory:
    """Watches a process and all below it."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self.cpu_s = 0.0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            pids = _tree(self._pid)
            self.peak_bytes = max(self.peak_bytes, sum(_resident(pid) for pid in pids))
            self.cpu_s = max(self.cpu_s, sum(_processor_s(pid) for pid in pids))


def _tree(root: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _processor_s(pid: int) -> float:
    """What a process and its children that have ended took of processors."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def measure(millions: float, master: str | None) -> dict[str, Any]:
    """Make a trace and process it."""
    rows = int(millions * MILLION)
    with tempfile.TemporaryDirectory(prefix="pipeline-bench-") as folder:
        trace, out = Path(folder) / "trace", Path(folder) / "out"
        size = make_trace(trace, rows)
        command = [sys.executable, "-m", "timebound", "pipeline", "run", "--no-tuning", "--json"]
        command += ["--trace", str(trace), "--out", str(out), *(["--master", master] if master else [])]
        started = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            memory = Memory(process.pid)
            try:
                printed, _ = process.communicate(timeout=RUN_TIMEOUT_S)
            finally:
                memory.stop()
        wall_s = time.monotonic() - started
        if process.returncode:
            raise SystemExit(f"the pipeline ended with {process.returncode}")
    summary = json.loads(printed)
    assert summary["rows"] == rows, f"{summary['rows']} rows of {rows} were counted"
    jobs_s = sum(summary["seconds"].values())
    return {
        "rows": rows,
        "trace_bytes": size,
        "wall_s": wall_s,
        "jobs_s": jobs_s,
        "rows_per_s": rows / jobs_s,
        "cpu_s": memory.cpu_s,
        "peak_bytes": memory.peak_bytes,
        "steps_s": summary["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", default="1,10,30", help="millions of rows, separated by commas")
    parser.add_argument("--master", help="a Spark master; this machine if left out")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    found = [measure(float(word), options.master) for word in options.rows.split(",")]
    if options.json:
        print(json.dumps(found, indent=2))
        return
    headings = ("rows", "trace MB", "whole command s", "processor s", "jobs s", "rows/s", "peak memory MB")
    table = Table(*headings, box=None)
    for one in found:
        table.add_row(
            f"{one['rows']:,}",
            f"{one['trace_bytes'] / MILLION:,.0f}",
            f"{one['wall_s']:.1f}",
            f"{one['cpu_s']:.1f}",
            f"{one['jobs_s']:.1f}",
            f"{one['rows_per_s']:,.0f}",
            f"{one['peak_bytes'] / MILLION:,.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
