"""Ends of windows: nodes in buckets of time, which are taken out when their bucket begins.

A heap would keep the exact order of the ends, which is not needed, and cost more than the bounds
themselves. A node is in at most one bucket and can be removed at any time.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.entry import NEVER_NS, HeapNode

# After a jump in time over this many buckets per filled one, the empty ones are skipped.
_JUMP: Final = 4


class Windows:
    """Nodes by the end of their window; `origin_ns` is the origin of time."""

    __slots__ = ("_buckets", "_count", "_next", "_origin_ns", "_width_ns")

    def __init__(self, origin_ns: int) -> None:
        self._origin_ns = origin_ns
        self._width_ns = 1
        self._buckets: dict[int, list[HeapNode]] = {}
        self._next = 0  # no filled bucket lies before this one
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def reset(self, width_ns: int, now_ns: int) -> None:
        """Remove all nodes and start with buckets of this width."""
        self._width_ns = width_ns
        self._buckets = {}
        self._count = 0
        self._next = (now_ns - self._origin_ns) // width_ns

    def insert(self, node: HeapNode, until_ns: int) -> int:
        """Add a node whose bound ends at about `until_ns`, at least one width from now, or never.

        Return the exact time until which the bound must hold.
        """
        if until_ns >= NEVER_NS:
            node.bucket = -1
            return NEVER_NS
        index = (until_ns - self._origin_ns) // self._width_ns
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = []
            self._buckets[index] = bucket
        node.bucket = index
        node.slot = len(bucket)
        bucket.append(node)
        self._count += 1
        return self._origin_ns + index * self._width_ns - 1

    def remove(self, node: HeapNode) -> None:
        """Remove a node from its bucket, if it is in one."""
        if node.bucket < 0:
            return
        bucket = self._buckets[node.bucket]
        last = bucket.pop()
        if last is not node:
            last.slot = node.slot
            bucket[node.slot] = last
        elif not bucket:
            del self._buckets[node.bucket]
        node.bucket = -1
        self._count -= 1

    def take_due(self, now_ns: int) -> list[HeapNode] | None:
        """Take out some nodes whose window has passed; None if there are none."""
        current = (now_ns - self._origin_ns) // self._width_ns
        while self._next <= current:
            bucket = self._buckets.pop(self._next, None)
            if bucket is not None:
                for node in bucket:
                    node.bucket = -1
                self._count -= len(bucket)
                return bucket
            if current - self._next > _JUMP * len(self._buckets) + _JUMP:
                # Not beyond the next bucket: a node may still be added before the first filled one.
                self._next = current + 1
                if self._buckets:
                    self._next = min(self._next, min(self._buckets))
            else:
                self._next += 1
        return None

    def _check(self) -> None:
        assert self._count == sum(len(bucket) for bucket in self._buckets.values()), "the count is off"
        for index, bucket in self._buckets.items():
            assert bucket, "an empty bucket is kept"
            assert index >= self._next, "a bucket was passed over"
            for slot, node in enumerate(bucket):
                assert (node.bucket, node.slot) == (index, slot), "the bucket of a node is wrong"
