"""The page about a sweep: its lead, its pictures, and every point."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.report.made_results import read, write_sweep

from timebound.pipeline.report.page import render
from timebound.pipeline.report.sweep import is_share, sweep_page, words
from timebound.pipeline.sweep.results import Figure, SweepInfo, write_results


def made(folder: Path, rows: list[dict[str, object]], **more: object) -> str:
    """The text of the page about these runs."""
    table = pa.Table.from_pylist([{"error": "", **row} for row in rows])
    about: dict[str, object] = {
        "title": "made",
        "keys": ("rate",),
        "measures": ("earning",),
        "runs": len(rows),
        "failed": 0,
        "wall_s": 300.0,
        "cpu_s": 8.0,
        "cores": 2,
        **more,
    }
    write_results(folder, table, SweepInfo(**about))  # type: ignore[arg-type]  # by name
    return read(render(sweep_page(folder)))


def test_a_sweep_page_says_what_came_out_and_what_was_published(tmp_path: Path) -> None:
    write_sweep(tmp_path)

    text = read(render(sweep_page(tmp_path)))

    assert "At rate 15, eb delivers 60 % in time, 2 times fifo (30 %)." in text
    assert "Only made." in text
    assert "40.1 %" in text
    assert "80.0 ± 0.0 %" in text
    assert "Failed runs" not in text


def test_failed_runs_are_listed_and_left_out(tmp_path: Path) -> None:
    write_sweep(tmp_path, failed=True)

    text = read(render(sweep_page(tmp_path)))

    assert "1 of 9 runs failed" in text
    assert "ValueError: <no> link" in text
    assert "80.0 ± 0.0 %" in text


def test_without_figures_the_lead_names_the_best_point(tmp_path: Path) -> None:
    text = made(tmp_path, [{"rate": 5.0, "earning": 10.0}, {"rate": 15.0, "earning": 30.0}])

    assert "Best by earning is rate 15: 30" in text
    assert "5.0 min" in text


def test_where_every_run_failed_the_page_says_so(tmp_path: Path) -> None:
    text = made(tmp_path, [{"rate": 5.0, "earning": 0.0, "error": "ValueError: no"}], failed=1)

    assert "No run succeeded" in text
    assert "ValueError: no" in text


def test_a_strategy_without_weight_is_a_level_in_a_figure_over_the_weight(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"strategy": "eb", "weight": -1.0, "earning": 40.0},
        {"strategy": "ebpc", "weight": 0.0, "earning": 10.0},
        {"strategy": "ebpc", "weight": 1.0, "earning": 20.0},
    ]
    figure = Figure("Figure 4", "weight", "weight", ("strategy",), ("earning",))

    text = made(tmp_path, rows, keys=("strategy", "weight"), figures=(figure,))

    assert "At weight 1, eb reaches 40 in earning, 2 times ebpc (20)." in text
    assert "–" in text  # the weight of eb in the table of points


def test_the_spread_over_seeds_is_shown(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"rate": 5.0, "earning": earning} for earning in (10.0, 14.0)]

    assert "12.0 ± 2.8" in made(tmp_path, rows)


@pytest.mark.parametrize(
    ("measure", "shown", "share"),
    [
        ("delivery_rate", "delivered in time", True),
        ("in_time_share", "in time share", True),
        ("earning", "earning", False),
    ],
)
def test_measures_are_named_in_words_and_shares_shown_in_per_cent(
    measure: str, shown: str, share: bool
) -> None:
    assert (words(measure), is_share(measure)) == (shown, share)
