"""A neighbour broker as the input sees it: a publisher like any other.

Its copies of messages wait in the input queues by topic, beside those of clients, and its socket is left
unread while they are full. Control packets of the link do not come here. Copies that were read before the
link ended are still taken in: some are confirmed to nobody, and are not sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from timebound.core.account.counters import Counters
from timebound.core.input.entrance import Entrance
from timebound.core.input.publisher import InputMessage
from timebound.core.mesh.message import Copy
from timebound.core.sessions.session import Session
from timebound.node.input.reader import InputReader

# Copies between two readings of the clock, and copies queued at once, as for clients.
CLOCK_EVERY: Final = 32
TAKEN_IN_MAX: Final = 64
# No client id has a null character.
NEIGHBOUR_PREFIX: Final = "\0"

TakeCopy = Callable[[Copy, int, int], None]  # copy, packet id, time


class NeighbourReader(InputReader):
    """The copies of one link that were read and not taken in yet."""

    def __init__(
        self,
        name: str,
        entrance: Entrance,
        counters: Counters,
        session: Session,
        take: TakeCopy,
        now_ns: Callable[[], int],
        hold_reading: Callable[[bool], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`take` hands a copy to the broker; `hold_reading` is told whether to leave the socket unread;
        `on_error` ends the link after an internal error."""
        super().__init__()
        self._client_id = NEIGHBOUR_PREFIX + name
        self._entrance = entrance
        self._counters = counters
        self._long_messages = 0  # at the last copy
        self._session = session
        self._take = take
        self._now_ns = now_ns
        self._hold_reading = hold_reading
        self._on_error = on_error
        self._copies: list[Copy] = []  # those from `_next` on are not yet handled
        self._packet_ids: list[int] = []  # theirs
        self._next = 0
        self._is_over = False
        entrance.join(self._client_id, self)

    def take_copy(self, copy: Copy, packet_id: int) -> None:
        """Add a copy that was read; the caller announces the reader to the input."""
        self._copies.append(copy)
        self._packet_ids.append(packet_id)

    def take_copies(self, copies: list[Copy]) -> None:
        """Add the copies of a pack, which are confirmed by their receipt."""
        self._copies += copies
        self._packet_ids += [0] * len(copies)

    def end(self) -> None:
        """Note that the link has ended: nothing more is read."""
        self._is_over = True
        self._note_rest()

    def has_packets(self) -> bool:
        return self._next < len(self._copies)

    def pass_through(self, now_ns: int, until_ns: int) -> int:
        copies = self._copies
        packet_ids = self._packet_ids
        take = self._take
        self.is_slow = False
        started = self._next
        look_at = started + CLOCK_EVERY
        count = len(copies)
        while self._next < count:
            index = self._next
            if index >= look_at or self.is_slow:
                self.is_slow = False
                now_ns = self._now_ns()
                if now_ns >= until_ns:
                    break
                look_at = index + CLOCK_EVERY
            self._next = index + 1
            take(copies[index], packet_ids[index], now_ns)
            self._note_length()
        served = self._next - started
        self._note_rest()
        return served

    def take_in(self, now_ns: int) -> bool:
        entrance = self._entrance
        if not entrance.is_preceded(self):
            limit = min(len(self._copies), self._next + TAKEN_IN_MAX)
            while self._next < limit and entrance.may_queue(self):
                copy = self._copies[self._next]
                packet_id = self._packet_ids[self._next]
                queued = InputMessage(self, self._session, copy.what.message, packet_id, copy)
                if not entrance.push(queued, False):
                    break
                self._next += 1
        self._note_rest()
        return not self.has_packets()

    def _note_rest(self) -> None:
        """Stop or resume reading, by whether copies are left; after the last one of a link, leave."""
        if self.has_packets():
            self._hold_reading(True)
            return
        if self._next:
            self._copies = []
            self._packet_ids = []
            self._next = 0
        self._hold_reading(False)
        if self._is_over:
            self._entrance.leave(self._client_id, self)

    def continue_request(self, until_ns: int) -> bool:
        return True  # neighbours make no requests

    def publish_queued(self, queued: InputMessage, now_ns: int) -> None:
        assert queued.copy is not None, "a neighbour sends copies"
        self._take(queued.copy, queued.packet_id, now_ns)
        self._note_length()

    def _note_length(self) -> None:
        """Have the clock checked after a copy that may have taken long."""
        if self._counters.long_messages != self._long_messages:
            self._long_messages = self._counters.long_messages
            self.is_slow = True

    def failed(self, error: Exception) -> None:
        self._on_error(error)
