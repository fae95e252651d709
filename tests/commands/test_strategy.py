"""`timebound strategy`: every strategy with its users, and how to change one, at a running broker."""

from __future__ import annotations

import json

import pytest
from tests.commands.shell import Run
from tests.conftest import BrokerProcess

from timebound.commands.strategy import _shown, _users_of
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGIES


def test_a_strategy_is_set_for_one_listener_and_said_so(run: Run, controlled: BrokerProcess) -> None:
    words = ("strategy", "set", "ebpc", "--mix", "60", "--listener", "field", "--port", str(controlled.port))

    done = run(*words)

    assert (done.returncode, done.stdout) == (0, b"field: ebpc 60\n"), done.stderr
    controlled.wait_logged("listener field: strategy ebpc for 1 sessions")


def test_without_a_listener_all_of_them_change(run: Run, controlled: BrokerProcess) -> None:
    done = run("strategy", "set", "fifo", "--port", str(controlled.port))

    assert (done.returncode, done.stdout) == (0, b"all listeners: fifo\n")
    rows = json.loads(run("strategy", "list", "--json", "--port", str(controlled.port)).stdout)
    assert {row["name"]: row["used_by"] for row in rows if row["used_by"]} == {
        "fifo": ["field", "office", "hill"]
    }


def test_a_strategy_that_is_unknown_is_answered_with_those_there_are(
    run: Run, controlled: BrokerProcess
) -> None:
    done = run("strategy", "set", "best", "--port", str(controlled.port))

    assert done.returncode == 1
    assert "choose one of fifo" in done.said


def test_every_strategy_is_listed_with_those_who_use_it(run: Run, controlled: BrokerProcess) -> None:
    port = str(controlled.port)
    for words in (("ebpc", "--mix", "60", "--listener", "field"), ("worth", "--listener", "office")):
        assert run("strategy", "set", *words, "--port", port).returncode == 0
    assert run("strategy", "set", "worth", "--listener", "hill", "--port", port).returncode == 0

    done = run("strategy", "list", "--json", "--port", port)
    shown = run("strategy", "list", "--port", port)

    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == list(STRATEGIES)
    assert [row["name"] for row in rows if row["default"]] == [DEFAULT_STRATEGY]
    used = {row["name"]: row["used_by"] for row in rows if row["used_by"]}
    assert used == {"ebpc": ["field (mix 60 %)"], "worth": ["office", "hill"]}
    assert b"office, hill" in shown.stdout
    assert done.stderr == shown.stderr == b""


def test_without_a_broker_strategies_are_listed_and_their_users_unknown(run: Run) -> None:
    done = run("strategy", "list", "--json", "--port", "1")

    assert done.returncode == 0
    assert done.said.startswith("note: the strategies in use are unknown: 127.0.0.1:1 cannot be reached (")
    assert {row["used_by"] for row in json.loads(done.stdout)} == {None}


@pytest.mark.parametrize("mix", ["-1", "101", "half"])
def test_a_mix_is_a_percentage(run: Run, mix: str) -> None:
    done = run("strategy", "set", "ebpc", "--mix", mix, "--port", "1")

    assert done.returncode == 2
    assert "--mix" in done.said


def test_users_of_a_strategy_are_named_with_the_mix_that_was_set() -> None:
    in_use = {"field": "ebpc 60", "office": "ebpc", "hill": "eb"}

    assert _users_of("ebpc", in_use) == ["field (mix 60 %)", "office"]
    assert _users_of("eb", in_use) == ["hill"]
    assert _users_of("fifo", in_use) == []


def test_the_default_and_mixes_are_marked_in_the_meaning() -> None:
    assert _shown(STRATEGIES[DEFAULT_STRATEGY]).startswith("the default: ")
    mixing = [kind for kind in STRATEGIES.values() if kind.takes_mix]
    assert mixing
    assert all(_shown(kind).endswith(" % if not set)") for kind in mixing)
