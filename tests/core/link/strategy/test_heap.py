"""The heap whose nodes know their place, against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import Entry, HeapNode
from timebound.core.link.strategy.heap import Heap

ENTRY = Entry(None, 1, 0, Audience([Term()]))

operations = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "remove", "change"]), st.integers(0, 9), st.integers(0, 99)
    ),
    max_size=80,
)


@given(operations)
def test_top_is_the_smallest_key_then_the_smallest_tie(steps: list[tuple[str, int, int]]) -> None:
    heap = Heap()
    held: list[HeapNode] = []
    for tie, (operation, key, pick) in enumerate(steps):
        if operation == "insert" or not held:
            held.append(HeapNode(ENTRY, float(key), tie))
            heap.insert(held[-1])
        elif operation == "remove":
            heap.remove(held.pop(pick % len(held)))
        else:
            heap.change(held[pick % len(held)], float(key))
        heap._check()
        assert len(heap) == len(held)
        assert heap.top() is (min(held, key=lambda node: (node.key, node.tie)) if held else None)


@given(st.lists(st.integers(0, 20), max_size=60))
def test_replacing_all_nodes_orders_them(keys: list[int]) -> None:
    heap = Heap()
    heap.insert(HeapNode(ENTRY, 1.0, -1))

    heap.replace_all([HeapNode(ENTRY, float(key), tie) for tie, key in enumerate(keys)])

    heap._check()
    found = []
    while (node := heap.top()) is not None:
        found.append((node.key, node.tie))
        heap.remove(node)
    assert found == sorted((float(key), tie) for tie, key in enumerate(keys))
