"""Copies from a neighbour that the broker has not taken yet: a publisher like any other.

The network's node has its own (`node/mesh/reader.py`). Copies that were read before the link ended are still
taken in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.mesh.message import Copy
from timebound.core.sessions.session import Session
from timebound.sim.deployment.intake import SimIntake

# No client id has a null character.
NEIGHBOUR_PREFIX: Final = "\0"


class CopyQueue:
    """The copies of one link that were read and not taken in yet."""

    def __init__(
        self,
        number: int,
        name: str,
        session: Session,
        intake: SimIntake,
        take: Callable[[Copy, int], None],
        hold_reading: Callable[[bool], None],
    ) -> None:
        """`take` hands a copy to the broker; `hold_reading` is told whether to leave the cable unread."""
        self.number = number
        self.publisher = Publisher()
        self._client_id = NEIGHBOUR_PREFIX + name
        self._session = session
        self._intake = intake
        self._take = take
        self._hold_reading = hold_reading
        self._copies: deque[tuple[Copy, int]] = deque()  # with packet ids
        self._is_over = False
        intake.join(self._client_id, self)

    def take_copy(self, copy: Copy, packet_id: int) -> None:
        """Add a copy that was read."""
        self._copies.append((copy, packet_id))
        self._intake.hand_in(self)

    def take_copies(self, copies: list[Copy]) -> None:
        """Add the copies of a pack, which are confirmed by their receipt."""
        self._copies.extend([(copy, 0) for copy in copies])
        self._intake.hand_in(self)

    def end(self) -> None:
        """Note that the link has ended: nothing more is read."""
        self._is_over = True
        self._intake.hand_in(self)

    def take_in(self) -> None:
        """Put copies into the queues, as far as they take them."""
        entrance = self._intake.entrance
        while self._copies and self._intake.may_push(self.publisher):
            copy, packet_id = self._copies.popleft()
            entrance.push(
                InputMessage(self.publisher, self._session, copy.what.message, packet_id, copy), False
            )
        self._hold_reading(bool(self._copies))
        if self._copies:
            self._intake.hand_in(self)
        elif self._is_over:
            self._intake.leave(self._client_id, self)

    def publish_queued(self, queued: InputMessage) -> None:
        """Hand a copy to the broker."""
        assert queued.copy is not None, "a neighbour sends copies"
        self._take(queued.copy, queued.packet_id)

    def answer(self) -> None:
        """Nothing: neighbours make no requests."""
