"""The process that writes a broker's trace files: frames on its input, answers on its output.

    python -m timebound.node.trace.process PATH NODE FILE_BYTES_MAX FILE_AGE_MAX_S DISK_BYTES_MAX

A thread of the broker would compete for the interpreter's lock: the event loop would wait for it several
hundred times per second. The process ends with its input, also when the broker is killed, and finishes the
open file before.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import select
import sys
from pathlib import Path
from typing import Final

from timebound.node.trace.files import TraceFiles
from timebound.node.trace.frames import Answer, FrameReader, send_answer
from timebound.node.trace.writer import TraceLimits

_logger: Final = logging.getLogger("timebound.trace")
# Memory that may be kept beyond what is used, and the option's number in malloc.h.
KEPT_BYTES: Final = 1 << 26
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


class LogBuffer(logging.Handler):
    """Keeps what is logged for the next answer: the broker says it, in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def listen(self) -> None:
        _logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))

    def take(self) -> list[tuple[int, str]]:
        lines, self.lines = self.lines, []
        return lines


def serve(files: TraceFiles, log: LogBuffer, input_: int, output: int) -> None:
    """Write what comes in, until nothing does any more."""
    reader = FrameReader(input_)
    while True:
        readable, _, _ = select.select([input_], [], [], files.due_in_s())
        if not readable:
            files.finish_if_due()
            continue
        batch = reader.read()
        if batch is None:
            break
        files.append(batch)
        send_answer(output, Answer(files.rows_written, files.rows_kept(), files.rows_lost, log.take()))
    files.close()
    # A broker that was killed does not read the answer.
    with contextlib.suppress(OSError):
        send_answer(output, Answer(files.rows_written, files.rows_kept(), files.rows_lost, log.take()))


def _keep_memory() -> None:
    """Make the C library keep the memory of arrays for reuse, if it supports that.

    Otherwise memory is returned after each group and allocated again page by page, which takes a third
    of the total time.
    """
    with contextlib.suppress(AttributeError, OSError):
        tell = ctypes.CDLL(None).mallopt
        tell(_M_TRIM_THRESHOLD, KEPT_BYTES)
        tell(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)


def main() -> None:
    path, node_name, file_bytes_max, file_age_max_s, disk_bytes_max = sys.argv[1:]
    limits = TraceLimits(int(file_bytes_max), float(file_age_max_s), int(disk_bytes_max))
    log = LogBuffer()
    log.listen()
    _keep_memory()
    serve(TraceFiles(Path(path), node_name, limits), log, sys.stdin.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    main()
