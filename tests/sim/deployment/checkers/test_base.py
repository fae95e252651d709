"""A checker that looks at nothing finds nothing."""

from __future__ import annotations

from tests.sim.deployment.plans import calm, judge

from timebound.sim.deployment.checkers.base import Watching


def test_it_finds_nothing() -> None:
    deployment = calm(Watching())

    assert judge(deployment, Watching()) == []
