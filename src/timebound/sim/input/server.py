"""The real input scheduler under virtual time: a server that serves one quantum after another.

All quanta have the same length, messages arrive at the listed times, and the result is when each
of them was completed. A message that arrives exactly when a quantum begins can still get it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from timebound.core.input.scheduler import InputQueue, InputScheduler

# A longer run is a scenario that never ends, not a long experiment.
QUANTA_MAX: Final = 50_000_000


class Arrival(NamedTuple):
    """A message at the broker's input; arrivals are handed over in the order of their time."""

    time_ns: int
    queue: InputQueue[Arrival]
    size: int = 1
    is_excess: bool = False
    sent_ns: int = 0  # when its client began to send it; 0 = not recorded


class SchedulerChange(NamedTuple):
    """A change of the scheduler itself, such as a new topic or another weight."""

    time_ns: int
    apply: Callable[[], None]


class Relayed(NamedTuple):
    """A message that got all its quanta, and when."""

    arrival: Arrival
    done_ns: int

    @property
    def delay_ns(self) -> int:
        return self.done_ns - self.arrival.time_ns


def relay(
    scheduler: InputScheduler[Arrival], events: Iterable[Arrival | SchedulerChange], quantum_ns: int
) -> list[Relayed]:
    """Run until every message is completed; return them in the order of service.

    Raises:
        ValueError: events are out of order, a queue is full, or the run exceeds QUANTA_MAX.
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


def _apply(scheduler: InputScheduler[Arrival], event: Arrival | SchedulerChange) -> None:
    if isinstance(event, SchedulerChange):
        event.apply()
    elif not scheduler.push(event.queue, event, event.size, event.is_excess):
        raise ValueError(
            f"client {event.queue.client.name!r} exceeds client_quanta_max={scheduler.client_quanta_max}"
        )
