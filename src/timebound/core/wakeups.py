"""Wake-ups for the next drop in a queue, of sessions and of links to other brokers alike.

All outlets of a broker are in one `DueList`. An error concerns the outlet that is being visited: it is noted,
and the others are still visited.
"""

from __future__ import annotations

from typing import Any, Final

from timebound.core.link.due import DueList
from timebound.core.link.outlet import Outlet
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.link import MeshLink
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.outbound import Outbound
from timebound.core.sessions.session import Session

# Copies that are ranked or dropped in one call: it is a part of one turn.
DUE_COPIES_MAX: Final = 256


class Wakeups:
    """Visits outlets when a copy of theirs is due to be dropped."""

    __slots__ = ("_due", "_faults", "_outbound", "forwarder")

    def __init__(self, due: DueList, outbound: Outbound, faults: Faults) -> None:
        self._due = due
        self._outbound = outbound
        self._faults = faults
        self.forwarder: Forwarder | None = None  # of a member of a mesh

    def next_ns(self) -> int | None:
        """Return when a copy may have to be dropped if nothing else happens; call it after what was ready."""
        for outlet in self._due.take_touched():
            try:
                self._due.put(outlet, outlet.next_drop_ns())
            except Exception as error:
                self._note(outlet, error)
        return self._due.next_ns()

    def wake(self, now_ns: int) -> None:
        """Drop copies that are late by now; call it at the time of `next_ns`. Of many, it drops some."""
        left = DUE_COPIES_MAX
        while left > 0:
            outlet = self._due.pop(now_ns)
            if outlet is None:
                return
            left -= 1 + self._drop_due(outlet, left, now_ns)

    def _drop_due(self, outlet: Outlet[Any], copies_max: int, now_ns: int) -> int:
        """Drop what is due at an outlet; return the number of copies ranked or dropped."""
        try:
            if isinstance(outlet, Session):
                return self._outbound.drop_due(outlet, copies_max, now_ns)
            assert isinstance(outlet, MeshLink), "an outlet is a session or a link"
            assert self.forwarder is not None, "only a member of a mesh has links"
            return self.forwarder.drop_due(outlet, copies_max, now_ns)
        except Exception as error:
            self._note(outlet, error)
            return 0

    def _note(self, outlet: Outlet[Any], error: Exception) -> None:
        owner, connection = outlet.owner()
        self._faults.note(owner, connection, error)
