"""The entry of largest value, found exactly without valuing all of them.

Every entry stands in a heap under a number that its value does not exceed. Only the top is
valued: when its value is no smaller than the bound below it, nothing else can be larger. A
value that never grows is its own bound for ever. A value that may grow has a bound for a
window of time; windows that have passed are renewed before the next choice. An entry nobody
had to look at gets a window twice as long, one that was valued in vain half as long.
"""

from __future__ import annotations

from typing import Final

from timebound.core.strategy.base import STATIC, WINDOWED, Strategy, quiet_until_ns
from timebound.core.strategy.entry import NEVER_NS, Entry, Link, Node
from timebound.core.strategy.heap import Heap

# The first window of an entry, in times of one message; shorter ones would pass between two choices.
_WINDOW_START: Final = 8.0
_WINDOW_LEAST: Final = 2.0
_WINDOW_NS_MIN: Final = 1_000
_WINDOW_NS_MAX: Final = 60_000_000_000


class Ranking:
    """Entries of one queue (or one class of it) under one strategy.

    `newest_first` breaks ties the other way round. `valued` counts evaluations, for benchmarks.
    """

    __slots__ = ("bounds", "link", "newest_first", "strategy", "valued", "windows")

    def __init__(self, strategy: Strategy, link: Link, newest_first: bool = False) -> None:
        self.strategy = strategy
        self.link = link
        self.newest_first = newest_first
        self.bounds = Heap()
        self.windows = Heap()
        self.valued = 0

    def __len__(self) -> int:
        return len(self.bounds)

    def insert(self, entry: Entry, now_ns: int) -> Node:
        """Rank an entry; the caller keeps the node for `remove`."""
        node = Node(entry, 0.0, -entry.sequence if self.newest_first else entry.sequence)
        window = self._appraise(node, now_ns)
        self.bounds.insert(node)
        if window is not None:
            self.windows.insert(window)
        return node

    def remove(self, node: Node) -> None:
        self.bounds.remove(node)
        window = node.window
        if window is not None:
            self.windows.remove(window)
            window.window = None
            node.window = None

    def best(self, now_ns: int, rival: Node | None) -> Node | None:
        """The node that goes first of those here and a rival valued at the same time.

        Its `value` is up to date. With no rival, None means that nothing is ranked.
        """
        self._renew(now_ns)
        is_static = self.strategy.kind == STATIC
        while True:
            node = self.bounds.top()
            if node is None:
                return rival
            if rival is not None:
                bound = -node.key
                if bound < rival.value or (bound == rival.value and node.tie > rival.tie):
                    return rival
            if is_static or node.valued_ns == now_ns:
                return node
            self._value(node, now_ns)

    def rebuild(self, strategy: Strategy, now_ns: int) -> None:
        """Rank the same entries under another strategy or a changed link, in O(n)."""
        self.strategy = strategy
        nodes = self.bounds.nodes
        windows: list[Node] = []
        for node in nodes:
            window = self._appraise(node, now_ns)
            if window is not None:
                windows.append(window)
        self.bounds.replace_all(nodes)
        self.windows.replace_all(windows)

    def _appraise(self, node: Node, now_ns: int) -> Node | None:
        """Set the key of a node that is new or to be ranked anew, and give it its window if it needs one."""
        strategy = self.strategy
        if strategy.kind != WINDOWED:
            value = strategy.value(node.entry, now_ns, self.link)
            node.value = value
            node.valued_ns = now_ns
            node.key = -value
            node.window = None
            return None
        node.valued_ns = -1
        node.window_ns = _clamped(_WINDOW_START * self.link.first_ns)
        until_ns = self._window_end_ns(node, now_ns)
        node.key = -strategy.bound(node.entry, now_ns, until_ns, self.link)
        window = Node(node.entry, float(until_ns - self.link.origin_ns), node.tie)
        window.window = node
        node.window = window
        return window

    def _value(self, node: Node, now_ns: int) -> None:
        value = self.strategy.value(node.entry, now_ns, self.link)
        self.valued += 1
        node.value = value
        node.valued_ns = now_ns
        self.bounds.change(node, -value)
        if node.window is not None:
            # The key is the value of this moment; at any later one it has to be renewed.
            node.window_ns = max(node.window_ns >> 1, _clamped(_WINDOW_LEAST * self.link.first_ns))
            self.windows.change(node.window, float(now_ns - self.link.origin_ns))

    def _renew(self, now_ns: int) -> None:
        """Give a new bound to every entry whose window has passed."""
        now = float(now_ns - self.link.origin_ns)
        while True:
            window = self.windows.top()
            if window is None or window.key >= now:
                return
            node = window.window
            assert node is not None, "a window without its node"
            if node.valued_ns < 0:
                node.window_ns = min(2 * node.window_ns, _WINDOW_NS_MAX)
            node.valued_ns = -1
            until_ns = self._window_end_ns(node, now_ns)
            self.valued += 1
            self.bounds.change(node, -self.strategy.bound(node.entry, now_ns, until_ns, self.link))
            self.windows.change(window, float(until_ns - self.link.origin_ns))

    def _window_end_ns(self, node: Node, now_ns: int) -> int:
        quiet_ns = quiet_until_ns(node.entry, now_ns, self.link)
        if quiet_ns >= NEVER_NS:
            return NEVER_NS
        return max(quiet_ns, now_ns + node.window_ns)

    def _check(self) -> None:
        self.bounds._check()
        self.windows._check()
        if self.strategy.kind == WINDOWED:
            assert len(self.windows) == len(self.bounds), "an entry has no window"
        else:
            assert len(self.windows) == 0, "a window without need"


def _clamped(window: float) -> int:
    return min(max(int(window), _WINDOW_NS_MIN), _WINDOW_NS_MAX)
