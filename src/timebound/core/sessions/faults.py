"""Internal errors that concern one client while several are served.

A message goes to many sessions, and a timer belongs to one of many. An exception raised there is recorded
with the client id, and the other clients are served. The shell takes the records, logs them with their
traceback, and ends the connections. Mistakes of a peer are not recorded here: they are decisions.
"""

from __future__ import annotations

from typing import Final

# Per turn, after which the shell takes them; more would add nothing.
FAULTS_MAX: Final = 100


class Fault:
    """An exception and the client that was being served."""

    __slots__ = ("client_id", "connection", "error")

    def __init__(self, client_id: str, connection: int, error: Exception) -> None:
        self.client_id = client_id
        self.connection = connection  # 0 = not connected
        self.error = error


class Faults:
    """The faults since the shell last took them."""

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
