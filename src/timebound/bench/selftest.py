"""Finds the load generator's own ceiling, to show that benchmarks do not measure the generator.

Run as `python -m timebound.bench.selftest` it prints the ceilings of the usual loads.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import timebound
from timebound.bench.load import run_load
from timebound.bench.options import LoadOptions, LoadResult
from timebound.bench.report import describe

_STOP_TIMEOUT_S: Final = 5.0


def self_test(options: LoadOptions | None = None) -> LoadResult:
    """Run the work of `options` against a relay that only copies bytes.

    The relay serves one topic per publisher; further topics are left out.
    """
    wanted = options or LoadOptions(duration_s=1.0, warmup_s=0.2)
    with relay_process() as port:
        return run_load(
            replace(
                wanted, host="127.0.0.1", port=port, topics=min(wanted.topics, wanted.publishers), tls=False
            )
        )


@contextlib.contextmanager
def relay_process() -> Iterator[int]:
    """Start the relay as a process of its own, like a broker, and yield its port."""
    source = str(Path(timebound.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "timebound.bench.relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([source, *sys.path])},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin, process.stdout:
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    """Print the ceilings of the loads that `make bench` runs."""
    base = LoadOptions(duration_s=1.0, warmup_s=0.3)
    four = replace(base, publishers=4, subscribers=4, topics=4)
    shapes = [base, four, replace(base, subscribers=10)]
    shapes += [replace(base, qos=1), replace(four, qos=1), replace(base, qos=2)]
    for shape in shapes:
        result = self_test(shape)
        print(
            f"{describe(shape)}: {result.received_per_s:,.0f} msg/s, "
            f"generator busy {result.generator_cpu:.0%} of one core"
        )


if __name__ == "__main__":
    main()
