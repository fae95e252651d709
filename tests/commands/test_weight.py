"""`timebound weight`: set, remove and list weights of topics, at a running broker."""

from __future__ import annotations

import json

import pytest
import typer
from tests.commands.shell import Run
from tests.conftest import BrokerProcess

from timebound.commands.weight import app


def test_weights_are_set_listed_and_removed(run: Run, controlled: BrokerProcess) -> None:
    port = str(controlled.port)

    assert run("weight", "set", "noise/#", "2", "--port", port).stdout == b"noise/#: 2\n"
    listed = run("weight", "list", "--json", "--port", port)
    shown = run("weight", "list", "--port", port)
    assert run("weight", "remove", "noise/#", "--port", port).stdout == b"noise/#: removed\n"

    assert {row["topic"]: row["weight"] for row in json.loads(listed.stdout)} == {
        "#": 1,
        "alarm/#": 4,
        "noise/#": 2,
    }
    assert [line.split() for line in shown.stdout.decode().splitlines()][:2] == [
        ["topics", "weight", "share"],
        ["#", "1", "14.3%"],
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("remove", "no/such"), "'no/such'"),
        (("remove", "#"), "set another one"),
        (("set", "a/#/b", "2"), "'#' before its last level"),
    ],
)
def test_what_the_broker_refuses_is_a_failure_with_its_reason(
    run: Run, controlled: BrokerProcess, words: tuple[str, ...], said: str
) -> None:
    done = run("weight", *words, "--port", str(controlled.port))

    assert (done.returncode, done.stdout) == (1, b"")
    assert said in done.said


@pytest.mark.parametrize("weight", ["0", "1024", "heavy"])
def test_a_weight_out_of_range_reaches_no_broker(run: Run, weight: str) -> None:
    done = run("weight", "set", "a", weight, "--port", "1")

    assert done.returncode == 2
    assert "cannot be reached" not in done.said


def test_every_way_to_use_it_has_an_example() -> None:
    command = typer.main.get_command(app)

    assert sorted(command.commands) == ["list", "remove", "set"]  # type: ignore[attr-defined]  # a group
    for name, one in command.commands.items():  # type: ignore[attr-defined]
        assert f"timebound weight {name}" in one.epilog
