"""No client gets what the access rules forbid it to read.

The rules that count for an arrival are those that its broker had when the message reached a broker, or when
the client connected, if that was later: what was sent before the rules changed is on its way. Later rules
that allow it count, too: it may have been on its way to this broker, or the client asked for it as retained.
"""

from __future__ import annotations

from timebound.core.values.access import AccessList
from timebound.sim.deployment.deployment import Checker, Deployment

OWN = ("$timebound/", "$SYS/")


class RightsKept(Checker):
    """Of every arrival: whether its topic was allowed."""

    name = "rights"

    def finished(self, deployment: Deployment) -> None:
        history = deployment.history
        for arrival in history.arrivals:
            sent = history.messages.get(arrival.number)
            if sent is None or arrival.topic.startswith(OWN):
                continue
            connected_ns = history.connections.get((arrival.client, arrival.connection), 0)
            taken_ns = min((time_ns for _, _, time_ns in sent.taken), default=sent.sent_ns)
            rules = _rules_between(deployment, arrival.node, max(taken_ns, connected_ns), arrival.time_ns)
            user = user_of(deployment, arrival.client)
            if not any(access.may_subscribe(user, arrival.client, arrival.topic) for access in rules):
                text = f"{arrival.client} ({user}) got {arrival.number}, but may not read {arrival.topic!r}"
                deployment.fail(self.name, text)


def _rules_between(deployment: Deployment, node: str, first_ns: int, last_ns: int) -> list[AccessList]:
    """Return the rules that a broker had at a time, and those that it got until another."""
    later = [
        rules
        for time_ns, name, rules in deployment.history.rules
        if name == node and first_ns < time_ns <= last_ns
    ]
    return [rules_at(deployment, node, first_ns), *later]


def rules_at(deployment: Deployment, node: str, time_ns: int) -> AccessList:
    """Return the rules that a broker had at a time."""
    found = [
        rules for since_ns, name, rules in deployment.history.rules if name == node and since_ns <= time_ns
    ]
    return found[-1] if found else AccessList(list(deployment.nodes[node].config.security.rules))


def user_of(deployment: Deployment, client: str) -> str:
    """Return the user as whom a client is known at its broker."""
    setting = deployment.clients[client].setting
    security = deployment.nodes[setting.node].config.security
    return (security.password_file is not None and setting.user) or security.anonymous_user


def was_forbidden(deployment: Deployment, node: str, client: str, topic_filter: str, since_ns: int) -> bool:
    """Whether a broker got rules since some time that do not allow a client a filter."""
    user = user_of(deployment, client)
    return any(
        not rules.may_subscribe(user, client, topic_filter)
        for time_ns, name, rules in deployment.history.rules
        if name == node and time_ns >= since_ns
    )
