"""The checker of accounts notices a sum that is wrong, and what is still owed at the end."""

from __future__ import annotations

from tests.sim.deployment.plans import calm, judge

from timebound.sim.deployment.checkers.accounts import Accounts


def test_calm_run_adds_up_and_a_pair_without_an_outcome_does_not() -> None:
    deployment = calm(Accounts())
    node = deployment.nodes["n1"]
    assert judge(deployment, Accounts()) == []

    node.broker.account.matched += 1
    Accounts().patrolled(deployment, node)

    assert [failure.text for failure in deployment.failures] == ["n1: the account and the queues differ"]
    assert judge(deployment, Accounts()) == ["n1 still owes 1 deliveries after the quiet time"]
