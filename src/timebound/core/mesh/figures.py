"""How a link between brokers is doing, as its broker tells the others: for people, not for decisions."""

from __future__ import annotations

import math
from typing import Final

# Figures are told again when one has moved by this share; times below a millisecond do not count.
MOVED: Final = 0.25
SMALL_NS: Final = 1_000_000


class LinkFigures:
    """What waits for a link, how long copies wait and travel, and which share of them is given up."""

    __slots__ = ("latency_ns", "lost_share", "queue_delay_ns", "waiting")

    def __init__(self, waiting: int, queue_delay_ns: int, latency_ns: int, lost_share: float) -> None:
        if waiting < 0 or queue_delay_ns < 0 or latency_ns < 0 or not 0.0 <= lost_share <= 1.0:
            raise ValueError(
                f"figures of a link are out of range (waiting={waiting}, queue_delay_ns={queue_delay_ns}, "
                f"latency_ns={latency_ns}, lost_share={lost_share})"
            )
        self.waiting = waiting
        self.queue_delay_ns = queue_delay_ns
        self.latency_ns = latency_ns
        self.lost_share = lost_share

    def has_moved(self, earlier: LinkFigures) -> bool:
        """Whether they differ enough to be told again."""
        return (
            _differs(float(self.waiting), float(earlier.waiting), 1.0)
            or _differs(float(self.queue_delay_ns), float(earlier.queue_delay_ns), SMALL_NS)
            or _differs(float(self.latency_ns), float(earlier.latency_ns), SMALL_NS)
            or _differs(self.lost_share, earlier.lost_share, 0.001)
        )


class LossMeter:
    """The share of copies that were given up before a link could send them, lately."""

    __slots__ = ("_dropped", "_sent", "dropped", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.dropped = 0
        self._sent = 0
        self._dropped = 0

    def take_share(self) -> float:
        """Return the share since the last call."""
        sent, dropped = self.sent - self._sent, self.dropped - self._dropped
        self._sent, self._dropped = self.sent, self.dropped
        return dropped / (sent + dropped) if dropped else 0.0


def _differs(value: float, earlier: float, least: float) -> bool:
    gap = math.fabs(value - earlier)
    return gap >= least and gap > MOVED * max(value, earlier)
