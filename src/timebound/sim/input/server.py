"""The real input scheduler under virtual time: a server that takes one quantum after another.

Every quantum lasts equally long, messages arrive when their list says, and what comes out is
when each of them was through. A message that arrives exactly when a quantum begins can still
get it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from timebound.core.input.scheduler import InputQueue, InputScheduler

# A run that long is a scenario without end, not a longer experiment.
QUANTA_MAX: Final = 50_000_000


class Arrival(NamedTuple):
    """A message at the broker's input; arrivals are handed over in the order of their time."""

    time_ns: int
    queue: InputQueue[Arrival]
    size: int = 1
    is_excess: bool = False
    sent_ns: int = 0  # when its client began to send it, if that matters


class Change(NamedTuple):
    """Something that happens to the scheduler itself: a topic comes, a weight changes."""

    time_ns: int
    apply: Callable[[], None]


class Relayed(NamedTuple):
    """A message that has got all its quanta."""

    arrival: Arrival
    done_ns: int

    @property
    def delay_ns(self) -> int:
        return self.done_ns - self.arrival.time_ns


def relay(
    scheduler: InputScheduler[Arrival], events: Iterable[Arrival | Change], quantum_ns: int
) -> list[Relayed]:
    """Run until every message is through; return them in the order of service.

    Raises:
        ValueError: events are out of order, a queue refused a message, or it takes too long.
    """
    relayed: list[Relayed] = []
    source = iter(events)
    event = next(source, None)
    now_ns = 0
    for _ in range(QUANTA_MAX):
        while event is not None and event.time_ns <= now_ns:
            _apply(scheduler, event)
            following = next(source, None)
            if following is not None and following.time_ns < event.time_ns:
                raise ValueError(f"event at {following.time_ns} ns comes after one at {event.time_ns} ns")
            event = following
        if scheduler.serve() is not None:
            now_ns += quantum_ns
            if scheduler.finished is not None:
                relayed.append(Relayed(scheduler.finished, now_ns))
        elif event is not None:
            now_ns = event.time_ns
        else:
            return relayed
    raise ValueError(f"more than {QUANTA_MAX} quanta; end the scenario earlier")


def _apply(scheduler: InputScheduler[Arrival], event: Arrival | Change) -> None:
    if isinstance(event, Change):
        event.apply()
    elif not scheduler.push(event.queue, event, event.size, event.is_excess):
        raise ValueError(f"client {event.queue.client.name!r} has too much waiting; raise client_quanta_max")
