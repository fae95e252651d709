"""Every checker of the folder runs in every deployment."""

from __future__ import annotations

from pathlib import Path

import timebound.sim.deployment.checkers.registry as registry

HELPERS = {"__init__", "oracle", "registry"}


def test_every_checker_is_among_all() -> None:
    folder = Path(registry.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - HELPERS

    assert {checker.name for checker in registry.all_checkers()} == files


def test_checkers_of_two_runs_share_nothing() -> None:
    first, second = registry.all_checkers(), registry.all_checkers()

    assert not {id(one) for one in first} & {id(one) for one in second}
