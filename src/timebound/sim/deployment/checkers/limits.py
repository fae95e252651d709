"""No limit is exceeded: of the configuration, and of what each client announced."""

from __future__ import annotations

from timebound.core.sessions.owed import SPARE_PART
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.node import SimNode


class LimitsKept(Checker):
    """The broker's limits once a second; the clients' by the clients themselves, with every packet."""

    name = "limits"

    def patrolled(self, deployment: Deployment, node: SimNode) -> None:
        limits, broker = node.limits, node.broker
        figures = broker.statistics()
        at_most = {
            "sessions": (figures.sessions, limits.sessions_max),
            "connections": (node.connected(), limits.connections_max),
            "retained messages": (figures.retained_messages, limits.retained_messages_max),
            "retained bytes": (figures.retained_bytes, limits.retained_bytes_max),
            "bytes queued": (figures.queued_bytes, limits.queue_bytes_total_max),
        }
        for client_id in deployment.clients:
            session = broker.session(client_id)
            if session is None:
                continue
            queue_max = limits.queue_messages_per_client_max
            # QoS 0 passes copies that wait for acknowledgements, within a part of the limit. Where copies
            # compete, or did so before, the newest may wait beside them.
            spare = queue_max // SPARE_PART + 1
            at_most[f"messages of {client_id}"] = session.queued_messages(), queue_max + spare
            at_most[f"in flight to {client_id}"] = len(session.inflight), limits.outgoing_inflight_max
            count = len(session.subscriptions)
            at_most[f"subscriptions of {client_id}"] = count, limits.subscriptions_per_client_max
        for what, (value, limit) in at_most.items():
            if value > limit:
                deployment.fail(self.name, f"{node.name} has {value} {what}, at most {limit} are allowed")

    def finished(self, deployment: Deployment) -> None:
        for client in deployment.clients.values():
            for text in client.violations:
                deployment.fail(self.name, f"the broker of {client.setting.name} {text}")
