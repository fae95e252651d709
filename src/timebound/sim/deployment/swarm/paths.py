"""Rare paths: what must have happened somewhere in a list of seeds, or the list shows little.

Some are counted when they happen (`History.count`); the others are read from the arrivals and outcomes.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from timebound.records import Outcome, Reason
from timebound.sim.deployment.deployment import PROBE, Deployment
from timebound.sim.deployment.history import History

EARLY: Final = f"dropped: {Reason.HOPELESS.value}"
PATHS: Final = (
    "resend",
    "publisher resends",
    "QoS 2 message told apart by its packet id",
    "second copy dropped",
    "copy sent again over another link",
    "message parked for a broker out of reach",
    "take-over",
    EARLY,
    *(
        f"dropped: {reason.value}"
        for reason in Reason
        if reason
        not in (
            # Refusals before matching, and errors of the broker, are no drops.
            Reason.HOPELESS,
            Reason.QUOTA,
            Reason.NOT_ADMITTED,
            Reason.REFUSED,
            Reason.FAULT,
            Reason.MALFORMED,
        )
    ),
    "late",
    "subscription ended by new rules",
    "refused connect",
    "refused subscribe",
    "refused publish",
    "publisher slowed",
    "shared redelivery",
    "message with a delay bound",
    "refused admission",
    "refused request",
    "policed excess lowered",
    "policed excess refused",
    "flow of a lost client released",
    "request carried out",
    "neighbour slowed",
    "will",
    "retained replay",
    "sliced replay",
    "correlation",
    "watchdog",
    "tick",
    "notice of a missed message",
    "keep alive timed out",
    "silent link given up",
    "restart with queued messages",
    "restart with another clock",
    "crash before a commit",
    "commit after a failure",
    "link cut with copies in flight",
)


def count_paths(deployment: Deployment) -> Counter[str]:
    """Return how often each path was taken in a run that is over."""
    history = deployment.history
    counts: Counter[str] = Counter(history.counts)
    _count_arrivals(history, counts)
    _count_shared(history, counts)
    counts["late"] += sum(one.outcome == Outcome.LATE.value for one in history.outcomes)
    return counts


def _count_arrivals(history: History, counts: Counter[str]) -> None:
    topics = {
        "$timebound/watchdog": "watchdog",
        "$timebound/every": "tick",
        "$timebound/missed": "notice of a missed message",
    }
    for arrival in history.arrivals:
        if arrival.client.startswith(PROBE):
            continue
        sent = history.messages.get(arrival.number)
        own = topics.get("/".join(arrival.topic.split("/")[:2]))
        if own is not None:
            counts[own] += 1
        counts["will"] += sent is not None and sent.is_will
        counts["correlation"] += bool(arrival.group)
        counts["retained replay"] += arrival.retain


def _count_shared(history: History, counts: Counter[str]) -> None:
    """Count copies that a member of a shared group got after another had left them."""
    correlated = {one.topic_filter for one in history.subscriptions if "correlate" in one.terms}
    for outcome in history.outcomes:
        sent = history.messages.get(outcome.number)
        topic_filter = outcome.topic_filter
        if sent is None or not topic_filter.startswith("$share/") or topic_filter in correlated:
            continue
        # In the life in which it was published, a copy is queued at that time, or it was another's before.
        lives = [(node, life) for node, life, _ in sent.taken]
        counts["shared redelivery"] += (outcome.node, outcome.life) in lives and outcome.queued_late_ns > 0
