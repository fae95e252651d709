"""The whole story on one machine: an overloaded broker, its trace, and a report.

A real broker process traces every message behind a slow link; the pipeline makes tables of the trace with
Spark and replays the load under every strategy; the report is an HTML page. Each step is a command that a
user would call.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from timebound.demo.brokers import ours
from timebound.demo.overload import AFTER_S_MAX, OverloadResult, OverloadSetting, run
from timebound.errors import TimeboundError

# Limit of a step: Spark takes longest, on a busy machine.
STEP_S_MAX: Final = 900.0
# On a busy machine the link is slower than its rate: the drain gets more time, and at least this.
_DRAIN_FACTOR: Final = 1.25
_DRAIN_S_MIN: Final = 2.0
TRACE: Final = "trace"
RESULTS: Final = "results"
_TRACE_CONFIG: Final = """\
[trace]
enabled = true
path = "{path}"
"""


@dataclass(frozen=True, slots=True)
class Drained(OverloadSetting):
    """A run that lasts until the backlog at the end of publishing is sent."""

    load: float = 1.0

    @property
    def run_s(self) -> float:
        # The offered load beyond the link's rate, if none is dropped.
        backlog_s = max(self.load - 1.0, 0.0) * self.seconds
        return self.seconds + AFTER_S_MAX + backlog_s * _DRAIN_FACTOR + _DRAIN_S_MIN


def overload(
    folder: Path, strategy: str, setting: Drained, progress: Callable[[float], None]
) -> OverloadResult:
    """Overload a broker's link, and keep the trace in a folder.

    The subscriber disconnects when nothing is queued for it any more, so every drop in the trace is due to
    the overload.
    """
    trace = (folder / TRACE).resolve()
    # The broker runs in a folder of its own, so the path must be absolute.
    contender = replace(ours(strategy), more_config=_TRACE_CONFIG.format(path=trace))
    return run(contender, setting.load, setting, progress)


def analyse(folder: Path, master: str | None = None) -> None:
    """Run the pipeline over the trace in a folder.

    Raises:
        TimeboundError: it failed; its output is on the screen.
    """
    arguments = ["pipeline", "run", "--trace", str(folder / TRACE), "--out", str(folder / RESULTS)]
    _call([*arguments, *(["--master", master] if master else [])])


def report(folder: Path) -> Path:
    """Write the HTML page about the results and return its path."""
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
