"""The figures as pictures, drawn with matplotlib itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from timebound.sim.papers.grid import GridRow
from timebound.sim.papers.plots import plot
from timebound.sim.papers.published import summarise

pytest.importorskip("matplotlib")
PNG = b"\x89PNG\r\n"


def row(strategy: str, seed: int, earning: float, traffic: int = 100) -> GridRow:
    return GridRow(
        "002", 5, "ssd", 15.0, strategy, -1.0, seed, "literal", 0.5, earning, traffic, 10, 5, 1, 0.1
    )


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a PNG file in pixels."""
    head = path.read_bytes()[:24]
    assert head.startswith(PNG)
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def test_a_figure_with_two_measures_has_two_panels(tmp_path: Path) -> None:
    rows = [row("eb", 1, 10.0), row("eb", 2, 14.0), row("fifo", 1, 3.0)]

    [path] = plot(summarise(rows), tmp_path)

    assert path == tmp_path / "paper002-figure5-ssd.png"
    assert size_of(path) == (1_008, 396)


def test_every_figure_becomes_a_file_in_a_folder_made_for_it(tmp_path: Path) -> None:
    lines = [replace(row("eb", 1, 10.0), rate=rate) for rate in (5.0, 15.0)]
    swept = [replace(row("ebpc", 1, 10.0), figure=4, rate=10.0, weight=weight) for weight in (0.0, 1.0)]
    level = replace(row("eb", 1, 9.0), figure=4, rate=10.0)

    paths = plot(summarise([*lines, *swept, level]), tmp_path / "new" / "figures")

    assert [path.name for path in paths] == ["paper002-figure4-ssd.png", "paper002-figure5-ssd.png"]
    assert size_of(paths[0]) == (504, 396)  # one measure, one panel


def test_more_rows_change_the_picture(tmp_path: Path) -> None:
    lines = [replace(row("eb", 1, 10.0), rate=rate) for rate in (5.0, 15.0)]
    more = [*lines, replace(row("eb", 2, 30.0), rate=15.0)]

    [plain] = plot(summarise(lines), tmp_path / "plain")
    [spread] = plot(summarise(more), tmp_path / "spread")

    assert plain.read_bytes() != spread.read_bytes()


def test_nothing_to_draw_gives_no_file(tmp_path: Path) -> None:
    assert plot([], tmp_path) == []
