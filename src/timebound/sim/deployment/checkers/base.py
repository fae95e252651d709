"""A checker that looks at nothing; each of the others overrides what it looks at."""

from __future__ import annotations

from timebound.core.mesh.message import Copy
from timebound.core.values.message import Message
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.node import SimNode


class Watching:
    """Base of the checkers, with the calls of `Checker`."""

    name = ""

    def taken(self, deployment: Deployment, node: SimNode, message: Message) -> None:
        """Nothing."""

    def copied(self, deployment: Deployment, node: SimNode, copy: Copy) -> None:
        """Nothing."""

    def served(
        self, deployment: Deployment, node: SimNode, message: Message, wait_ns: int, is_covered: bool
    ) -> None:
        """Nothing."""

    def patrolled(self, deployment: Deployment, node: SimNode) -> None:
        """Nothing."""

    def life_ended(self, deployment: Deployment, node: SimNode) -> None:
        """Nothing."""

    def finished(self, deployment: Deployment) -> None:
        """Nothing."""
