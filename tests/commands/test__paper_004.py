"""`timebound sim paper 004`: tables, rows, pictures, and refusals of what has no meaning there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from tests.commands.shell import Run

from timebound.commands._paper_004 import path_jobs

QUICK = ("sim", "paper", "004", "--workers", "1", "--network", "single")


def test_rows_have_all_that_a_sweep_needs(run: Run) -> None:
    done = run(*QUICK, "--figure", "6", "--seeds", "1", "--json")

    rows = json.loads(done.stdout)
    assert [row["replicas"] for row in rows] == list(range(1, 9))
    assert set(rows[0]) == {
        *("figure", "finder", "replicas", "types", "network", "seed", "reading", "accepted", "refused"),
        *("utilisation", "latency_ms", "messages_per_accepted", "messages_all_per_accepted"),
    }
    assert rows[7]["utilisation"] > rows[0]["utilisation"]


def test_the_comparison_is_a_table_and_a_picture(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run(
        *QUICK,
        "--figure",
        "9",
        "--finder",
        "crankback,fns",
        "--seeds",
        "1,2",
        "--reading",
        "offered",
        "--plot",
        tmp_path,
    )

    assert done.returncode == 0
    assert b"crankback against others" in done.stdout
    assert (tmp_path / "paper004-figure9.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("004", "--finder", "best"), "no finder 'best'"),
        (("004", "--figure", "4"), "no figure 4"),
        (("004", "--reading", "x"), "reading 'x' is unknown"),
        (("004", "--rates", "5"), "has no meaning for paper 004"),
        (("004", "--out", "x"), "has no meaning for paper 004"),
        (("002", "--finder", "fns"), "it is for 004"),
        (("000", "--minutes", "5"), "it is for 001, 002"),
        (("003",), "choose from 000, 001, 002, 004"),
    ],
)
def test_what_has_no_meaning_is_refused(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run("sim", "paper", *words)

    assert done.returncode == 2
    assert said in " ".join(done.stderr.decode().replace("│", " ").split())


def test_runs_are_listed_or_refused() -> None:
    assert len(path_jobs((9,), ("fns",), ("single",), (1, 2), "literal")) == 2
    with pytest.raises(typer.BadParameter, match="each direction of a link"):
        path_jobs((), ("crankback",), (), (1,), "shared-directions")
