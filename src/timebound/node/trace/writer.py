"""The trace of a broker, sent to the process that writes it (`process.py`).

Records are collected in memory as packed numbers; a thread sends them in portions. If the process ends
before the broker, records that are not in a complete file are counted as lost, and another process is
started.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from timebound.core.account.trace_log import TraceBatch
from timebound.node.trace.frames import Answer, FrameWriter, read_answer
from timebound.node.trace.pack import TracePack, TracePacks
from timebound.packages import FOR_TRACES, require

logger = logging.getLogger("timebound.trace")

# Packed bytes of records that wait to be sent: about seven million records. Beyond that the trace has a gap,
# which is counted.
PENDING_BYTES_MAX: Final = 112_000_000
# How often records are sent, as at least one row group of a file.
COLLECT_S: Final = 0.5
# Signals that a terminal or a supervisor sends to all processes of a broker.
_NOT_FOR_IT: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_PIPE_BYTES: Final = 1 << 20  # capacity of the pipe between the processes


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """Size and age at which a file is closed, and the total size of all."""

    file_bytes_max: int
    file_age_max_s: float
    disk_bytes_max: int


class TraceWriter:
    """Writes the trace of one node, through another process."""

    def __init__(self, path: Path, node_name: str, limits: TraceLimits) -> None:
        require("tracing", *FOR_TRACES, key="trace.enabled")
        path.mkdir(parents=True, exist_ok=True)
        self._command = [
            *(sys.executable, "-m", "timebound.node.trace.process", str(path), node_name),
            *(str(limits.file_bytes_max), str(limits.file_age_max_s), str(limits.disk_bytes_max)),
        ]
        self._lock = threading.Lock()  # guards the next three, which both threads change
        self._packs = TracePacks()
        self._pending_bytes = 0
        self.rows_lost = 0
        self._kept_before = 0  # by processes that ended
        self._child: _Child | None = _Child(self._command)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timebound-trace", daemon=True)
        self._thread.start()

    @property
    def rows_written(self) -> int:
        child = self._child
        return self._kept_before + (child.answer.written if child is not None else 0)

    def write(self, batch: TraceBatch) -> None:
        """Queue records; returns at once. Records beyond the limit are counted in `rows_lost`."""
        with self._lock:
            if self._pending_bytes >= PENDING_BYTES_MAX:
                self.rows_lost += batch.count
                return
            self._packs.add(batch)
            self._pending_bytes += batch.size_bytes()

    def close(self) -> None:
        """Write what is waiting, and complete the last file."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            # Not woken for each batch: the broker would have to wait for this thread each time.
            is_open = not self._stopping.wait(COLLECT_S)
            with self._lock:
                packs = self._packs.take()
            for pack in packs:
                self._send(pack)
                with self._lock:
                    self._pending_bytes -= pack.size_bytes
                    self._packs.recycle(pack)
        if self._child is not None:
            self._end(self._child)

    def _send(self, pack: TracePack) -> None:
        try:
            child = self._child = self._child or _Child(self._command)
        except OSError as error:
            self._lose(pack.count, f"its process cannot be started: {error}")
            return
        lost_before = child.answer.lost
        try:
            child.write(pack.batch())
        except OSError:
            self._record_crash(child)
            return
        with self._lock:
            self.rows_lost += child.answer.lost - lost_before

    def _record_crash(self, child: _Child) -> None:
        """Account for what a process that ended by itself leaves behind; the next records start another."""
        self._child = None
        code = child.end()
        self._kept_before += child.answer.kept
        lost = child.sent - child.answer.kept - child.answer.lost
        self._lose(lost, f"its process ended with code {code}")

    def _end(self, child: _Child) -> None:
        lost_before = child.answer.lost
        code = child.end()
        lost = child.sent - child.answer.kept - lost_before
        child.answer.written = child.answer.kept
        if code:
            self._lose(lost, f"its process ended with code {code}")
        else:
            with self._lock:
                self.rows_lost += lost  # as it reported

    def _lose(self, rows: int, why: str) -> None:
        with self._lock:
            self.rows_lost += rows
        logger.error("trace lost %d records: %s", rows, why)


class _Child:
    """The writing process, and its answers."""

    def __init__(self, command: list[str]) -> None:
        # It inherits the signal mask, so it ends after the broker.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_IT)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with contextlib.suppress(AttributeError, OSError):  # if a pipe cannot be that large
            fcntl.fcntl(self._input(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._frames = FrameWriter(self._input().fileno())
        self.sent = 0  # records
        self.answer = Answer()

    def write(self, batch: TraceBatch) -> None:
        """Send records and wait for the answer.

        Raises:
            OSError: the process has ended.
        """
        self.sent += batch.count
        self._frames.send(batch)
        if not self._take_answer():
            raise BrokenPipeError

    def end(self) -> int:
        """Close its input and wait until it has written everything; return the exit code."""
        with contextlib.suppress(OSError):
            self._input().close()
        self._take_answer()
        self._output().close()
        return self._process.wait()

    def _take_answer(self) -> bool:
        answer = read_answer(self._output().fileno())
        if answer is None:
            return False
        self.answer = answer
        for level, text in answer.logged:
            logger.log(level, "%s", text)
        return True

    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout
