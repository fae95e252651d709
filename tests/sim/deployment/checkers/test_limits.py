"""The checker of limits notices what is above one, and what clients complain about."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.deployment.plans import calm, judge

from timebound.sim.deployment.checkers.limits import LimitsKept


def test_limit_is_exceeded_only_above_it() -> None:
    deployment = calm(LimitsKept())
    node = deployment.nodes["n1"]
    LimitsKept().patrolled(deployment, node)
    assert deployment.failures == []

    node.limits = replace(node.limits, sessions_max=1)
    LimitsKept().patrolled(deployment, node)

    [failure] = deployment.failures
    assert failure.text == "n1 has 3 sessions, at most 1 are allowed"


def test_complaint_of_a_client_is_a_failure() -> None:
    deployment = calm(LimitsKept())

    deployment.clients["s"].violations.append("exceeded the Receive Maximum of 3")

    assert judge(deployment, LimitsKept()) == ["the broker of s exceeded the Receive Maximum of 3"]
