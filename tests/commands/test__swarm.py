"""`timebound sim swarm`: seeds that pass, one that fails, for people and programs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from timebound.commands import _swarm
from timebound.commands.sim import app
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.swarm import run as swarm
from timebound.sim.deployment.swarm.draw import draw_plan
from timebound.sim.deployment.swarm.paths import PATHS


class NoArrivals(Checker):
    """Fails when any client gets anything that a client sent."""

    name = "no arrivals"

    def finished(self, deployment: Deployment) -> None:
        if any(one.number for one in deployment.history.arrivals):
            deployment.fail(self.name, "a message arrived")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "all_checkers", lambda: [NoArrivals()])


def test_seeds_without_failures_end_with_0_and_show_the_rare_paths() -> None:
    result = CliRunner().invoke(app, ["swarm", "--seeds", "1..3"])

    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("3 seeds, 0 failed\n")
    assert all(path.split()[0] in result.stdout for path in PATHS)


def test_json_has_each_seed_with_its_hash_and_the_counts() -> None:
    result = CliRunner().invoke(app, ["swarm", "--seeds", "1,2", "--json"])

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [one["seed"] for one in found["seeds"]] == [1, 2]
    assert found["seeds"][0]["digest"] == swarm.run_plan(draw_plan(1)).digest
    assert found["paths"].keys() == set(PATHS)


@pytest.mark.usefixtures("failing")
def test_failing_seed_is_printed_and_shrunk_to_a_script_that_fails_again() -> None:
    result = CliRunner().invoke(app, ["swarm", "--seeds", "1..2", "--json"])

    assert result.exit_code == 1, result.output
    first = json.loads(result.stdout)["seeds"][0]
    assert first["failures"][0].endswith("a message arrived")
    assert 2 <= len(first["script"]) <= 6
    places = ",".join(str(one["place"]) for one in first["script"])
    again = CliRunner().invoke(app, ["swarm", "--seeds", str(first["seed"]), "--keep", places])
    assert again.exit_code == 1
    assert f"seed {first['seed']}: no arrivals at" in again.stdout
    assert "1 seeds, 1 failed" in again.stdout


@pytest.mark.usefixtures("failing")
def test_people_see_how_to_run_it_again() -> None:
    result = CliRunner().invoke(app, ["swarm", "--seeds", "1"])

    assert result.exit_code == 1
    assert "again, with the actions that matter: --seeds 1 --keep " in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1", "--keep", "0,99999"], "not 99999"),
        (["--seeds", "1", "--keep=-1"], "not -1"),
        (["--seeds", "1,2", "--keep", "0"], "needs one seed"),
    ],
)
def test_places_that_the_script_of_one_seed_does_not_have_are_a_wrong_call(
    words: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["swarm", *words])

    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.replace("│", " ").split())


def test_order_and_repetition_of_kept_places_do_not_matter() -> None:
    digests = set()
    for keep in ("0,5,8", "8,5,0,5"):
        result = CliRunner().invoke(app, ["swarm", "--seeds", "322", "--keep", keep, "--json"])
        assert result.exit_code == 0, result.output
        digests.add(json.loads(result.stdout)["seeds"][0]["digest"])

    assert len(digests) == 1


def test_wrong_seeds_are_a_wrong_call() -> None:
    assert CliRunner().invoke(app, ["swarm", "--seeds", "many"]).exit_code == 2
    assert _swarm.run_swarm.__doc__
