"""Topic names and topic filters: what is valid, and what matches what.

A topic is text of levels separated by `/`. A filter may hold `+` for one level and a
last `#` for any number; `$share/GROUP/FILTER` shares the filter among a group.
"""

from __future__ import annotations

from typing import Final

from timebound.errors import FilterError

SHARE_PREFIX: Final = "$share/"
# First levels of the broker's own topics: figures, notices and requests. Nothing there has a price.
OWN_LEVELS: Final = ("$SYS", "$timebound")
# The topics there that clients may publish to: requests come by PUBLISH and are carried out, never
# forwarded; findings of jobs about links come as rows over Flight.
REQUESTS: Final = ("$timebound/control/", "$timebound/advertise/", "$timebound/link/")
FINDINGS: Final = ("$timebound/link/", "$timebound/alarm/")
# Notices for the subscriber of a message that it did not get; the rest is the topic of that message.
MISSED_PREFIX: Final = "$timebound/missed/"


def check_filter(topic_filter: str) -> None:
    """Refuse a filter that MQTT does not allow (4.7.1, 4.8.2); `$share/` prefixes included.

    Raises:
        FilterError: with the position of the first invalid character.
    """
    if not topic_filter:
        raise FilterError("topic filter is empty")
    if "\0" in topic_filter:
        raise FilterError(
            f"topic filter {topic_filter!r} has a null character", position=topic_filter.index("\0")
        )
    start = 0
    if topic_filter.startswith("$share"):
        start = len(topic_filter) - len(_check_share(topic_filter))
    check_wildcards(topic_filter, start)


def check_wildcards(topic_filter: str, start: int = 0) -> None:
    """Refuse a wildcard inside a level, and `#` before the last level, from `start` on (4.7.1).

    Raises:
        FilterError: with the position of the first invalid level.
    """
    levels = topic_filter[start:].split("/")
    position = start
    for number, level in enumerate(levels):
        if "#" in level:
            if level != "#":
                raise FilterError(f"topic filter {topic_filter!r} has '#' inside a level", position=position)
            if number != len(levels) - 1:
                raise FilterError(
                    f"topic filter {topic_filter!r} has '#' before its last level", position=position
                )
        if "+" in level and level != "+":
            raise FilterError(f"topic filter {topic_filter!r} has '+' inside a level", position=position)
        position += len(level) + 1


def _check_share(topic_filter: str) -> str:
    parts = topic_filter.split("/", 2)
    if parts[0] != "$share":
        return topic_filter
    if len(parts) < 3 or not parts[1] or not parts[2]:
        raise FilterError(
            f"shared filter {topic_filter!r} is incomplete; write $share/GROUP/FILTER", position=len("$share")
        )
    if "+" in parts[1] or "#" in parts[1]:
        raise FilterError(
            f"shared filter {topic_filter!r} has a wildcard in its group", position=len(SHARE_PREFIX)
        )
    return parts[2]


def split_share(topic_filter: str) -> tuple[str, str]:
    """Return (group, filter); the group is empty if the filter is not shared."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return "", topic_filter
    parts = topic_filter.split("/", 2)
    return parts[1], parts[2]


def is_own_topic(topic: str) -> bool:
    """Whether a topic, or every topic that a filter selects, is the broker's own."""
    return topic[:1] == "$" and topic.partition("/")[0] in OWN_LEVELS


def reserved_fault(topic: str, openings: tuple[str, ...] = ()) -> str:
    """Return why no client may publish to a topic of the broker's own; empty if one may.

    No access rule changes that: a client that could publish there could forge the broker's messages.
    """
    if not is_own_topic(topic) or topic.startswith(openings):
        return ""
    expected = f"; expected one of {', '.join(openings)}" if openings else ""
    return f"{topic!r} is a topic of the broker's own{expected}"


def has_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter


def level_count(text: str) -> int:
    return text.count("/") + 1


def topic_fault(topic: str, length_max: int, levels_max: int) -> str:
    """Return what is wrong with the size of a topic or filter; empty if nothing."""
    length = len(topic.encode("utf-8", "surrogatepass"))
    if length > length_max:
        return f"topic has {length} bytes, topic_length_max is {length_max}"
    levels = level_count(topic)
    if levels > levels_max:
        return f"topic has {levels} levels, topic_levels_max is {levels_max}"
    return ""


def matches(topic_filter: str, topic: str) -> bool:
    """Whether an unshared filter selects a topic; the index does this for many at once."""
    filter_levels = topic_filter.split("/")
    topic_levels = topic.split("/")
    # MQTT 5, 4.7.2: a leading wildcard never selects a topic that starts with $.
    if topic.startswith("$") and filter_levels[0] in ("+", "#"):
        return False
    for number, level in enumerate(filter_levels):
        if level == "#":
            return True
        if number >= len(topic_levels):
            return False
        if level != "+" and level != topic_levels[number]:
            return False
    return len(filter_levels) == len(topic_levels)
