"""One HTML page from a folder of results: of a sweep, or of the batch jobs over a trace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from timebound.errors import ConfigError
from timebound.packages import FOR_TRACES, require
from timebound.pipeline.report.page import render
from timebound.pipeline.report.sweep import sweep_page
from timebound.pipeline.report.trace import trace_page
from timebound.pipeline.sweep.results import INFO_FILE

REPORT_FILE: Final = "report.html"
# A table that the batch jobs always write.
_TRACE_TABLE: Final = "bills"


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page about the results in a folder; return its path.

    Raises:
        ConfigError: the folder has no results, or pyarrow is missing.
    """
    page = render_report(folder)
    path = out or folder / REPORT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.part")
    hidden.write_text(page, encoding="utf-8")
    os.replace(hidden, path)
    return path


def render_report(folder: Path) -> str:
    """Return the page about the results in a folder.

    Raises:
        ConfigError: the folder has no results, or pyarrow is missing.
    """
    require("a report", *FOR_TRACES)
    if (folder / INFO_FILE).exists():
        return render(sweep_page(folder))
    if (folder / _TRACE_TABLE).is_dir():
        return render(trace_page(folder))
    raise ConfigError(
        "folder has no results; expected the --out of `timebound sweep`, `sim paper` or `pipeline run`",
        path=str(folder),
    )
