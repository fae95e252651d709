"""No delivery that was never published: each is of a message that was sent, and that was asked for.

Of a session whose CONNECT was not answered, a client does not know whether it is the one before, with what
that had asked for; then only the message itself is checked.
"""

from __future__ import annotations

from timebound.sim.deployment.checkers.oracle import covers, selects
from timebound.sim.deployment.deployment import PROBE, Checker, Deployment
from timebound.sim.deployment.history import Received

OWN = ("$timebound/", "$SYS/")


class Phantoms(Checker):
    """Of every arrival: its message, its topic, and a subscription that selects it."""

    name = "phantoms"

    def finished(self, deployment: Deployment) -> None:
        for arrival in deployment.history.arrivals:
            fault = self._fault(deployment, arrival)
            if fault:
                deployment.fail(
                    self.name, f"{arrival.client} got {arrival.number or arrival.topic!r}: {fault}"
                )

    def _fault(self, deployment: Deployment, arrival: Received) -> str:
        if arrival.topic.startswith(OWN):
            return ""
        sent = deployment.history.messages.get(arrival.number)
        if sent is None:
            return "nobody published it"
        if sent.topic != arrival.topic:
            return f"it was published on {sent.topic!r}, not {arrival.topic!r}"
        if arrival.time_ns < sent.sent_ns:
            return "it came before it was published"
        is_unsure = (arrival.client, arrival.run) in deployment.history.unsure
        if arrival.client.startswith(PROBE) or is_unsure:
            return ""
        # A copy that was queued is delivered although its subscription has ended since. A part of a
        # correlation may come by one of the parts' filters, which lie within that of the subscription.
        session = deployment.history.subscriptions_of(arrival.client, arrival.run)
        asked = [one for one in session if one.asked_ns <= arrival.time_ns]
        if not any(covers(one.topic_filter, arrival.topic) for one in asked):
            return "no subscription of its session has such a filter"
        if not any(selects(one, sent) for one in asked):
            return "content filter or No Local of its subscriptions exclude it"
        if sent.qos < arrival.qos:
            return f"with QoS {arrival.qos}, published with {sent.qos}"
        return ""
