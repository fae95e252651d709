"""The runs of figures 5 to 9: which they are, that equal ones run once, and wrong names."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from timebound.sim.papers.paper004.grid import COMPARED, PathJob, jobs, open_runs, row_of, run_all, run_job


def test_figures_have_their_runs() -> None:
    assert [one.types for one in jobs(figures=(5,), networks=("single",))] == [1, 2, 4, 8, 16, 32]
    assert [one.replicas for one in jobs(figures=(7,), networks=("multi",))] == list(range(1, 9))
    compared = jobs(figures=(9,), networks=("single",), seeds=(3, 4))
    assert [(one.finder, one.replicas) for one in compared[::2]] == list(COMPARED)
    assert {one.seed for one in compared} == {3, 4}
    assert len(jobs()) == 2 * (6 + 3 * 8 + 5)
    assert {one.finder for one in jobs(finders=("fns", "fr"))} == {"fns", "fr"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"figures": (4,)}, "no figure 4; choose from 5, 6"),
        ({"finders": ("best",)}, "no finder 'best'; choose from indiqos"),
        ({"networks": ("flat",)}, "no network 'flat'; choose from single, multi"),
        ({"reading": "x"}, "reading 'x' is unknown"),
        ({"figures": (5,), "finders": ("fns",)}, "figure 9 has all finders"),
    ],
)
def test_a_wrong_name_is_named_with_the_right_ones(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        jobs(**wrong)  # type: ignore[arg-type]  # any of them


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_come_in_the_order_of_jobs(workers: int) -> None:
    wanted = [one for one in jobs(figures=(6, 8), networks=("single",), seeds=(1, 2)) if one.replicas <= 2]

    rows = list(run_all(wanted, workers))

    keys = [(row.figure, row.replicas, row.seed) for row in rows]
    assert keys == [(job.figure, job.replicas, job.seed) for job in wanted]
    assert [row.accepted for row in rows[:4]] == [row.accepted for row in rows[4:]], "the same runs"


def test_a_sweep_gets_the_same_as_a_process() -> None:
    job = PathJob(9, "fns", 1, 2, "single", 1)

    values = asdict(job) | open_runs(b"")(asdict(job)) | {"error": "", "run": 0}

    assert row_of(values) == run_job(job)
