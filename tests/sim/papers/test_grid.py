"""The papers' figures as grids of runs."""

from __future__ import annotations

import pytest

from timebound.sim.papers.grid import RATES_002, Job, jobs, run_all, run_job


def test_figure_6_compares_four_strategies_over_all_rates() -> None:
    wanted = jobs("002", figures=(6,), seeds=(1, 2))

    assert len(wanted) == len(RATES_002) * 4 * 2
    assert {job.scenario for job in wanted} == {"psd"}


def test_figure_4_sweeps_the_weight_of_ebpc_only() -> None:
    wanted = jobs("002", figures=(4,), scenarios=("ssd",))

    assert sorted({job.weight for job in wanted if job.strategy == "ebpc"})[0] == 0.0
    assert len([job for job in wanted if job.strategy == "ebpc"]) == 11
    assert [job.weight for job in wanted if job.strategy == "eb"] == [-1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"figures": (3,)}, "has no figure 3"),
        ({"strategies": ("luck",)}, "'luck' is unknown"),
        ({"scenarios": ("net",)}, "no scenario 'net'"),
    ],
)
def test_what_a_paper_lacks_is_refused(options: dict[str, tuple[object, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jobs("002", **options)  # type: ignore[arg-type]  # on purpose


def test_ideas_are_added_one_by_one() -> None:
    late = "worth-late"
    names = ("worth", late, f"{late}-epsilon", f"{late}-preference", f"{late}-waits", "timebound")
    settings = [Job("002", 6, "psd", 15.0, name, -1.0, 1).setting() for name in names]

    assert [one.reading.routing for one in settings] == ["tree", *["late"] * 5]
    assert [one.epsilon > 0.01 for one in settings] == [False, False, True, True, True, True]
    assert [one.preference > 0 for one in settings] == [False, False, False, True, True, True]
    assert [one.waiting_share > 0 for one in settings] == [False, False, False, False, True, True]
    assert [one.thrift > 0 for one in settings] == [False, False, False, False, False, True]
    assert Job("002", 6, "psd", 15.0, "timebound-eb", -1.0, 1).setting().strategy == "eb"


def test_runs_in_processes_give_the_same_rows_as_one_by_one() -> None:
    wanted = jobs("002", figures=(6,), rates=(15.0,), strategies=("eb", "timebound"), minutes=1.0)

    spread = [(one.strategy, one.in_time, one.traffic) for one in run_all(wanted, workers=2)]

    assert spread == [(one.strategy, one.in_time, one.traffic) for one in map(run_job, wanted)]
