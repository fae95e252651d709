"""Messages that the shell keeps in journals, picked out as they are given out.

A tap holds messages of the topics asked for until the shell takes them, once a turn. It decides
only whether a message is kept at all; which journal it goes to is for the shell, off the hot path.
"""

from __future__ import annotations

from typing import Final

from timebound.core.values.message import Message
from timebound.topics import matches

# Topics whose answer is remembered; beyond, all are forgotten and asked again.
REMEMBERED_TOPICS_MAX: Final = 10_000


class Tap:
    """Collects the messages whose topics match one of some filters."""

    __slots__ = ("_filters", "_messages", "_remembered")

    def __init__(self, topic_filters: list[str]) -> None:
        self._filters = topic_filters
        self._messages: list[Message] = []
        self._remembered: dict[str, bool] = {}

    def offer(self, message: Message) -> bool:
        """Keep a message if it is wanted; tells whether it is."""
        is_wanted = self._remembered.get(message.topic)
        if is_wanted is None:
            is_wanted = self._decide(message.topic)
        if is_wanted:
            self._messages.append(message)
        return is_wanted

    def take(self) -> list[Message]:
        """What was kept since the last call, in the order of arrival."""
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
