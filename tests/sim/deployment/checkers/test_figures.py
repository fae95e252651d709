"""The checker of figures notices an outcome that the trace or the account lacks."""

from __future__ import annotations

from tests.sim.deployment.plans import calm, judge

from timebound.sim.deployment.checkers.figures import FiguresEqualTrace


def test_figures_and_trace_agree_until_one_of_them_is_changed() -> None:
    deployment = calm(FiguresEqualTrace())
    assert judge(deployment, FiguresEqualTrace()) == []

    lost = deployment.history.outcomes.pop()
    count = deployment.nodes["n1"].broker.account.in_time

    assert lost.outcome == "in_time"
    assert judge(deployment, FiguresEqualTrace()) == [f"n1: {count} are in_time, the trace has {count - 1}"]
