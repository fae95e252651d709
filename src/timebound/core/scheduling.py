"""How the output side of a link chooses: strategy, shares, limits of chance.

Settings are shared by all sessions of a listener and can be replaced while messages wait.
"""

from __future__ import annotations

from typing import Final

from timebound.core.delay import LinkDelay
from timebound.core.queue import EPSILON, LinkQueue
from timebound.core.strategy.registry import DEFAULT_STRATEGY, STRATEGY_NAMES, strategy_named

# Messages without a time limit keep this part of a link that has more to send than it can.
UNTIMED_SHARE: Final = 0.05


class Scheduling:
    """Settings by which the queue of a link is made."""

    __slots__ = ("epsilon", "is_default", "name", "untimed_share", "uses_priority", "weight")

    def __init__(
        self,
        name: str = DEFAULT_STRATEGY,
        weight: float = -1.0,
        untimed_share: float = UNTIMED_SHARE,
        epsilon: float = EPSILON,
    ) -> None:
        strategy_named(name, weight=weight)  # raises ValueError for what does not exist
        if not 0.0 <= untimed_share < 1.0:
            raise ValueError(f"untimed_share={untimed_share} is not between 0 and 1")
        self.name = name
        self.weight = weight
        self.untimed_share = untimed_share
        self.epsilon = epsilon
        self.is_default = name == DEFAULT_STRATEGY
        self.uses_priority = name == "fixed"

    def make_queue(self, delay: LinkDelay, messages_max: int, bytes_max: int, now_ns: int) -> LinkQueue:
        """An empty queue with these settings.

        The papers' strategies know one class of messages; the default keeps a share for those
        without a time limit.
        """
        shares = (0.0, self.untimed_share) if self.is_default else (0.0,)
        return LinkQueue(
            strategy_named(self.name, weight=self.weight),
            delay,
            origin_ns=now_ns,
            messages_max=messages_max,
            bytes_max=bytes_max,
            shares=shares,
            epsilon=self.epsilon,
        )


DEFAULT_SCHEDULING: Final = Scheduling()

__all__ = ["DEFAULT_SCHEDULING", "STRATEGY_NAMES", "Scheduling"]
