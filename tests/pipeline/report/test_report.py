"""Reports: which page a folder gets, and where it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.report.made_results import bill, read, write_sweep, write_tables

from timebound.errors import ConfigError
from timebound.pipeline.report.report import REPORT_FILE, render_report, write_report


def test_the_files_of_a_folder_decide_which_page_it_gets(tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep")
    write_tables(tmp_path / "trace", {"bills": [bill("anna", 9, 1, 9.0, 1.0)]})

    assert "simulation sweep" in read(render_report(tmp_path / "sweep"))
    assert "delivery report" in read(render_report(tmp_path / "trace"))


def test_a_page_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    (tmp_path / REPORT_FILE).write_text("old")

    path = write_report(tmp_path)

    assert path == tmp_path / REPORT_FILE
    assert path.read_text(encoding="utf-8") == render_report(tmp_path)
    assert not list(tmp_path.glob(".*.part*html*"))
    assert not list(tmp_path.glob(".report*"))


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder has no results"):
        render_report(tmp_path)
