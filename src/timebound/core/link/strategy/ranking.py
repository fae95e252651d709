"""The entry of largest value, found exactly without valuing all of them.

Entries stand in a heap under a number that their value does not exceed. Only the top is
valued: when its value is no smaller than the bound below it, nothing else can be larger.

A value that never grows is its own bound for ever. A value that may grow has a bound for a
window of time; entries whose window has passed get a new one, or, if no useful bound is found,
join the few *close* ones that are valued at every choice. How long windows are, and who is
close, decides only how much work is done, never what is chosen.
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import STATIC, WINDOWED, Strategy
from timebound.core.link.strategy.entry import NEVER_NS, Entry, HeapNode
from timebound.core.link.strategy.heap import Heap
from timebound.core.link.strategy.windows import Windows

# The least window of an entry, in times of one message; a shorter one would pass at the next choice.
_WINDOW_LEAST: Final = 1.0
_WINDOW_NS_MIN: Final = 1_000
# No window ends so late, ns.
_FAR: Final = 1e17
# How fast the level rises again to what wins; it falls at once.
_RISE: Final = 0.005


class Ranking:
    """Entries of one queue (or one class of it) under one strategy.

    `newest_first` breaks ties the other way round. `valued` counts evaluations, for benchmarks.
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
        self._level = -math.inf  # a low guess at what it takes to win next

    def __len__(self) -> int:
        return len(self.bounds.nodes) + len(self.close)

    def nodes(self) -> list[HeapNode]:
        """All nodes, in no useful order."""
        return self.bounds.nodes + self.close

    def insert(self, entry: Entry, now_ns: int) -> HeapNode:
        """Rank an entry; the caller keeps the node for `remove`."""
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
        """The node that goes first of those here and a rival valued at the same time.

        Its `value` is up to date. With no rival, None means that nothing is ranked.
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
        """Rank the same entries under another strategy or a changed link, in O(n)."""
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
        """Give a key to a node that is new or to be ranked anew; False if it has none, and is close."""
        if self.strategy.kind == WINDOWED:
            node.key = self._calm_key(node, now_ns, self._level, math.inf)
            return node.key < math.inf
        node.value = self.strategy.value(node.entry, now_ns, self.link)
        node.valued_ns = now_ns
        node.key = -node.value
        return True

    def _is_calm(self, top: HeapNode, best: HeapNode, now_ns: int) -> bool:
        """Whether the top, whose bound may be one for later, surely does not beat the best now.

        If so it has another bound; else it is to be valued.
        """
        self.windows.remove(top)
        key = self._calm_key(top, now_ns, best.value, best.value)
        if key == math.inf:
            return False
        self.bounds.change(top, key)
        return not _may_beat(top, best)

    def _value(self, node: HeapNode, now_ns: int) -> None:
        if node.is_close:
            node.key = node.value  # so that it is known whether it falls
        node.value = self.strategy.value(node.entry, now_ns, self.link)
        node.valued_ns = now_ns
        self.valued += 1

    def _renew(self, now_ns: int) -> None:
        """Give a new bound to every entry whose window has passed, or take it among the close ones."""
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
        """Send back to the heap the close entries that cannot win for a while.

        Only those are asked that are below what wins and fall: one that rises would soon be back.
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
        """Open a window for a node in which a bound holds, and give that as a key of the heap.

        Infinity, and no window, if the bound is larger than allowed or would not hold for long.
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
            assert node.is_close, "a node does not know that it is close"
            assert node.position == position, "a close node does not know its place"
            assert node.bucket == -1, "a close node has a window"
        if self.strategy.kind != WINDOWED:
            assert len(self.windows) == 0, "a window without need"
            assert not self.close, "a close entry without need"


def _beats(node: HeapNode, other: HeapNode) -> bool:
    """Whether a node goes before another, both valued now."""
    return node.value > other.value or (node.value == other.value and node.tie < other.tie)


def _may_beat(node: HeapNode, rival: HeapNode) -> bool:
    """Whether, by its bound, a node could go before a rival valued now."""
    bound = -node.key
    return bound > rival.value or (bound == rival.value and node.tie < rival.tie)
