"""How well sweeps use cores: simulated seconds per core-second on two cores against one.

    python benchmarks/sweep.py [--cores 1,2] [--runs 16] [--minutes 20]

Runs of paper 002 (PSD, rate 15, EB) are carried out as Spark tasks, once with each number of cores, in a
process of its own, after a small sweep that starts the workers; and before that in as many plain processes
without Spark, which shows what the machine itself allows. Spark's start is told apart: it is paid once for
each command.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict

from timebound.pipeline.spark.session import Scale, spark_session
from timebound.pipeline.sweep.sweep import SweepPlan, run_here, run_sweep
from timebound.sim.papers.grid import RESULTS, Job
from timebound.version import is_compiled

CHILD_S_MAX = 600.0
HERE = 0  # cores of Spark: none, plain Python


def plan(runs: int, minutes: float) -> SweepPlan:
    jobs = [Job("002", 6, "psd", 15.0, "eb", -1.0, seed, minutes=minutes) for seed in range(1, runs + 1)]
    return SweepPlan([asdict(job) for job in jobs], "timebound.sim.papers.grid:open_runs", b"", RESULTS)


def measure(cores: int, runs: int, minutes: float) -> dict[str, float]:
    """Carry out the runs in this process or on so many cores of an embedded Spark."""
    started_s = time.perf_counter()
    if cores == HERE:
        table = run_here(plan(runs, minutes))
        start_s = 0.0
        wall_s = time.perf_counter() - started_s
    else:
        spark = spark_session(master=f"local[{cores}]", scale=Scale.FEW_ROWS)
        run_sweep(spark, plan(4 * cores, 0.1))
        start_s = time.perf_counter() - started_s
        started_s = time.perf_counter()
        table = run_sweep(spark, plan(runs, minutes))
        wall_s = time.perf_counter() - started_s
        spark.stop()
    assert not any(table["error"].to_pylist())
    return {"start_s": start_s, "wall_s": wall_s, "cpu_s": sum(table["cpu_s"].to_pylist())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cores", default="1,2", help="numbers of cores to compare")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=20.0, help="simulated in each run")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(measure(arguments.child, arguments.runs, arguments.minutes)))
        return
    simulated_s = 60 * arguments.minutes * arguments.runs
    print(
        f"{arguments.runs} runs of {arguments.minutes:g} minutes, {'' if is_compiled() else 'not '}compiled"
    )
    print(f"{'cores':>10} {'start s':>8} {'wall s':>8} {'run cpu s':>10} {'simulated s per core-s':>23}")
    counts = [int(word) for word in arguments.cores.split(",")]
    for name, measured in (("plain", _in_processes), ("Spark", _in_a_process)):
        first = 0.0
        for cores in counts:
            found = measured(cores, arguments.runs, arguments.minutes)
            rate = simulated_s / found["wall_s"] / cores
            first = first or rate
            said = f"{f'{cores} {name}':>10} {found['start_s']:8.1f} {found['wall_s']:8.1f} "
            said += f"{found['cpu_s']:10.1f} {rate:23,.0f}"
            print(f"{said}  {rate / first:.0%} of the first" if rate != first else said, flush=True)


def _in_processes(count: int, runs: int, minutes: float) -> dict[str, float]:
    """So many plain processes at once, which share the runs: what the machine itself allows."""
    shares = [runs // count + (number < runs % count) for number in range(count)]
    found = [_result(child) for child in [_start(HERE, share, minutes) for share in shares]]
    return {
        "start_s": 0.0,
        "wall_s": max(one["wall_s"] for one in found),
        "cpu_s": sum(one["cpu_s"] for one in found),
    }


def _in_a_process(cores: int, runs: int, minutes: float) -> dict[str, float]:
    """A session keeps its master for good, so each number of cores has its own process."""
    return _result(_start(cores, runs, minutes))


def _start(cores: int, runs: int, minutes: float) -> subprocess.Popen[str]:
    options = ["--child", str(cores), "--runs", str(runs), "--minutes", str(minutes)]
    return subprocess.Popen(
        [sys.executable, __file__, *options], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )


def _result(child: subprocess.Popen[str]) -> dict[str, float]:
    said, _ = child.communicate(timeout=CHILD_S_MAX)
    assert child.returncode == 0, "a child failed; what it said stands above"
    found: dict[str, float] = json.loads(said)
    return found


if __name__ == "__main__":
    main()
