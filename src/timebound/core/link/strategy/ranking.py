"""Rankings: find the entry of largest value exactly, without valuing all entries.

Entries are in a heap by a bound that their value does not exceed. Only the top is valued: if its
value is no smaller than the next bound, no other entry can be larger.

A value that never grows is its own bound. A value that may grow has a bound for a window of time;
entries whose window has passed get a new one, or, without a useful bound, join the few *close*
ones that are valued at every choice. The windows and the close entries affect only the amount of
work, never the choice.
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import STATIC, WINDOWED, Strategy
from timebound.core.link.strategy.entry import NEVER_NS, Entry, HeapNode
from timebound.core.link.strategy.heap import Heap
from timebound.core.link.strategy.windows import Windows

# The shortest window of an entry, in times of one message; a shorter one would be over at the next choice.
_WINDOW_LEAST: Final = 1.0
_WINDOW_NS_MIN: Final = 1_000
# Later ends of windows count as never, ns.
_FAR: Final = 1e17
# How fast the level rises to the winning value; it falls at once.
_RISE: Final = 0.005


class Ranking:
    """The entries of one queue or lane, ranked by one strategy.

    `newest_first` reverses the order of ties. `valued` counts evaluations, for benchmarks.
    """

    __slots__ = (
        "_level",
        "bounded",
        "bounds",
        "close",
        "link",
        "newest_first",
        "strategy",
        "valued",
        "windows",
    )

    def __init__(self, strategy: Strategy, link: LinkModel, newest_first: bool = False) -> None:
        self.strategy = strategy
        self.link = link
        self.newest_first = newest_first
        self.bounds = Heap()
        self.windows = Windows(link.origin_ns)
        self.close: list[HeapNode] = []
        self.valued = 0
        self.bounded = 0
        self._level = -math.inf  # a low estimate of the next winning value

    def __len__(self) -> int:
        return len(self.bounds.nodes) + len(self.close)

    def nodes(self) -> list[HeapNode]:
        """Return all nodes in arbitrary order."""
        return self.bounds.nodes + self.close

    def insert(self, entry: Entry, now_ns: int) -> HeapNode:
        """Rank an entry; return its node, for `remove`."""
        if len(self) == 0:
            self.windows.reset(self._window_least_ns() >> 2, now_ns)
        node = HeapNode(entry, 0.0, -entry.sequence if self.newest_first else entry.sequence)
        if self._appraise(node, now_ns):
            self.bounds.insert(node)
        else:
            self._join_close(node)
        return node

    def remove(self, node: HeapNode) -> None:
        if node.is_close:
            self._leave_close(node)
        else:
            self._leave_heap(node)

    def best(self, now_ns: int, rival: HeapNode | None) -> HeapNode | None:
        """Return the best of the nodes here and a rival that was valued at the same time.

        Its `value` is up to date. Without a rival, None means that the ranking is empty.
        """
        if self.strategy.kind == WINDOWED:
            return self._best_windowed(now_ns, rival)
        is_static = self.strategy.kind == STATIC
        while True:
            node = self.bounds.top()
            if node is None or (rival is not None and not _may_beat(node, rival)):
                return rival
            if is_static or node.valued_ns == now_ns:
                return node
            self._value(node, now_ns)
            self.bounds.change(node, -node.value)

    def rebuild(self, strategy: Strategy, now_ns: int) -> None:
        """Rank the same entries by another strategy or a changed link, in O(n)."""
        if strategy is not self.strategy:
            self.strategy = strategy
            self._level = -math.inf
        self.windows.reset(self._window_least_ns() >> 2, now_ns)
        nodes = self.nodes()
        self.close = []
        ranked: list[HeapNode] = []
        for node in nodes:
            node.is_close = False
            node.bucket = -1
            if self._appraise(node, now_ns):
                ranked.append(node)
            else:
                self._join_close(node)
        self.bounds.replace_all(ranked)

    def _best_windowed(self, now_ns: int, rival: HeapNode | None) -> HeapNode | None:
        self._renew(now_ns)
        best = rival
        for node in self.close:
            if node.valued_ns != now_ns:
                self._value(node, now_ns)
            if best is None or _beats(node, best):
                best = node
        while True:
            top = self.bounds.top()
            if top is None or (best is not None and not _may_beat(top, best)):
                break
            if top.is_exact:
                top.value = -top.key
                top.valued_ns = now_ns
                best = top
                break
            if best is not None and self._is_calm(top, best, now_ns):
                continue
            self._leave_heap(top)
            self._value(top, now_ns)
            self._join_close(top)
            top.is_fresh = best is not None
            if best is None or _beats(top, best):
                best = top
        if best is not None:
            if best.value < self._level or self._level == -math.inf:
                self._level = best.value
            else:
                self._level += _RISE * (best.value - self._level)
            self._retire(best, now_ns)
        return best

    def _appraise(self, node: HeapNode, now_ns: int) -> bool:
        """Compute the key of a node; False if it has none and must be close."""
        if self.strategy.kind == WINDOWED:
            node.key = self._calm_key(node, now_ns, self._level, math.inf)
            return node.key < math.inf
        self._value(node, now_ns)
        node.key = -node.value
        return True

    def _is_calm(self, top: HeapNode, best: HeapNode, now_ns: int) -> bool:
        """Whether the top surely does not beat the best now: its higher bound may be for a later time.

        If so it has a new bound; otherwise it must be valued.
        """
        self.windows.remove(top)
        key = self._calm_key(top, now_ns, best.value, best.value)
        if key == math.inf:
            return False
        self.bounds.change(top, key)
        return not _may_beat(top, best)

    def _value(self, node: HeapNode, now_ns: int) -> None:
        if node.is_close:
            node.key = node.value  # the last value, to see whether it falls
        node.value = self.strategy.value(node.entry, now_ns, self.link)
        node.valued_ns = now_ns
        self.valued += 1

    def _renew(self, now_ns: int) -> None:
        """Compute a new bound for each entry whose window has passed, or make it close."""
        due = self.windows.take_due(now_ns)
        while due is not None:
            for node in due:
                key = self._calm_key(node, now_ns, self._level, self._level)
                if key < math.inf:
                    self.bounds.change(node, key)
                else:
                    self.bounds.remove(node)
                    self._join_close(node)
                    node.is_fresh = True
            due = self.windows.take_due(now_ns)

    def _retire(self, best: HeapNode, now_ns: int) -> None:
        """Return close entries that cannot win for a while to the heap.

        Only entries below the level whose value falls are tried: a rising one would soon be close again.
        """
        position = 0
        while position < len(self.close):
            node = self.close[position]
            if node.is_fresh:
                node.is_fresh = False
            elif node is not best and node.value <= self._level and node.value <= node.key:
                key = self._calm_key(node, now_ns, self._level, self._level)
                if key < math.inf:
                    self._leave_close(node)
                    node.key = key
                    self.bounds.insert(node)
                    continue
            position += 1

    def _calm_key(self, node: HeapNode, now_ns: int, level: float, bound_max: float) -> float:
        """Open a window in which a bound holds for a node, and return the bound as a key of the heap.

        Return infinity, without a window, if the bound exceeds `bound_max` or the window is too short.
        """
        entry = node.entry
        self.bounded += 1
        until, bound, is_exact = self.strategy.outlook(entry, now_ns, level, self.link)
        if bound > bound_max and not is_exact:
            return math.inf
        until_ns = entry.published_ns + int(until) if until < _FAR else NEVER_NS
        if until_ns < now_ns + self._window_least_ns():
            return math.inf
        self.windows.insert(node, until_ns)
        node.is_exact = is_exact
        return -bound

    def _window_least_ns(self) -> int:
        window_ns = int(_WINDOW_LEAST * self.link.first_ns)
        return window_ns if window_ns > _WINDOW_NS_MIN else _WINDOW_NS_MIN

    def _join_close(self, node: HeapNode) -> None:
        node.is_close = True
        node.key = math.inf
        node.position = len(self.close)
        self.close.append(node)

    def _leave_close(self, node: HeapNode) -> None:
        last = self.close.pop()
        if last is not node:
            last.position = node.position
            self.close[node.position] = last
        node.is_close = False
        node.position = -1

    def _leave_heap(self, node: HeapNode) -> None:
        self.bounds.remove(node)
        self.windows.remove(node)

    def _check(self) -> None:
        self.bounds._check()
        self.windows._check()
        for position, node in enumerate(self.close):
            assert node.is_close, "a close node is not marked"
            assert node.position == position, "the position of a close node is wrong"
            assert node.bucket == -1, "a close node has a window"
        if self.strategy.kind != WINDOWED:
            assert len(self.windows) == 0, "an unnecessary window"
            assert not self.close, "an unnecessary close entry"


def _beats(node: HeapNode, other: HeapNode) -> bool:
    """Whether a node ranks before another, both valued now."""
    return node.value > other.value or (node.value == other.value and node.tie < other.tie)


def _may_beat(node: HeapNode, rival: HeapNode) -> bool:
    """Whether, by its bound, a node could rank before a rival that was valued now."""
    bound = -node.key
    return bound > rival.value or (bound == rival.value and node.tie < rival.tie)
