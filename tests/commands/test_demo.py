"""`timebound demo`: one small real run, and calls that end before anything is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tests.commands.shell import Run
from tests.demo.doubles import example_result

from timebound.commands.demo import FILE_WIDTH, _print_outcomes
from timebound.demo import brokers
from timebound.demo.brokers import Contender


@pytest.mark.skipif(brokers.mosquitto_program() is None, reason="mosquitto is not installed")
def test_it_prints_json_and_draws(run: Run, tmp_path: Path) -> None:
    words = ("--seconds", "1", "--load", "0.5", "--strategies", "fifo", "--json", "--plot", tmp_path)

    done = run("demo", "overload", *words)

    assert done.returncode == 0, done.stderr
    labels = [row["broker"] for row in json.loads(done.stdout)["runs"]]
    assert labels == ["timebound fifo", Contender("mosquitto", "").label]
    assert (tmp_path / "overload.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("overload", "--rate", "fast"), "'fast' is not a rate"),
        (("overload", "--load", "0"), "must be above 0"),
        (("overload", "--buffer", "1h"), "buffer"),
        (("overload", "--strategies", "luck"), "'luck'"),
        (("story", "--rate", "1Gbit/s"), "is not a rate"),
        (("story", "--load", "11"), "--load"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_runs(
    run: Run, words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = run("demo", *words)

    assert done.returncode == 2
    assert said in done.said
    assert list(tmp_path.iterdir()) == []


def test_drawing_is_checked_before_anything_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    done = run("demo", "overload", "--seconds", "600", "--plot", ".")

    assert done.returncode == 2
    assert "matplotlib" in done.said


def test_a_table_for_people_fits_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    _print_outcomes([example_result()], Console(stderr=True), as_json=False)

    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert max(map(len, lines)) <= FILE_WIDTH
