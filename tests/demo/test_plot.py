"""The picture of the overload demo."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib import pyplot
from tests.demo.doubles import example_result

from timebound.demo import plot
from timebound.demo.brokers import Contender, ours
from timebound.demo.overload import OverloadResult
from timebound.demo.plot import draw
from timebound.errors import TimeboundError


@pytest.fixture(scope="module")
def outcome() -> OverloadResult:
    return example_result()


def test_drawing_is_checked_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(TimeboundError, match="matplotlib"):
        plot.check_drawing()


def test_the_picture_is_written(outcome: OverloadResult, tmp_path: Path) -> None:
    path = draw([outcome], tmp_path / "new")

    assert path.read_bytes().startswith(b"\x89PNG")


def test_picture_holds_every_load_and_the_better_strategy_on_top(
    outcome: OverloadResult, tmp_path: Path
) -> None:
    runs = [
        replace(outcome, contender=contender, load=load)
        for load in (2.0, 3.0)
        for contender in (ours("fifo"), ours("worth"), Contender("mosquitto", ""))
    ]

    draw(runs, tmp_path)
    one, two = (pyplot.imread(draw(some, tmp_path)).shape for some in ([outcome], runs))

    assert two[1] > one[1]
    assert two[0] == one[0]
