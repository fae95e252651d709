"""A tap: collects messages for the journals while they are distributed.

The messages are kept until the shell takes them, once a turn. The tap decides only whether any journal
wants a message; the shell assigns it to journals, off the hot path.
"""

from __future__ import annotations

from typing import Final

from timebound.core.values.message import Message
from timebound.topics import matches

# Topics whose result is cached; a full cache is cleared.
REMEMBERED_TOPICS_MAX: Final = 10_000


class Tap:
    """Collects the messages whose topics match at least one of its filters."""

    __slots__ = ("_filters", "_messages", "_remembered")

    def __init__(self, topic_filters: list[str]) -> None:
        self._filters = topic_filters
        self._messages: list[Message] = []
        self._remembered: dict[str, bool] = {}

    def offer(self, message: Message) -> bool:
        """Keep a message if a filter matches; return whether one does."""
        is_wanted = self._remembered.get(message.topic)
        if is_wanted is None:
            is_wanted = self._decide(message.topic)
        if is_wanted:
            self._messages.append(message)
        return is_wanted

    def take(self) -> list[Message]:
        """Take the messages kept since the last call, in order of arrival."""
        messages = self._messages
        if messages:
            self._messages = []
        return messages

    def _decide(self, topic: str) -> bool:
        if len(self._remembered) >= REMEMBERED_TOPICS_MAX:
            self._remembered.clear()
        is_wanted = any([matches(topic_filter, topic) for topic_filter in self._filters])
        self._remembered[topic] = is_wanted
        return is_wanted
