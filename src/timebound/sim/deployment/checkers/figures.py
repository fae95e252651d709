"""Figures equal the trace: what `$SYS` and metrics tell of outcomes is what the records add up to."""

from __future__ import annotations

from collections import Counter

from timebound.records import Outcome
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.node import SimNode


class FiguresEqualTrace(Checker):
    """At the end of each life of a broker."""

    name = "figures"

    def life_ended(self, deployment: Deployment, node: SimNode) -> None:
        self._check(deployment, node)

    def finished(self, deployment: Deployment) -> None:
        for node in deployment.nodes.values():
            self._check(deployment, node)

    def _check(self, deployment: Deployment, node: SimNode) -> None:
        # A turn that is asked for and has not happened keeps records back.
        for record in node.broker.account.trace.take().records():
            deployment.traced(node, record)
        told: Counter[str] = Counter()
        for one in deployment.history.outcomes:
            if (one.node, one.life) == (node.name, node.life):
                told[one.outcome + one.reason] += 1
        account = node.broker.account
        figures = {Outcome.IN_TIME.value: account.in_time, Outcome.LATE.value: account.late}
        figures |= {Outcome.DROPPED.value + reason: count for reason, count in account.dropped.items()}
        for what, count in figures.items():
            if told[what] != count:
                deployment.fail(self.name, f"{node.name}: {count} are {what}, the trace has {told[what]}")
