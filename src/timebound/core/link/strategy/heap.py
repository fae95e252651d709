"""A binary heap whose nodes know their position, so that keys can change and nodes can be removed.

`heapq` cannot do either without leaving dead entries. Compiled, a change costs about as much as a
push of heapq. Smallest key first; equal keys by `tie`.
"""

from __future__ import annotations

from mypy_extensions import i64

from timebound.core.link.strategy.entry import HeapNode


class Heap:
    """Nodes ordered by (key, tie); each node is in at most one heap."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: list[HeapNode] = []

    def __len__(self) -> int:
        return len(self.nodes)

    def top(self) -> HeapNode | None:
        nodes = self.nodes
        return nodes[0] if nodes else None

    def insert(self, node: HeapNode) -> None:
        node.position = len(self.nodes)
        self.nodes.append(node)
        self._up(node)

    def remove(self, node: HeapNode) -> None:
        nodes = self.nodes
        last = nodes.pop()
        if last is not node:
            last.position = node.position
            nodes[last.position] = last
            self._up(last)
            self._down(last)
        node.position = -1

    def change(self, node: HeapNode, key: float) -> None:
        """Change the key of a node of this heap."""
        smaller = key < node.key
        node.key = key
        if smaller:
            self._up(node)
        else:
            self._down(node)

    def replace_all(self, nodes: list[HeapNode]) -> None:
        """Replace the contents by these nodes, in O(n)."""
        self.nodes = nodes
        for position in range(len(nodes)):
            nodes[position].position = position
        for position in range(len(nodes) // 2 - 1, -1, -1):
            self._down(nodes[position])

    def _up(self, node: HeapNode) -> None:
        nodes = self.nodes
        key = node.key
        tie = node.tie
        position = node.position
        while position > 0:
            parent_position: i64 = (position - 1) >> 1
            parent = nodes[parent_position]
            if parent.key < key or (parent.key == key and parent.tie < tie):
                break
            nodes[position] = parent
            parent.position = position
            position = parent_position
        nodes[position] = node
        node.position = position

    def _down(self, node: HeapNode) -> None:
        nodes = self.nodes
        size: i64 = len(nodes)
        key = node.key
        tie = node.tie
        position = node.position
        while True:
            child_position: i64 = 2 * position + 1
            if child_position >= size:
                break
            child = nodes[child_position]
            if child_position + 1 < size:
                other = nodes[child_position + 1]
                if other.key < child.key or (other.key == child.key and other.tie < child.tie):
                    child = other
                    child_position += 1
            if key < child.key or (key == child.key and tie < child.tie):
                break
            nodes[position] = child
            child.position = position
            position = child_position
        nodes[position] = node
        node.position = position

    def _check(self) -> None:
        for position, node in enumerate(self.nodes):
            assert node.position == position, "the position of a node is wrong"
            if position:
                parent = self.nodes[(position - 1) >> 1]
                assert (parent.key, parent.tie) < (node.key, node.tie), "the heap is out of order"
