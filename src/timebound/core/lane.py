"""Classes of messages on one link, each with a share of it that nobody can take away.

The strategy chooses among all classes. Beside that every class that has something waiting
builds up a claim: its share of each byte sent. Once a claim covers its largest message, the
class is served whatever the strategy says. So, while it has something waiting, a class gets
at least its share of the bytes, less at most (number of classes + 1) largest messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from timebound.core.strategy.base import Strategy
from timebound.core.strategy.entry import NEVER_NS, Entry, Link, Node
from timebound.core.strategy.heap import Heap
from timebound.core.strategy.ranking import Ranking


class Lane:
    """The waiting entries of one class.

    Entries without any time limit are also kept by age: nothing ever drops them, so every
    second guaranteed turn goes to the oldest of them.
    """

    __slots__ = ("claim", "patient", "ranking", "share", "size_max", "turns")

    def __init__(self, share: float, strategy: Strategy, link: Link) -> None:
        self.share = share
        self.ranking = Ranking(strategy, link)
        self.patient = Heap()
        self.claim = 0.0  # bytes
        self.size_max = 0.0  # largest entry since the lane was last empty, bytes
        self.turns = 0

    def insert(self, entry: Entry, now_ns: int) -> None:
        entry.rank = self.ranking.insert(entry, now_ns)
        if entry.size > self.size_max:
            self.size_max = entry.size
        if entry.drop_ns == NEVER_NS:
            entry.patience = Node(entry, float(entry.sequence), entry.sequence)
            self.patient.insert(entry.patience)

    def remove(self, entry: Entry) -> None:
        node = entry.rank
        assert node is not None, "entry is not in this lane"
        self.ranking.remove(node)
        entry.rank = None
        if entry.patience is not None:
            self.patient.remove(entry.patience)
            entry.patience = None
        if len(self.ranking) == 0:
            self.claim = 0.0
            self.size_max = 0.0

    def next_guaranteed(self, now_ns: int) -> Entry:
        """The entry to send when this lane's turn has come; the lane is not empty."""
        self.turns += 1
        oldest = self.patient.top()
        if oldest is not None and self.turns & 1:
            return oldest.entry
        node = self.ranking.best(now_ns, None)
        assert node is not None, "an empty lane has no turn"
        return node.entry


def check_shares(shares: Sequence[float]) -> None:
    """Raise ValueError unless there is a lane and the shares fit on one link."""
    if not shares:
        raise ValueError("shares are empty; give at least one lane, such as (0.0,)")
    for share in shares:
        if not (0.0 <= share <= 1.0):
            raise ValueError(f"share {share} is not between 0 and 1")
    if math.fsum(shares) > 1.0:
        raise ValueError(f"shares {tuple(shares)} add up to more than 1")


def choose(lanes: list[Lane], now_ns: int) -> Entry | None:
    """The entry to send next: of a lane whose claim is due, else the strategy's best of all."""
    due: Lane | None = None
    for lane in lanes:
        # Strictly above zero, so that an empty lane (both zero) is never due.
        if lane.claim >= lane.size_max > 0.0 and (due is None or lane.claim > due.claim):
            due = lane
    if due is not None:
        return due.next_guaranteed(now_ns)
    best: Node | None = None
    for lane in lanes:
        best = lane.ranking.best(now_ns, best)
    return None if best is None else best.entry


def charge(lanes: list[Lane], served: Lane, size: float) -> None:
    """Account for `size` bytes sent from one lane, before the entry is removed from it."""
    for lane in lanes:
        if len(lane.ranking):
            lane.claim += lane.share * size
    served.claim = served.claim - size if served.claim > size else 0.0
