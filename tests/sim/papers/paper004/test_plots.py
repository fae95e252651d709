"""A picture for every figure that was run."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.sim.papers.paper004.grid import jobs, run_all
from timebound.sim.papers.paper004.plots import plot
from timebound.sim.papers.paper004.summary import points

pytest.importorskip("matplotlib")


def test_every_figure_that_was_run_is_drawn(tmp_path: Path) -> None:
    wanted = [
        one
        for one in jobs(figures=(5, 7, 9), seeds=(1, 2))
        if one.types <= 2 or (one.finder, one.network) == ("indiqos", "single")
    ]
    wanted = [one for one in wanted if one.replicas <= 2 and one.types <= 2] or wanted

    written = plot(points(list(run_all(wanted, 1))), tmp_path / "new")

    assert [path.name for path in written] == ["paper004-figure5.png", "paper004-figure7.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
