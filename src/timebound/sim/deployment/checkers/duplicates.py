"""No QoS 2 message arrives twice at an application.

Not promised, and not checked:

* what a mesh forgets in a crash: a message of another broker, if any broker was restarted after it was
  published (docs/mesh.md: which copies a broker had is in memory);
* a retained message, to a session that asked for its topic after it was published: it is replayed;
* parts of correlations, which may be parts of several;
* sessions of which the client cannot tell whether they are new, since the answer to a CONNECT was lost;
* the wills of a client, one for each of its connections.
"""

from __future__ import annotations

from collections import Counter

from timebound.sim.deployment.checkers.oracle import covers, share_of
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.history import History, Received, SentMessage


class Duplicates(Checker):
    """Counts arrivals of each message in each session."""

    name = "duplicates"

    def finished(self, deployment: Deployment) -> None:
        history = deployment.history
        counts: Counter[tuple[str, int, int]] = Counter()
        last: dict[tuple[str, int, int], Received] = {}
        for arrival in history.arrivals:
            if arrival.qos == 2 and arrival.number and arrival.is_new and not arrival.group:
                key = (arrival.client, arrival.run, arrival.number)
                counts[key] += 1
                last[key] = arrival
        for key, count in counts.items():
            sent = history.messages.get(key[2])
            if sent is None or count <= self._copies(history, sent, last[key]):
                continue
            if not self._is_excused(history, sent, last[key]):
                deployment.fail(self.name, f"{key[0]} got QoS 2 message {key[2]} {count} times")

    def _copies(self, history: History, sent: SentMessage, arrival: Received) -> int:
        """Return how many a session may get: one, and one for each group or subscription with a timer."""
        apart = {
            (one.topic_filter, one.terms.get("name", ""))
            for one in history.subscriptions_of(arrival.client, arrival.run)
            if (share_of(one.topic_filter)[0] or "watchdog" in one.terms or "every" in one.terms)
            and covers(one.topic_filter, sent.topic)
        }
        return 1 + len(apart)

    def _is_excused(self, history: History, sent: SentMessage, arrival: Received) -> bool:
        publisher = (sent.client, sent.run)
        if sent.is_will or publisher in history.unsure or (arrival.client, arrival.run) in history.unsure:
            return True
        session = history.subscriptions_of(arrival.client, arrival.run)
        if any("correlate" in one.terms and covers(one.topic_filter, sent.topic) for one in session):
            return True
        if sent.retain and any(
            covers(one.topic_filter, sent.topic) and (one.granted_ns < 0 or sent.sent_ns <= one.granted_ns)
            for one in session
        ):
            return True
        origins = {node for node, _, _ in sent.taken}
        is_remote = origins != {arrival.node}
        return is_remote and any(time_ns >= sent.sent_ns for time_ns, _ in history.crashes)
