"""Events, as they are delivered: alone, several together, or as a timeout.

Consumers always receive one `Event`. What a conjunction delivers is an event of type `$together` whose
`parts` are the events that satisfied it; a timer's is of type `$timeout` with a `Timeout` as payload.
"""

from __future__ import annotations

from typing import Final

TOGETHER: Final = "$together"
TIMEOUT: Final = "$timeout"

NO_PARTS: Final[tuple[Event, ...]] = ()


class Event:
    """Something that happened. The payload is shared by all consumers and never copied.

    `time_ns` is when it entered this channel, by this channel's clock. `origin` and `sequence` name it
    across a federation: the channel it was first pushed into, and its number there.
    """

    __slots__ = ("origin", "parts", "payload", "sequence", "source", "time_ns", "type")

    def __init__(
        self,
        type: str,
        source: str,
        payload: object,
        time_ns: int,
        origin: str = "",
        sequence: int = 0,
        parts: tuple[Event, ...] = NO_PARTS,
    ) -> None:
        self.type = type
        self.source = source
        self.payload = payload
        self.time_ns = time_ns
        self.origin = origin
        self.sequence = sequence
        self.parts = parts

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that satisfied the consumer's dependency: the parts, or this one alone."""
        return self.parts or (self,)

    def __repr__(self) -> str:
        what = f"parts={list(self.parts)!r}" if self.parts else f"payload={self.payload!r}"
        return f"Event({self.type!r}, source={self.source!r}, {what})"
