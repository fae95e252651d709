"""Errors of the broker's own that struck one client while it was serving several.

A message goes to many sessions, a timer rings for one of many: what raises there is noted with
the name of its client, and the others are served. The shell takes the notes, logs them with
their traceback, and ends the connections. Nothing here is for mistakes of a peer; those are decisions.
"""

from __future__ import annotations

from typing import Final

# Between two looks of the shell, which come once a turn; more say nothing new.
FAULTS_MAX: Final = 100


class Fault:
    """An error, and the client that was being served."""

    __slots__ = ("client_id", "connection", "error")

    def __init__(self, client_id: str, connection: int, error: Exception) -> None:
        self.client_id = client_id
        self.connection = connection  # 0 = it was not connected
        self.error = error


class Faults:
    """What went wrong since the shell asked the last time."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def note(self, client_id: str, connection: int, error: Exception) -> None:
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(Fault(client_id, connection, error))

    def take(self) -> list[Fault]:
        faults = self._faults
        if faults:
            self._faults = []
        return faults
