"""What all queues of a broker may spend in one turn on work that visits every entry of a queue.

A queue is ranked anew as a whole when its link becomes congested, its delay changes, or messages become
larger, and it ranks all entries once more when it is full for the first time. One message that goes to many
readers may cause that in all their queues. Each takes its steps here, one for each entry; where the turn has
too few left, the queue goes on as it is, and catches up in a later turn, in order.
"""

from __future__ import annotations

from typing import Final

# Entries in one turn: about 2 ms. A longer queue has a turn for itself.
STEPS_PER_TURN: Final = 4_096


class TurnBudget:
    """The steps that are left in this turn."""

    __slots__ = ("_left", "is_awaited")

    def __init__(self) -> None:
        self._left = STEPS_PER_TURN
        self.is_awaited = False  # queues wait for steps: whoever comes now waits behind them

    def renew(self) -> None:
        """Begin a turn."""
        self._left = STEPS_PER_TURN

    def take(self, steps: int) -> bool:
        """Take steps for a queue; False: it must wait for a later turn."""
        return not self.is_awaited and self.take_awaited(steps)

    def take_awaited(self, steps: int) -> bool:
        """Take steps for the queue that has waited longest; False: it waits on."""
        if steps > self._left and self._left < STEPS_PER_TURN:
            return False
        self._left -= steps
        return True
