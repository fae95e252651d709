"""Outlets by the time at which a copy in their queues may have to be dropped.

An earlier time replaces a later one. A later one is ignored: when the earlier has come, the outlet is asked
again. So a moving queue costs nothing here for each copy, at the price of a visit that may be in vain.
Outlets whose next drop may have become earlier are touched, and looked up before the shell waits.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from timebound.core.link.outlet import Outlet
from timebound.core.link.strategy.entry import NEVER_NS

# Outdated items, beyond the needed ones, before they are removed: one may be due only in years.
STALE_MAX: Final = 1_024


class DueList:
    """Outlets in the order of their `due_ns`, equal ones in the order in which they were put."""

    __slots__ = ("_count", "_heap", "_number", "_touched")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Outlet[Any]]] = []
        self._number = 0
        self._count = 0  # outlets in the list
        self._touched: list[Outlet[Any]] = []  # those whose next drop may be earlier than listed

    def __len__(self) -> int:
        return self._count

    def touch(self, outlet: Outlet[Any]) -> None:
        """Note that the next drop of an outlet must be looked up again before the shell waits."""
        if not outlet.is_touched:
            outlet.is_touched = True
            self._touched.append(outlet)

    def take_touched(self) -> list[Outlet[Any]]:
        """Return the outlets to look up: call `put` with the next drop of each."""
        touched = self._touched
        if touched:
            self._touched = []
            for outlet in touched:
                outlet.is_touched = False
        return touched

    def put(self, outlet: Outlet[Any], due_ns: int) -> None:
        """Add an outlet, or move it to an earlier time."""
        if due_ns >= outlet.due_ns:
            return
        if outlet.due_ns == NEVER_NS:
            self._count += 1
        self._number += 1
        outlet.due_ns = due_ns
        outlet.due_number = self._number
        heapq.heappush(self._heap, (due_ns, self._number, outlet))
        if len(self._heap) > 2 * self._count + STALE_MAX:
            self._heap = [item for item in self._heap if item[1] == item[2].due_number]
            heapq.heapify(self._heap)

    def remove(self, outlet: Outlet[Any]) -> None:
        """Remove an outlet, if it is in the list."""
        if outlet.due_ns < NEVER_NS:
            self._count -= 1
            outlet.due_ns = NEVER_NS
            outlet.due_number = 0

    def pop(self, now_ns: int) -> Outlet[Any] | None:
        """Remove and return the next outlet that is due; None if there is none."""
        due_ns = self.next_ns()
        if due_ns is None or due_ns > now_ns:
            return None
        outlet = heapq.heappop(self._heap)[2]
        self.remove(outlet)
        return outlet

    def next_ns(self) -> int | None:
        """Return when the next outlet is due; None if there is none."""
        heap = self._heap
        while heap and heap[0][1] != heap[0][2].due_number:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _check(self) -> None:
        """Assert that every outlet counted is in the heap, once."""
        valid = [item for item in self._heap if item[1] == item[2].due_number]
        assert len(valid) == self._count, "the count of outlets is wrong"
        for due_ns, _, outlet in valid:
            assert outlet.due_ns == due_ns, "an outlet is due at another time"
