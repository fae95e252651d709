"""Back pressure: publishers that wait for full links to other brokers.

The acknowledgement of a QoS 1 or 2 message is held until every broker it goes to has room again, and so are
the later ones of the same session: MQTT requires their order [MQTT-4.6.0-2]. A client sends no more than the
broker's Receive Maximum without an acknowledgement, so it stops by itself. QoS 0 has no acknowledgement: the
session is marked, and the shell does not read its socket. A message that is matched in steps
(`matching/gradual.py`) is waited for in the same way: its name stands among the homes.
"""

from __future__ import annotations

from typing import Final

from timebound.core.sessions.durability import Durability
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.session import Awaited, ReadyList, Reply, Session

NO_HOMES: Final[list[str]] = []  # never changed
NO_LEVELS: Final[dict[str, int]] = {}  # likewise


class Pressure:
    """All sessions that wait, each with the brokers it waits for."""

    __slots__ = ("_durability", "_faults", "_ready", "_sessions")

    def __init__(self, ready: ReadyList, durability: Durability, faults: Faults) -> None:
        self._faults = faults
        self._ready = ready
        self._durability = durability
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def acknowledge(self, session: Session, reply: Reply, homes: list[str], mark: int) -> None:
        """Acknowledge a message once these brokers have room and it is on disk, if it must be stored."""
        if not homes and not session.awaiting:
            self._durability.reply(session, reply, mark)
        elif session.connection:
            session.awaiting.append(Awaited(reply, homes, self._durability.mark() != mark))
            self._add(session)

    def slow(self, session: Session, homes: list[str]) -> None:
        """Mark a session whose QoS 0 message found no room at these brokers."""
        if session.connection:
            for home in homes:
                session.slowed_by[home] = None
            self._add(session)

    def forget(self, session: Session) -> None:
        """Remove a session whose connection is gone."""
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]

    def relieve(self, levels: dict[str, int]) -> None:
        """Release what waits only for brokers that are no longer full."""
        for session in list(self._sessions.values()):
            try:
                self._relieve(session, levels)
            except Exception as error:  # concerns one of several publishers
                self._faults.note(session.client_id, session.connection, error)

    def _relieve(self, session: Session, levels: dict[str, int]) -> None:
        awaiting = session.awaiting
        before = len(awaiting) + len(session.slowed_by)
        while awaiting and not _is_any(awaiting[0].homes, levels):
            self._release(session, awaiting.popleft())
        if session.slowed_by:
            for home in list(session.slowed_by):
                if home not in levels:
                    del session.slowed_by[home]
        after = len(awaiting) + len(session.slowed_by)
        if after != before:
            self._ready.add(session)
        if after == 0:
            session.is_pressed = False
            del self._sessions[session.client_id]

    def _add(self, session: Session) -> None:
        session.is_pressed = True
        self._sessions[session.client_id] = session

    def _release(self, session: Session, awaited: Awaited) -> None:
        mark = self._durability.mark()
        if awaited.needs_disk:
            # Its orders were handed over earlier, so everything ordered now is written after them.
            self._durability.expect_journal()
        self._durability.reply(session, awaited.reply, mark)


def _is_any(homes: list[str], levels: dict[str, int]) -> bool:
    for home in homes:
        if home in levels:
            return True
    return False
