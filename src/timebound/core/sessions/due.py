"""Sessions by the time at which a copy in their queues may have to be dropped.

An earlier time replaces a later one; a later one is ignored until the earlier has come, and is then asked for
again. So a session whose queue moves costs nothing here with each copy, at the price of a visit that may find
nothing to do.
"""

from __future__ import annotations

import heapq
from typing import Final

from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.sessions.session import Session

# Outdated items, beyond the needed ones, before they are removed: one may be due only in years.
STALE_MAX: Final = 1_024


class DueList:
    """Sessions in the order of their `due_ns`, equal ones in the order in which they were put."""

    __slots__ = ("_count", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Session]] = []
        self._number = 0
        self._count = 0  # sessions in the list

    def __len__(self) -> int:
        return self._count

    def put(self, session: Session, due_ns: int) -> None:
        """Add a session, or move it to an earlier time."""
        if due_ns >= session.due_ns:
            return
        if session.due_ns == NEVER_NS:
            self._count += 1
        self._number += 1
        session.due_ns = due_ns
        session.due_number = self._number
        heapq.heappush(self._heap, (due_ns, self._number, session))
        if len(self._heap) > 2 * self._count + STALE_MAX:
            self._heap = [item for item in self._heap if item[1] == item[2].due_number]
            heapq.heapify(self._heap)

    def remove(self, session: Session) -> None:
        """Remove a session, if it is in the list."""
        if session.due_ns < NEVER_NS:
            self._count -= 1
            session.due_ns = NEVER_NS
            session.due_number = 0

    def pop(self, now_ns: int) -> Session | None:
        """Remove and return the next session that is due; None if there is none."""
        due_ns = self.next_ns()
        if due_ns is None or due_ns > now_ns:
            return None
        session = heapq.heappop(self._heap)[2]
        self.remove(session)
        return session

    def next_ns(self) -> int | None:
        """Return when the next session is due; None if there is none."""
        heap = self._heap
        while heap and heap[0][1] != heap[0][2].due_number:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _check(self) -> None:
        """Assert that every session counted is in the heap, once."""
        valid = [item for item in self._heap if item[1] == item[2].due_number]
        assert len(valid) == self._count, "the count of sessions is wrong"
        for due_ns, _, session in valid:
            assert session.due_ns == due_ns, "a session is due at another time"
