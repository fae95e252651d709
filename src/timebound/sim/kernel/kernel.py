"""Virtual time: events in a heap; the clock jumps from one to the next.

Events are ordered by time, then priority (smaller first), then the order in which they were
scheduled, so a run is the same every time.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Event:
    """Base of events. One level of subclasses, compiled or not."""

    __slots__ = ()

    @abstractmethod
    def happen(self, now_ns: int) -> None:
        """Act on the event; called once, at its time."""


class Kernel:
    """The event heap and its clock."""

    __slots__ = ("_heap", "_sequence", "events", "now_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Event]] = []
        self._sequence = 0
        self.now_ns = 0
        self.events = 0  # executed so far

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(self, time_ns: int, event: Event, priority: int = 0) -> None:
        """Queue an event for a time that has not passed."""
        assert time_ns >= self.now_ns, "event is scheduled in the past"
        heapq.heappush(self._heap, (time_ns, priority, self._sequence, event))
        self._sequence += 1

    def run(self, until_ns: int) -> bool:
        """Execute all events up to a time; return whether later ones are left."""
        heap = self._heap
        while heap:
            time_ns = heap[0][0]
            if time_ns > until_ns:
                self.now_ns = until_ns
                return True
            event = heapq.heappop(heap)[3]
            self.now_ns = time_ns
            self.events += 1
            event.happen(time_ns)
        return False
