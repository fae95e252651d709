"""The names of stored messages: text for those that came from elsewhere, the starts of the broker for others.

What is published here is named by the broker's start and the message's sequence. So one row per start is
enough, with the largest sequence that was stored before it: nothing is written per message.
"""

from __future__ import annotations

import logging
import sqlite3
from bisect import bisect_left
from typing import Final

from timebound.core.values.message import Message, MessageName
from timebound.records import message_name, parse_message_name

log = logging.getLogger(__name__)

START_PREFIX: Final = "start "  # of counters with the time of a start, by the largest sequence before it
# Starts that are remembered, the latest; messages that are stored from before them lose their start.
STARTS_MAX: Final = 1_000


class Starts:
    """When the broker started, by the messages stored before."""

    def __init__(self, starts: list[tuple[int, int]]) -> None:
        self._sequences = [sequence for sequence, _ in starts]
        self._times_ns = [time_ns for _, time_ns in starts]

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Starts:
        return cls(sorted((sequence, time_ns) for sequence, time_ns in _rows(connection)))

    def name_of(self, sequence: int, text: str) -> MessageName:
        """Return the name of a stored message; without an origin if it was published here.

        Raises:
            ValueError: the stored text is not a name.
        """
        if text:
            return MessageName(*parse_message_name(text))
        place = bisect_left(self._sequences, sequence)
        return MessageName("", self._times_ns[place - 1] if place else 0, sequence)


def name_text(message: Message) -> str:
    """Return what is stored of a message's name: nothing if it follows from its sequence."""
    name = message.name
    return message_name(name.origin, name.started_ns, name.number) if name is not None else ""


def note_start(connection: sqlite3.Connection, sequence: int, now_ns: int) -> None:
    """Store that the broker starts now, after messages up to `sequence`; a full disk does not prevent it."""
    known = sorted({before for before, _ in _rows(connection)} | {sequence})
    try:
        connection.execute(
            "INSERT OR REPLACE INTO counter (name, value) VALUES (?, ?)",
            (f"{START_PREFIX}{sequence}", now_ns),
        )
        for before in known[:-STARTS_MAX]:
            connection.execute("DELETE FROM counter WHERE name = ?", (f"{START_PREFIX}{before}",))
    except sqlite3.OperationalError as error:
        log.warning("names of messages lose the time of this start: %s", error)


def _rows(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    rows = connection.execute("SELECT name, value FROM counter WHERE name LIKE ?", (f"{START_PREFIX}%",))
    return [(int(name.removeprefix(START_PREFIX)), time_ns) for name, time_ns in rows]
