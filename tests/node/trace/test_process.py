"""The process that writes a trace: it answers every frame, looks at the clock, and ends with its input."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.node.trace.doubles import batch_of, parts, read

from timebound.node.trace.files import TraceFiles
from timebound.node.trace.frames import Answer, FrameWriter, read_answer
from timebound.node.trace.process import LogBuffer, serve
from timebound.node.trace.writer import TraceLimits

MANY = TraceLimits(file_bytes_max=1 << 30, file_age_max_s=3_600.0, disk_bytes_max=1 << 40)


class Served:
    """`serve` in a thread, with both ends of its pipes at hand."""

    def __init__(self, files: TraceFiles) -> None:
        input_, self._frames = os.pipe()
        self._answers, output = os.pipe()
        self._writer = FrameWriter(self._frames)
        self._log = LogBuffer()
        self._log.listen()

        def run() -> None:
            try:
                serve(files, self._log, input_, output)
            finally:
                os.close(input_)
                os.close(output)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def send(self, count: int, start: int = 1) -> Answer | None:
        self._writer.send(batch_of(count, start=start))
        return read_answer(self._answers)

    def end(self) -> list[Answer]:
        """Close its input; gives what it says then."""
        os.close(self._frames)
        answers = list(iter(lambda: read_answer(self._answers), None))
        self._thread.join()
        os.close(self._answers)
        logging.getLogger("timebound.trace").removeHandler(self._log)
        return answers


def test_each_frame_is_answered_and_the_end_as_well(tmp_path: Path) -> None:
    served = Served(TraceFiles(tmp_path, "n", MANY))

    assert served.send(3) == Answer(3, 0, 0)
    assert served.send(4, start=4) == Answer(7, 0, 0)
    assert parts(tmp_path) == []

    assert served.end() == [Answer(7, 7, 0)]
    assert [row["message_id"] for row in read(tmp_path)] == list(range(1, 8))


def test_a_file_is_complete_in_time_though_nothing_comes(tmp_path: Path) -> None:
    served = Served(TraceFiles(tmp_path, "n", TraceLimits(1 << 30, 0.05, 1 << 40)))
    served.send(3)

    while not parts(tmp_path):
        assert served._thread.is_alive()

    assert len(read(tmp_path)) == 3
    served.end()


def test_what_is_to_be_said_goes_with_the_answer(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    served = Served(TraceFiles(trace, "n", MANY))
    trace.rmdir()
    trace.write_text("a file where the folder was")

    answer = served.send(5)

    assert answer is not None
    assert (answer.written, answer.kept, answer.lost) == (0, 0, 5)
    [(level, text)] = answer.logged
    assert level == 40
    assert text.startswith("trace lost 5 records: ")
    assert served.end() == [Answer(0, 0, 5)]


def test_as_a_program_it_ends_with_its_input(tmp_path: Path) -> None:
    limits = (str(1 << 30), "3600.0", str(1 << 40))
    command = [sys.executable, "-m", "timebound.node.trace.process", str(tmp_path / "trace"), "n", *limits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        FrameWriter(process.stdin.fileno()).send(batch_of(3))
        assert read_answer(process.stdout.fileno()) == Answer(3, 0, 0)
        process.stdin.close()
        assert read_answer(process.stdout.fileno()) == Answer(3, 3, 0)

        assert process.wait() == 0

    assert len(read(tmp_path / "trace")) == 3
