"""Messages on their way to journals, column by column: what is kept of them, and nothing else.

A message with all that belongs to it takes some 700 bytes. Thousands of them that wait for the disk
drive everything else out of the processor's caches, and every collection looks through them:
that cost a flood three quarters of its speed. So what a journal keeps is taken over in the turn in
which a message comes, and the message is let go. This is the only work for each message that the event
loop does for journals; it is compiled where a compiler is at hand.
"""

from __future__ import annotations

from typing import Final

from timebound.core.message import Message
from timebound.core.subscription import UserProperties
from timebound.core.topic import matches

# Topics whose journals are remembered; beyond, all are forgotten and asked again.
TOPICS_REMEMBERED_MAX: Final = 10_000
# QoS and the retain flag of a message share a number.
QOS_MASK: Final = 3
RETAIN_BIT: Final = 4


class Columns:
    """Rows of one journal in their order, and how many are lost between which of them."""

    __slots__ = (
        "gaps",
        "kinds",
        "payloads",
        "properties",
        "published_ns",
        "publishers",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.payloads: list[bytes] = []
        self.publishers: list[str] = []
        self.kinds: list[int] = []  # QoS, and RETAIN_BIT
        self.published_ns: list[int] = []
        self.properties: dict[int, UserProperties] = {}  # by row; most have none
        self.gaps: list[tuple[int, int]] = []  # before which row, and how many are lost there

    def add(self, message: Message) -> None:
        if len(message.user_properties) > 0:
            self.properties[len(self.topics)] = message.user_properties
        self.topics.append(message.topic)
        self.payloads.append(message.payload)
        self.publishers.append(message.publisher)
        self.kinds.append(message.qos | RETAIN_BIT if message.retain else message.qos)
        self.published_ns.append(message.published_ns)

    def lose(self) -> None:
        """Keep the place of a message that is not kept itself."""
        row = len(self.topics)
        if len(self.gaps) > 0 and self.gaps[-1][0] == row:
            self.gaps[-1] = (row, self.gaps[-1][1] + 1)
        else:
            self.gaps.append((row, 1))

    def row_count(self) -> int:
        return len(self.topics)

    def end_of(self, start: int, rows_max: int, bytes_max: int) -> int:
        """The end of a part from `start` on: of so many rows and bytes of payloads, about, or one row."""
        last = min(start + rows_max, len(self.topics))
        end = start
        size = 0
        while end < last and size < bytes_max:
            size += len(self.payloads[end])
            end += 1
        return end

    def forget(self, start: int, end: int) -> int:
        """Let go of the payloads of rows [start, end), which are on disk; gives their bytes."""
        size = 0
        for row in range(start, end):
            size += len(self.payloads[row])
            self.payloads[row] = b""
        return size


class Intake:
    """Deals messages out to the journals whose filters match their topics."""

    __slots__ = ("_filters", "_remembered", "bytes_in", "rows_in")

    def __init__(self, topic_filters: list[str]) -> None:
        self._filters = topic_filters
        self._remembered: dict[str, list[int]] = {}
        self.rows_in = 0  # ever, of all journals together
        self.bytes_in = 0

    def deal(self, messages: list[Message], journals: list[Columns], *, is_lossy: bool) -> None:
        """Add messages to the columns of their journals, which stand in the order of the filters.

        With `is_lossy` those of QoS 0 are lost: nobody waits for them, and there is no room.
        """
        for message in messages:
            wanting = self._remembered.get(message.topic)
            if wanting is None:
                wanting = self._find(message.topic)
            for index in wanting:
                columns = journals[index]
                if is_lossy and message.qos == 0:
                    columns.lose()
                else:
                    columns.add(message)
                    self.rows_in += 1
                    self.bytes_in += len(message.payload)

    def _find(self, topic: str) -> list[int]:
        if len(self._remembered) >= TOPICS_REMEMBERED_MAX:
            self._remembered.clear()
        wanting = [index for index in range(len(self._filters)) if matches(self._filters[index], topic)]
        self._remembered[topic] = wanting
        return wanting
