"""Stalls of this machine, measured by a process that does nothing else.

    with StallWatch() as watch:
        ...
    watch.longest_s, watch.total_s

One thread for each processor wakes every few milliseconds and notes how late it came to its turn. It shares
nothing with what is tested, so neither a slow broker nor a busy event loop of the test looks like a stall:
only time in which the machine ran something else does, or nothing at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from timebound.units import MILLISECOND, SECOND

STEP_NS: Final = 4 * MILLISECOND
# What an idle machine shows as well: timers, and short work of others.
NOISE_NS: Final = 8 * MILLISECOND
_WAIT_S_MAX: Final = 10.0


class StallWatch:
    """Watches all processors of this process until the context ends."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.total_s = 0.0  # of the processor that was worst off
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> StallWatch:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "watching\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        said, _ = self._process.communicate(timeout=_WAIT_S_MAX)
        for stalls in json.loads(said):
            self.longest_s = max(self.longest_s, max(stalls, default=0) / SECOND)
            self.total_s = max(self.total_s, sum(stalls) / SECOND)


def _watch(processor: int, late_ns: list[int], end: threading.Event) -> None:
    os.sched_setaffinity(0, {processor})  # of this thread alone
    before_ns = time.monotonic_ns()
    while not end.is_set():
        time.sleep(STEP_NS / SECOND)
        now_ns = time.monotonic_ns()
        if now_ns - before_ns > STEP_NS + NOISE_NS:
            late_ns.append(now_ns - before_ns - STEP_NS)
        before_ns = now_ns


def main() -> None:
    """Watch until standard input ends, then print the stalls of each processor in nanoseconds."""
    end = threading.Event()
    found: list[list[int]] = []
    threads = []
    for processor in sorted(os.sched_getaffinity(0)):
        found.append([])
        threads.append(threading.Thread(target=_watch, args=(processor, found[-1], end)))
    for thread in threads:
        thread.start()
    print("watching", flush=True)
    sys.stdin.read()
    end.set()
    for thread in threads:
        thread.join()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
