"""Buckets of time: every node is found once its bound no longer holds, never later."""

from __future__ import annotations

import random

from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import NEVER_NS, Entry, HeapNode
from timebound.core.link.strategy.windows import Windows

ENTRY = Entry(None, 1, 0, Audience([Term()]))


def test_every_node_is_due_when_its_bound_ends_and_not_before() -> None:
    source = random.Random(1)
    for origin_ns in (0, 7, 10**18):
        windows = Windows(origin_ns)
        now_ns = origin_ns + 500
        windows.reset(10, now_ns)
        until: dict[HeapNode, int] = {}
        for _ in range(2_000):
            now_ns += source.choice((0, 1, 5, 30, 5_000))
            while (due := windows.take_due(now_ns)) is not None:
                assert all(until.pop(node) < now_ns for node in due)
            assert all(end_ns >= now_ns for end_ns in until.values())
            for _ in range(source.randint(0, 3)):
                node = HeapNode(ENTRY, 0.0, 0)
                asked_ns = now_ns + source.choice((10, 40, 999, 10_000))
                until[node] = windows.insert(node, asked_ns)
                assert asked_ns - 10 <= until[node] <= asked_ns
            if until and source.random() < 0.3:
                node = source.choice(list(until))
                windows.remove(node)
                del until[node]
            windows._check()
            assert len(windows) == len(until)


def test_bound_that_never_ends_is_in_no_bucket() -> None:
    windows = Windows(0)
    windows.reset(10, 0)
    node = HeapNode(ENTRY, 0.0, 0)

    assert windows.insert(node, NEVER_NS) == NEVER_NS

    assert len(windows) == 0
    windows.remove(node)
    assert windows.take_due(10**18) is None
