"""Accounts add up, at every broker and at any time, and all parts of a broker agree with each other."""

from __future__ import annotations

from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.node import SimNode


class Accounts(Checker):
    """Matched = in time + late + dropped + owed; and the broker's own checks of its parts."""

    name = "accounts"

    def patrolled(self, deployment: Deployment, node: SimNode) -> None:
        self._check(deployment, node)

    def life_ended(self, deployment: Deployment, node: SimNode) -> None:
        self._check(deployment, node)

    def _check(self, deployment: Deployment, node: SimNode) -> None:
        try:
            node.broker._check()  # the sums of the account among them
        except AssertionError as error:
            deployment.fail(self.name, f"{node.name}: {error}")

    def finished(self, deployment: Deployment) -> None:
        """Nothing is owed to clients that acknowledge, and nothing is left between brokers."""
        if not deployment.plan.is_settled:
            return
        for node in deployment.nodes.values():
            owed = node.broker.account.outstanding()
            if owed:
                deployment.fail(self.name, f"{node.name} still owes {owed} deliveries after the quiet time")
            if node.mesh is not None and node.mesh.member.forwarder.waiting_messages():
                waiting = node.mesh.member.forwarder.waiting_messages()
                deployment.fail(self.name, f"{waiting} copies still wait for links of {node.name}")
