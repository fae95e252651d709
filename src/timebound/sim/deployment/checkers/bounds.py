"""No message of an admitted flow within its contract waits longer than the delay bound it was promised.

The wait runs from when the broker read the message to the end of its last quantum. The bound is the one that
counted when the message was policed. Not promised, and not checked (docs/bounds.md):

* excess, and what is behind excess in its queue;
* a message that could not be queued at once because of its own client: the client's queues were full, or had
  to be served first after a change of weights, or an earlier SUBSCRIBE or request was not done.
"""

from __future__ import annotations

from timebound.core.values.message import Message
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.history import number_in
from timebound.sim.deployment.node import SimNode
from timebound.units import format_duration


class Bounds(Checker):
    """Compares the wait of each promised message with its promise."""

    name = "bounds"

    def served(
        self, deployment: Deployment, node: SimNode, message: Message, wait_ns: int, is_covered: bool
    ) -> None:
        if not is_covered:
            return
        deployment.count("message with a delay bound")
        if wait_ns > message.promised_ns:
            number = number_in(message.payload, message.user_properties)
            deployment.fail(
                self.name,
                f"message {number} of {message.publisher} on {message.topic!r} waited "
                f"{format_duration(wait_ns)} at {node.name}, promised {format_duration(message.promised_ns)}",
            )
