"""Lanes: classes of messages on one link, each with a guaranteed share of it.

The strategy chooses among all lanes. In addition, every lane with waiting messages accumulates
claims: its share of each byte sent. Once a claim covers its message, that message is sent
regardless of the strategy. Messages without a time limit are never dropped, so half of the share
of a lane that has some is for the oldest of them, the rest for its best message. So, while
messages wait in it, a lane gets at least its share of the bytes, less at most
(2 · number of lanes + 1) largest messages, and every message without a limit is sent eventually.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import Strategy
from timebound.core.link.strategy.entry import NEVER_NS, Entry, HeapNode
from timebound.core.link.strategy.heap import Heap
from timebound.core.link.strategy.ranking import Ranking


class LinkLane:
    """The waiting entries of one lane."""

    __slots__ = ("claim", "is_oldest_turn", "oldest_claim", "ranking", "share", "size_max", "untimed")

    def __init__(self, share: float, strategy: Strategy, link: LinkModel) -> None:
        self.share = share
        self.ranking = Ranking(strategy, link)
        self.untimed = Heap()  # entries without any time limit, oldest first
        self.claim = 0.0  # bytes due to the best entry
        self.oldest_claim = 0.0  # bytes due to the oldest untimed entry
        self.is_oldest_turn = False
        self.size_max = 0.0  # largest entry since the lane was last empty, bytes

    def insert(self, entry: Entry, now_ns: int) -> None:
        entry.rank = self.ranking.insert(entry, now_ns)
        if entry.size > self.size_max:
            self.size_max = entry.size
        if entry.drop_ns == NEVER_NS:
            entry.untimed = HeapNode(entry, float(entry.sequence), entry.sequence)
            self.untimed.insert(entry.untimed)

    def remove(self, entry: Entry) -> None:
        node = entry.rank
        assert node is not None, "entry is not in this lane"
        self.ranking.remove(node)
        entry.rank = None
        if entry.untimed is not None:
            self.untimed.remove(entry.untimed)
            entry.untimed = None
        if len(self.untimed) == 0:
            self.oldest_claim = 0.0
        if len(self.ranking) == 0:
            self.claim = 0.0
            self.size_max = 0.0

    def due_oldest(self) -> Entry | None:
        """Return the oldest untimed entry if its claim covers it."""
        node = self.untimed.top()
        if node is None or self.oldest_claim < node.entry.size:
            return None
        return node.entry

    def is_due(self) -> bool:
        """Whether the lane sends by its claim, regardless of the strategy."""
        return self.is_oldest_turn or (self.share > 0.0 and self.claim >= self.size_max)

    def accrue(self, size: float) -> None:
        """Increase the claims for `size` bytes sent, if anything waits here."""
        if len(self.untimed):
            self.claim += 0.5 * self.share * size
            self.oldest_claim += 0.5 * self.share * size
        elif len(self.ranking):
            self.claim += self.share * size

    def pay(self, entry: Entry) -> None:
        """Subtract a sent entry from the claim that it was sent for."""
        size = entry.size
        if self.is_oldest_turn and self.due_oldest() is entry:
            self.oldest_claim -= size
        else:
            self.claim = self.claim - size if self.claim > size else 0.0


def check_shares(shares: Sequence[float]) -> None:
    """Raise ValueError unless there is at least one lane and the shares add up to at most 1."""
    if not shares:
        raise ValueError("shares are empty; at least one lane is needed, such as (0.0,)")
    for share in shares:
        if not (0.0 <= share <= 1.0):
            raise ValueError(f"share {share} is not between 0 and 1")
    if math.fsum(shares) > 1.0:
        raise ValueError(f"shares {tuple(shares)} add up to more than 1")


def choose(lanes: list[LinkLane], now_ns: int) -> Entry | None:
    """Return the entry to send next: that of a due claim, otherwise the best by the strategy."""
    due: LinkLane | None = None
    oldest_due: Entry | None = None
    most = 0.0
    for lane in lanes:
        # An empty lane has no claim: zero is not more than zero.
        if lane.claim >= lane.size_max and lane.claim > most:
            due, oldest_due, most = lane, None, lane.claim
        if lane.oldest_claim > most:
            oldest = lane.due_oldest()
            if oldest is not None:
                due, oldest_due, most = lane, oldest, lane.oldest_claim
    if due is not None and oldest_due is not None:
        due.is_oldest_turn = True
        return oldest_due
    best: HeapNode | None = None
    if due is not None:
        best = due.ranking.best(now_ns, None)
    else:
        for lane in lanes:
            best = lane.ranking.best(now_ns, best)
    return None if best is None else best.entry


def charge(lanes: list[LinkLane], entry: Entry) -> None:
    """Update the claims for an entry that is sent, before it is removed from its lane."""
    for lane in lanes:
        if lane.share > 0.0:
            lane.accrue(entry.size)
    lanes[entry.lane].pay(entry)
    for lane in lanes:
        lane.is_oldest_turn = False
