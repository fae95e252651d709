"""A broker that polls every queue in turn, as the paper's simulated one does.

Unlike the real scheduler it spends time on empty queues, so even at an idle broker a message
waits until its topic and client are polled. It exists to reproduce published delays.
Polls of empty queues are counted, not carried out one by one: there are millions of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from timebound.sim.input.server import Arrival, Relayed

QueueKey = tuple[str, str]  # names of the client and of the queue


class PollingServer:
    """Relays arrivals by polling queues in the order of a cycle that changes every period.

    A message whose queue has left the cycle is relayed at the next poll.
    """

    def __init__(
        self, cycles: list[list[QueueKey]], *, period_ns: int, search_ns: int, relay_ns: int
    ) -> None:
        self._cycles = cycles
        self._period_ns = period_ns
        self._search_ns = search_ns
        self._relay_ns = relay_ns
        self._looks = 1  # in the cycle of this period
        self._places: dict[QueueKey, list[int]] = {}  # positions of each queue in the cycle
        self._queues: dict[QueueKey, deque[Arrival]] = {}  # those with messages
        self._strays: deque[Arrival] = deque()
        self._position = 0
        self._now_ns = 0
        self._relayed: list[Relayed] = []

    def relay(self, arrivals: list[Arrival]) -> list[Relayed]:
        """Relay all arrivals, which are ordered by time."""
        following = 0
        period = -1
        while following < len(arrivals) or self._queues or self._strays:
            if period < min(self._now_ns // self._period_ns, len(self._cycles) - 1):
                period += 1
                self._begin(self._cycles[period])
            while following < len(arrivals) and arrivals[following].time_ns <= self._now_ns:
                self._insert(arrivals[following])
                following += 1
            pause_ns = self._period_ns * (len(self._cycles) + 1)
            if following < len(arrivals):
                pause_ns = arrivals[following].time_ns - self._now_ns
            if period + 1 < len(self._cycles):
                pause_ns = min(pause_ns, (period + 1) * self._period_ns - self._now_ns)
            self._search(-(-pause_ns // self._search_ns))
        return self._relayed

    def _begin(self, cycle: list[QueueKey]) -> None:
        self._looks = len(cycle)
        self._position = 0
        self._places = {}
        for place, key in enumerate(cycle):
            self._places.setdefault(key, []).append(place)
        for key in [key for key in self._queues if key not in self._places]:
            self._strays.extend(self._queues.pop(key))

    def _insert(self, arrival: Arrival) -> None:
        key = (arrival.queue.client.name, arrival.queue.name)
        if key in self._places:
            self._queues.setdefault(key, deque()).append(arrival)
        else:
            self._strays.append(arrival)

    def _search(self, looks_max: int) -> None:
        """Poll until a message is found and relayed, but at most `looks_max` times."""
        looks, found = (0, None) if self._strays else self._next_hit()
        if looks >= looks_max > 0:
            self._now_ns += looks_max * self._search_ns
            self._position = (self._position + looks_max) % self._looks
            return
        queue = self._strays if found is None else self._queues[found]
        self._now_ns += (looks + 1) * self._search_ns + self._relay_ns
        self._relayed.append(Relayed(queue.popleft(), self._now_ns))
        if found is not None:
            self._position = (self._position + looks + 1) % self._looks
            if not queue:
                del self._queues[found]

    def _next_hit(self) -> tuple[int, QueueKey | None]:
        """Return how many empty queues precede the next one with a message, and which one that is."""
        nearest: tuple[int, QueueKey | None] = (self._looks * self._period_ns, None)
        for key in self._queues:
            places = self._places[key]
            index = bisect_left(places, self._position)
            place = places[index] if index < len(places) else places[0] + self._looks
            if place - self._position < nearest[0]:
                nearest = (place - self._position, key)
        return nearest
