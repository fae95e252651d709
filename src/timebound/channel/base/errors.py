"""What the event channel refuses, and why.

ChannelError             (a TimeboundError)
├── ChannelFileError     a channel's file has mistakes (also a ConfigError); carries all of them
├── NotSchedulable       an operation would break a deadline; carries what would fit
├── QueueFull            a callback has no room for an event, which is dropped; never reaches the program
└── UndeclaredEvent      a supplier pushed a type it did not declare when it connected
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from timebound.errors import ConfigError, TimeboundError
from timebound.units import format_duration

if TYPE_CHECKING:
    from timebound.core.input.schedulability import Available, Operation, Verdict


class ChannelError(TimeboundError):
    """A channel, or one of its modules, cannot do what was asked."""


class ChannelFileError(ConfigError, ChannelError):
    """A channel's file cannot be used; the message has a line for each of its `mistakes`.

    File, line and key are those of the first.
    """

    def __init__(self, mistakes: list[ConfigError]) -> None:
        first = mistakes[0]
        super().__init__("", path=first.path, line=first.line, key=first.key)
        self.args = ("\n".join(str(mistake) for mistake in mistakes),)
        self.mistakes = mistakes


class NotSchedulable(ChannelError):
    """A consumer's operation cannot be added without a missed deadline, its own or another's."""

    def __init__(self, operation: Operation, verdict: Verdict, available: Available) -> None:
        assert verdict.late is not None
        end = "never finish"
        if verdict.response_ns:
            taken, period = format_duration(verdict.response_ns), format_duration(verdict.late.period_ns)
            end = f"finish after {taken}, but its period is {period}"
        offers = []
        if available.cost_ns_max:
            offers.append(f"cost up to {format_duration(available.cost_ns_max)}")
        if available.period_ns_min:
            offers.append(f"period from {format_duration(available.period_ns_min)}")
        asked = f"period={format_duration(operation.period_ns)}, cost={format_duration(operation.cost_ns)}"
        super().__init__(
            f"operation {operation.name!r} is not schedulable ({asked}): {verdict.late.name!r} would {end} "
            f"(utilisation {verdict.utilisation:.1%}); available: {' or '.join(offers) or 'nothing'}"
        )
        self.operation = operation
        self.verdict = verdict
        self.available = available


class QueueFull(ChannelError):
    """Raised by a callback that queues events: the event found no room, and counts as dropped."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"queue is full (queue_max={limit})")
        self.limit = limit


class UndeclaredEvent(ChannelError):
    """A supplier pushed an event type that it had not declared."""

    def __init__(self, supplier: str, event_type: str, declared: list[str]) -> None:
        super().__init__(
            f"supplier {supplier!r} has not declared event type {event_type!r} "
            f"(declared: {', '.join(declared)})"
        )
        self.supplier = supplier
        self.event_type = event_type
