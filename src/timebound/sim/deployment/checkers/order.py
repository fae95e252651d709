"""Messages of one publisher and topic, with equal QoS and limits, arrive in the order of sending.

Limits are those of the message, and the deadlines of all subscriptions of the session that select it; where
one of these is ordered, its messages are one flow whatever else selects them.

Counted is the first arrival of each: what is sent again for want of an acknowledgement came before. Not
promised, and not checked:

* between brokers, where there is more than one path, or a link or broker failed since the first of both was
  sent: what was on it takes its place in another queue (docs/mesh.md);
* a message on whose way a subscription that selects it began or ended, as its limits are not known then;
* a message that its publisher sent again, of which an earlier copy may have been dropped or refused;
* between subscriptions of a session of which one has a timer: each has copies of its own;
* replays of retained messages, parts of correlations, and shared subscriptions, whose copies go to another
  member when one leaves.
"""

from __future__ import annotations

from timebound.sim.deployment.checkers.oracle import is_plain, selects
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.history import ERROR_MIN, AskedSubscription, Received, SentMessage


class Order(Checker):
    """Compares the numbers of arrivals within each flow and session."""

    name = "order"

    def finished(self, deployment: Deployment) -> None:
        history = deployment.history
        plan = deployment.plan
        is_tree = len(plan.links) < len(plan.configs)
        latest: dict[tuple[object, ...], SentMessage] = {}
        seen: set[tuple[str, int, int]] = set()  # only asked, never iterated
        for arrival in history.arrivals:
            sent = history.messages.get(arrival.number)
            if sent is None or (arrival.client, arrival.run, arrival.number) in seen:
                continue
            seen.add((arrival.client, arrival.run, arrival.number))
            selecting = [
                one
                for one in history.subscriptions_of(arrival.client, arrival.run)
                if one.code < ERROR_MIN
                and one.asked_ns <= arrival.time_ns
                and (one.ended_ns < 0 or one.ended_ns >= sent.sent_ns)
                and selects(one, sent)
            ]
            if self._is_free(sent, arrival, selecting):
                continue
            key = (arrival.client, arrival.run, arrival.qos, *sent.flow(), _limits(selecting))
            before = latest.get(key)
            latest[key] = sent
            if before is None or before.place < sent.place:
                continue
            is_local = {node for node, _, _ in [*sent.taken, *before.taken]} == {arrival.node}
            is_calm = is_tree and not any(time_ns >= sent.sent_ns for time_ns in history.faults)
            if is_local or is_calm:
                deployment.fail(
                    self.name,
                    f"{arrival.client} got {before.number} before {sent.number} on {sent.topic!r}",
                )

    def _is_free(self, sent: SentMessage, arrival: Received, selecting: list[AskedSubscription]) -> bool:
        """Whether an arrival has no place in an order."""
        if arrival.group or sent.is_will or arrival.retain or sent.is_resent:
            return True
        # A subscription with a timer has copies of its own, which need not wait for those of others.
        has_timer = any("watchdog" in one.terms or "every" in one.terms for one in selecting)
        return (has_timer and len(selecting) > 1) or any(
            not is_plain(one)
            or not 0 <= one.granted_ns < sent.sent_ns
            or 0 <= one.ended_ns <= arrival.time_ns
            for one in selecting
        )


def _limits(selecting: list[AskedSubscription]) -> tuple[str, ...]:
    """Return what two messages of a flow have in common, by the subscriptions that select them."""
    ordered = [
        f"{one.topic_filter} {one.terms.get('name', '')}"
        for one in selecting
        if one.terms.get("ordered") == "true"
    ]
    return tuple(sorted(ordered or {one.terms.get("deadline", "") for one in selecting}))
