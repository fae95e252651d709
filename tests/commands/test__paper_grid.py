"""The papers' grids in processes of this machine, and how they are kept for a report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from timebound.commands._paper_grid import run_grid, write_paper
from timebound.errors import TimeboundError
from timebound.pipeline.report.report import render_report
from timebound.pipeline.sweep.results import read_results
from timebound.sim.papers import grid
from timebound.sim.papers.grid import Job, jobs


def wanted(**narrowed: tuple[str, ...]) -> list[Job]:
    return jobs("002", figures=(6,), rates=(5.0, 15.0), seeds=(1, 2), minutes=0.5, **narrowed)


def test_without_pyspark_it_says_so_and_runs_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    rows, _, _ = run_grid(
        grid, wanted(strategies=("fifo",))[:1], "paper", workers=None, master=None, remote=None
    )

    assert len(rows) == 1
    assert "pyspark is not installed: running in processes on this machine" in capsys.readouterr().err


def test_rows_are_kept_with_figures_and_what_was_printed(tmp_path: Path) -> None:
    rows, wall_s, cores = run_grid(grid, wanted(strategies=("eb", "fifo")), "paper", 1, None, None)

    write_paper(tmp_path, "002", rows, 0.5, wall_s, cores)

    table, info = read_results(tmp_path)
    assert table.num_rows == len(rows) == 8
    assert [(figure.title, figure.x, figure.measures) for figure in info.figures] == [
        ("Figure 6, PSD", "rate", ("delivery_rate", "traffic"))
    ]
    assert {(one.what, one.printed) for one in info.printed} == {
        ("delivery rate of eb", 0.401),
        ("delivery rate of fifo", 0.225),
        ("traffic of eb over that of fifo", 1.17),
    }
    assert "Each run simulates 0.5 minutes; the paper has 120." in render_report(tmp_path)


def test_a_sweep_of_weights_is_drawn_along_them(tmp_path: Path) -> None:
    few = jobs("002", figures=(4,), scenarios=("ssd",), weights=(0.2, 0.8), minutes=0.2)
    rows, wall_s, cores = run_grid(grid, few, "paper", 1, None, None)

    write_paper(tmp_path, "002", rows, 120.0, wall_s, cores)

    _, info = read_results(tmp_path)
    assert [figure.x for figure in info.figures] == ["weight"]
    # EB and PC have no weight: each is one level line.
    assert render_report(tmp_path).count('class="line level"') == 2


def test_a_master_needs_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(TimeboundError, match="needs the package pyspark"):
        run_grid(grid, wanted(strategies=("fifo",))[:1], "paper", None, "spark://host:7077", None)
