"""No acknowledged message with QoS 1 or 2 is lost.

If its publisher saw PUBACK or PUBREC without an error, each subscription that was granted before, with QoS 1
or 2, gets the message, or some broker's trace says why not, with a reason that its terms or the limits allow.
The session must be the client's last one, so that it ends connected, and one that the client can tell from
others: if the answer to a CONNECT was lost, "session present" in the next may mean a new session. Not
promised, and not checked:

* what is between brokers: a message of another broker, if a broker other than the subscriber's crashed after
  it was published (docs/mesh.md: messages are held in memory between brokers);
* subscriptions that other brokers may not know yet: younger than 5 s, or with a fault in the 10 s before;
* to a session that was not connected, a subscription of QoS 0, or a message of QoS 0;
* subscriptions that new access rules have ended;
* correlations, whose parts are delivered together or not at all;
* a run that is not settled, if something still waits or is impaired at its end; and what it drops between
  brokers while a link is away.

Shared subscriptions are checked as groups, in `shared.py`.
"""

from __future__ import annotations

from timebound.records import Outcome, Reason
from timebound.sim.deployment.checkers.oracle import is_plain, selects
from timebound.sim.deployment.checkers.rights import was_forbidden
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.history import ERROR_MIN, AskedSubscription, SentMessage
from timebound.units import SECOND

KNOWN_NS = 5 * SECOND
SMALL_QUEUE = 1_000  # messages that a client of a short run may be owed
# Strategies that give up no older message with a time limit for one of its flow that is worth more.
IN_ORDER = frozenset({"fifo", "fixed", "remaining-lifetime"})
CALM_NS = 10 * SECOND


class Losses(Checker):
    """Looks for each promised message at each subscription that selects it."""

    name = "losses"

    def finished(self, deployment: Deployment) -> None:
        if not may_be_checked(deployment):
            return
        history = deployment.history
        arrived = {(one.client, one.run, one.number) for one in history.arrivals}
        reasons: dict[tuple[str, int], list[str]] = {}
        for outcome in history.outcomes:
            if outcome.outcome == Outcome.DROPPED.value:
                reasons.setdefault((outcome.client, outcome.number), []).append(outcome.reason)
        checked = 0
        for sent in history.messages.values():
            if not is_promised(sent):
                continue
            for one in history.subscriptions:
                if not is_plain(one) or not is_owed(deployment, sent, one):
                    continue
                checked += 1
                if (one.client, one.run, sent.number) in arrived:
                    continue
                found = reasons.get((one.client, sent.number), [])
                if not any(is_allowed(deployment, reason, sent, one) for reason in found):
                    why = ", ".join(found) or "without a record"
                    deployment.fail(
                        self.name,
                        f"{one.client} never got {sent.number} of {sent.client} on {sent.topic!r}"
                        f" by {one.topic_filter!r} ({why})",
                    )
        history.counts["promises checked"] += checked


def may_be_checked(deployment: Deployment) -> bool:
    """Whether everything that was promised must have arrived."""
    return deployment.plan.is_settled or deployment.is_at_rest()


def is_promised(sent: SentMessage) -> bool:
    """Whether the publisher of a message may rely on it."""
    # MQTT 3.1.1 cannot refuse: what is not allowed is acknowledged, and never taken.
    return sent.qos > 0 and sent.is_promised() and len(sent.taken) > 0


def is_owed(deployment: Deployment, sent: SentMessage, one: AskedSubscription) -> bool:
    """Whether a promised message is owed to a subscription, by all that its client can know."""
    history = deployment.history
    if not one.is_granted() or one.code == 0 or not selects(one, sent):
        return False
    if sent.is_empty and deployment.clients[one.client].setting.version != 5:
        return False  # nothing in the packet tells which one it is
    if (one.client, one.run) in history.unsure:
        return False
    if one.run != history.runs.get(one.client) or one.granted_ns >= sent.sent_ns:
        return False
    if _may_have_ended(deployment, sent, one):
        return False
    origins = {node for node, _, _ in sent.taken}
    if origins == {one.node}:
        return True
    if sent.sent_ns - one.granted_ns < KNOWN_NS:
        return False
    if any(sent.sent_ns - CALM_NS <= time_ns <= sent.sent_ns for time_ns in history.faults):
        return False
    return not any(name != one.node and time_ns >= sent.sent_ns for time_ns, name in history.crashes)


def _may_have_ended(deployment: Deployment, sent: SentMessage, one: AskedSubscription) -> bool:
    """Whether a subscription was ended or replaced, perhaps by a SUBSCRIBE that was never answered."""
    if was_forbidden(deployment, one.node, one.client, one.topic_filter, one.asked_ns):
        return True
    history = deployment.history
    is_timed = "watchdog" in one.terms or "every" in one.terms
    if is_timed and {node for node, _, _ in sent.taken} != {one.node}:
        return True  # those end in the quiet time, and a message may be under way until then
    last_ns = max((time_ns for _, _, time_ns in sent.taken), default=0)
    if one.ended_ns >= 0 and (one.ended_ns < history.quiet_ns or one.ended_ns < last_ns + SECOND):
        return True
    return any(
        other.code < ERROR_MIN and other.asked_ns >= one.asked_ns and other is not one
        for other in history.subscriptions
        if (other.client, other.run, other.topic_filter, other.terms.get("name", ""))
        == (one.client, one.run, one.topic_filter, one.terms.get("name", ""))
    )


def _is_in_order(deployment: Deployment, node: str) -> bool:
    """Whether neither the sessions of a broker nor any link between brokers give messages up."""
    strategies = {one.strategy for config in deployment.plan.configs for one in config.neighbours}
    strategies.add(deployment.nodes[node].config.listeners[0].strategy)
    return strategies <= IN_ORDER


def is_allowed(deployment: Deployment, reason: str, sent: SentMessage, one: AskedSubscription) -> bool:
    """Whether a reason fits what was asked for, and what the configuration limits."""
    session = [
        other for other in deployment.history.subscriptions_of(one.client, one.run) if selects(other, sent)
    ]
    is_timed = (
        sent.timeout_ns > 0 or sent.expiry_s >= 0 or any("deadline" in other.terms for other in session)
    )
    limits = deployment.nodes[one.node].limits
    if reason in (Reason.TIMED_OUT.value, Reason.HOPELESS.value):
        return is_timed
    if reason == Reason.EXPIRED.value:
        return sent.expiry_s >= 0
    if reason == Reason.REPLACED.value:
        if any("keep" in other.terms for other in session):
            return True
        # Without a limit nothing is given up for a newer message, at the session or on a link.
        is_limited = sent.timeout_ns > 0 or sent.expiry_s >= 0 or "deadline" in one.terms
        return is_limited and not _is_in_order(deployment, one.node)
    if reason == Reason.QUEUE_FULL.value:
        # Ticks and alarms fill a small queue as messages do.
        return limits.queue_messages_per_client_max <= SMALL_QUEUE or is_timed
    if reason == Reason.TOO_LARGE.value:
        return deployment.clients[one.client].setting.packet_size_max > 0
    if reason == Reason.DISCONNECTED.value:
        # Only where a link may have been away for longer than `[mesh] grace`.
        is_remote = {node for node, _, _ in sent.taken} != {one.node}
        return is_remote and not deployment.plan.is_settled and len(deployment.history.faults) > 0
    if reason == Reason.NOT_AUTHORIZED.value:
        return was_forbidden(deployment, one.node, one.client, sent.topic, sent.sent_ns)
    return False
