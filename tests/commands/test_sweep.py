"""`timebound sweep`: which runs it makes, what it prints, and wrong calls; Spark itself is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from tests.commands.shell import Run

from timebound.commands import sweep
from timebound.commands.sweep import combinations, describe, read_seeds, show
from timebound.pipeline.sweep.results import read_results
from timebound.pipeline.sweep.sweep import SweepPlan, run_here

SCENARIO = Path(__file__).parents[2] / "scenarios" / "quick.toml"


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are carried out in this process, as on Spark but without its start."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")

    def run_plan(plan: SweepPlan, title: str, *_: Any) -> tuple[pa.Table, float, int]:
        return run_here(plan), 1.5, 2

    monkeypatch.setattr(sweep, "run_plan", run_plan)


@pytest.mark.usefixtures("_here")
def test_every_combination_is_a_row_and_the_results_are_kept(run: Run, tmp_path: Path) -> None:
    vary = ("--vary", "strategy=eb,fifo", "--vary", "minutes=0.2")

    done = run("sweep", SCENARIO, *vary, "--seeds", "2", "--out", tmp_path / "out", "--json")

    rows = json.loads(done.stdout)
    assert [(row["strategy"], row["seed"], row["error"]) for row in rows] == [
        ("eb", 1, ""),
        ("eb", 2, ""),
        ("fifo", 1, ""),
        ("fifo", 2, ""),
    ]
    table, info = read_results(tmp_path / "out")
    assert (table.num_rows, info.keys, info.wall_s, info.cores) == (4, ("strategy", "minutes"), 1.5, 2)
    assert f"results: {tmp_path / 'out'}" in done.said


@pytest.mark.usefixtures("_here")
def test_people_get_means_over_seeds(run: Run, tmp_path: Path) -> None:
    done = run("sweep", SCENARIO, "--vary", "minutes=0.2", "--seeds", "1..2", "--out", tmp_path / "out")

    shown = done.stdout.decode()
    assert "mean ± standard deviation over seeds" in shown
    assert "delivery rate" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vary", "rat=1"], "did you mean 'rate'"),
        (["--vary", "rate=9..1"], "empty range"),
        (["--seeds", "none"], "write 20, 5..10 or 1,2,5"),
        (["--seeds", "0"], "has no seeds"),
    ],
)
def test_a_wrong_call_is_explained_without_spark(run: Run, arguments: list[str], message: str) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")

    done = run("sweep", SCENARIO, *arguments)

    assert done.returncode == 2
    assert message in done.said


@pytest.mark.parametrize(
    ("text", "seeds"), [("", (7, 8)), ("3", (1, 2, 3)), ("5..7", (5, 6, 7)), ("2,1,2", (2, 1))]
)
def test_seeds_are_a_number_a_range_or_a_list(text: str, seeds: tuple[int, ...]) -> None:
    assert read_seeds(text, (7, 8)) == seeds


@pytest.mark.parametrize("text", ["0", "9..5", "a,b", "1..2..3"])
def test_what_are_no_seeds_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        read_seeds(text, (1,))


def test_the_last_key_changes_fastest() -> None:
    assert combinations({"a": (1, 2), "b": ("x", "y")}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    assert combinations({}) == [{}]


def test_failures_are_counted_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table(
        {
            "rate": [1.0, 1.0],
            "seed": [1, 2],
            "delivery_rate": [0.5, None],
            "error": ["", "ValueError: no"],
            "cpu_s": [0.25, 0.5],
        }
    )

    info = describe("Sweep", ("rate",), ("delivery_rate",), table, 2.0, 4)
    show(table, info, as_json=False)

    assert (info.runs, info.failed, info.cpu_s) == (2, 1, 0.75)
    captured = capsys.readouterr()
    assert "50.00" in captured.out
    assert "1 of 2 runs failed" in captured.err


def test_help_shows_its_examples(run: Run) -> None:
    assert sweep.EXAMPLES.split("  ")[1].split(" --")[0].encode() in run("sweep", "--help").stdout
