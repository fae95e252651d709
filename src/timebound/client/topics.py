"""Topic names and filters as a client needs them: refuse invalid ones early, match incoming topics.

A server may close the connection for an invalid topic, and all other work would fail with it; so
it is refused here, before it is sent.
"""

from __future__ import annotations

from typing import Final

from timebound.wire.encode import encode_topic
from timebound.wire.primitives import encode_string

_SHARE_PREFIX: Final = "$share/"


def check_topic(topic: str, name: str = "topic") -> None:
    """Refuse a topic that cannot be published to (MQTT 5, 4.7.1, 4.7.3)."""
    if not topic:
        raise ValueError(f"{name} is empty")
    if "+" in topic or "#" in topic:
        raise ValueError(f"{name} {topic!r} has a wildcard; wildcards are for filters")
    encode_topic(topic)


def check_filter(topic_filter: str) -> None:
    """Refuse a filter that cannot be subscribed to (MQTT 5, 4.7.1, 4.8.2)."""
    if not topic_filter:
        raise ValueError("topic filter is empty")
    encode_string(topic_filter)
    levels = plain_filter(topic_filter).split("/")
    for number, level in enumerate(levels):
        if "#" in level and (level != "#" or number != len(levels) - 1):
            raise ValueError(f"topic filter {topic_filter!r} has '#' that is not alone in its last level")
        if "+" in level and level != "+":
            raise ValueError(f"topic filter {topic_filter!r} has '+' inside a level")


def plain_filter(topic_filter: str) -> str:
    """Return the filter without `$share/GROUP/`."""
    if not topic_filter.startswith(_SHARE_PREFIX):
        return topic_filter
    parts = topic_filter.split("/", 2)
    if len(parts) < 3 or not parts[1] or not parts[2] or "+" in parts[1] or "#" in parts[1]:
        raise ValueError(f"shared filter {topic_filter!r} is incomplete; write $share/GROUP/FILTER")
    return parts[2]


class FilterMatcher:
    """One topic filter, split once for matching."""

    __slots__ = ("_is_exact", "_levels", "_text")

    def __init__(self, topic_filter: str) -> None:
        self._text = plain_filter(topic_filter)
        self._levels = self._text.split("/")
        self._is_exact = "+" not in self._levels and self._levels[-1] != "#"

    def matches(self, topic: str) -> bool:
        if self._is_exact:
            return topic == self._text
        levels = self._levels
        # MQTT 5, 4.7.2: a leading wildcard never selects a topic that starts with $.
        if topic.startswith("$") and levels[0] in ("+", "#"):
            return False
        topic_levels = topic.split("/")
        # 'a/#' selects 'a' as well.
        if levels[-1] == "#":
            levels = levels[:-1]
            topic_levels = topic_levels[: len(levels)]
        if len(levels) != len(topic_levels):
            return False
        return all(
            level in ("+", topic_level) for level, topic_level in zip(levels, topic_levels, strict=True)
        )
