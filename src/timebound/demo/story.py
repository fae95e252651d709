"""The whole story on one machine: a broker with more to send than its link carries, its trace, a report.

A real broker process traces what becomes of every message behind a slow link; the pipeline makes tables
of it on Spark and replays the load under every strategy; the report is a page to read. Each step is
the command that a user would call.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from timebound.demo.brokers import ours
from timebound.demo.overload import Outcome, Setting, run
from timebound.errors import TimeboundError

# Every step has a limit: the longest is Spark's, on a busy machine.
STEP_S_MAX: Final = 900.0
TRACE: Final = "trace"
RESULTS: Final = "results"
_TRACE_CONFIG: Final = """\
[trace]
enabled = true
path = "{path}"
"""


def overload(
    folder: Path, strategy: str, load: float, setting: Setting, progress: Callable[[float], None]
) -> Outcome:
    """Offer a broker more than its link carries, and keep the trace in a folder."""
    trace = (folder / TRACE).resolve()
    # The broker runs in a folder of its own, so the path must be a whole one.
    contender = replace(ours(strategy), more_config=_TRACE_CONFIG.format(path=trace))
    return run(contender, load, setting, progress)


def analyse(folder: Path, master: str | None = None) -> None:
    """Run the pipeline over the trace in a folder.

    Raises:
        TimeboundError: it failed; what it said is on the screen.
    """
    arguments = ["pipeline", "run", "--trace", str(folder / TRACE), "--out", str(folder / RESULTS)]
    _call([*arguments, *(["--master", master] if master else [])])


def report(folder: Path) -> Path:
    """Write the page about the results; gives its path."""
    page = (folder / "report.html").resolve()
    _call(["report", str(folder / RESULTS), "--out", str(page)], is_quiet=True)
    return page


def _call(arguments: list[str], *, is_quiet: bool = False) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "timebound", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if is_quiet else None,
            timeout=STEP_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeboundError(f"`timebound {arguments[0]}` did not end in {STEP_S_MAX:g} s") from error
    if done.returncode:
        raise TimeboundError(f"`timebound {' '.join(arguments[:2])}` failed; see above")
