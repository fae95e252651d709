"""What a subscription selects, told naively: by the levels of a topic, and by a function for each filter.

The filters of scenarios have no such function; see `holds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from timebound.core.predicate.predicate import Attributes, parse
from timebound.sim.deployment.history import AskedSubscription, SentMessage, payload_of

# The content filters that simulated clients use, with their meaning.
WHERE: Final[dict[str, Callable[[SentMessage], bool]]] = {
    "kind = 'red'": lambda sent: sent.kind == "red",
    "kind <> 'red'": lambda sent: sent.kind not in ("", "red"),
    "level > 50": lambda sent: not sent.is_empty and sent.level > 50,
    "level BETWEEN 20 AND 60 OR kind = 'blue'": lambda sent: (
        (not sent.is_empty and 20 <= sent.level <= 60) or sent.kind == "blue"
    ),
}


def share_of(topic_filter: str) -> tuple[str, str]:
    """Return the group of a shared filter, or an empty one, and the filter itself."""
    if not topic_filter.startswith("$share/"):
        return "", topic_filter
    _, group, rest = topic_filter.split("/", 2)
    return group, rest


def covers(topic_filter: str, topic: str) -> bool:
    """Whether a topic filter selects a topic (MQTT 5, 4.7)."""
    wanted, levels = share_of(topic_filter)[1].split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("#", "+"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


def selects(one: AskedSubscription, sent: SentMessage) -> bool:
    """Whether a subscription asks for a message."""
    if one.no_local and one.client == sent.client:
        return False
    where = one.terms.get("where", "")
    return covers(one.topic_filter, sent.topic) and (not where or holds(where, sent))


def holds(where: str, sent: SentMessage) -> bool:
    """Whether a content filter selects a message.

    Of a scenario's filters only the broker knows the meaning; they are asked one by one, without its index.
    """
    known = WHERE.get(where)
    if known is not None:
        return known(sent)
    payload = b"" if sent.is_empty else payload_of(sent.number, sent.level, 0)
    return parse(where).matches(Attributes(sent.properties, payload, sent.topic))


def is_plain(one: AskedSubscription) -> bool:
    """Whether messages are delivered one by one, and to this client alone."""
    return not share_of(one.topic_filter)[0] and "correlate" not in one.terms
