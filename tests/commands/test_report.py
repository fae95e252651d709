"""`timebound report`: where the page is written, and folders without results."""

from __future__ import annotations

from pathlib import Path

from tests.commands.shell import Run
from tests.pipeline.report.made_results import read, write_sweep

from timebound.commands import report


def test_the_page_is_written_beside_the_results(run: Run, tmp_path: Path) -> None:
    write_sweep(tmp_path)

    done = run("report", tmp_path)

    assert done.returncode == 0, done.stderr
    page = Path(done.stdout.decode().strip())
    assert page == (tmp_path / "report.html").resolve()
    assert "simulation sweep" in read(page.read_text(encoding="utf-8"))


def test_the_page_is_written_where_it_is_asked_for(run: Run, tmp_path: Path) -> None:
    write_sweep(tmp_path)

    done = run("report", tmp_path, "--out", tmp_path / "deep" / "other.html")

    assert done.stdout.decode().strip() == str((tmp_path / "deep" / "other.html").resolve())
    assert (tmp_path / "deep" / "other.html").exists()
    assert not (tmp_path / "report.html").exists()


def test_a_folder_without_results_is_a_wrong_call(run: Run, tmp_path: Path) -> None:
    done = run("report", tmp_path)

    assert done.returncode == 2
    assert "folder has no results" in done.said


def test_help_shows_its_examples(run: Run) -> None:
    assert report.EXAMPLES.split("  ")[1].encode() in run("report", "--help").stdout
