"""The retained store against a dict, its limits, and topics as deep as a packet allows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.topic_strategies import FILTERS, TOPICS, selects

from timebound.core.matching.retained import NODE_COST, RetainedStore
from timebound.core.values.message import Message, copy_cost

MESSAGES_MAX = 4
BYTES_MAX = 4_000


def retained(topic: str, payload: bytes = b"x") -> Message:
    return Message(topic, payload, 0, True, 0)


def cost_of(topic: str, payload_bytes: int) -> int:
    return copy_cost(len(topic) + payload_bytes + 8)


def stored(*topics: str) -> RetainedStore:
    store = RetainedStore(1_000, 100_000_000)
    for topic in topics:
        assert store.put(retained(topic))
    return store


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("a", ["a"]),
        ("a/#", ["a", "a/b", "a/b/c"]),  # 4.7.1.2: with the parent
        ("a/+", ["a/b"]),
        ("+/b/#", ["a/b", "a/b/c"]),
        ("#", ["a", "a/b", "a/b/c"]),  # 4.7.2: without $
        ("+/b", ["a/b"]),
        ("$s/#", ["$s/b"]),
        ("$s/+", ["$s/b"]),
        ("x", []),
        ("a/b/c/d", []),
    ],
)
def test_a_filter_finds_what_it_selects(topic_filter: str, expected: list[str]) -> None:
    store = stored("a", "a/b", "a/b/c", "$s/b")

    assert [message.topic for message in store.match(topic_filter)] == expected


def test_put_replaces_the_message_of_the_topic() -> None:
    store = stored("a")

    assert store.put(retained("a", b"newer"))

    assert [message.payload for message in store.match("a")] == [b"newer"]
    assert len(store) == 1


def test_the_brokers_own_figures_take_no_room_from_clients() -> None:
    store = RetainedStore(1, cost_of("a", 1) + NODE_COST)
    for number in range(3):
        assert store.put(retained(f"$SYS/{number}", b"a long figure"))

    assert store.put(Message("a", b"x", 0, True, 0, "client"))
    assert not store.put(Message("$SYS/of-a-client", b"x", 0, True, 0, "client"))
    assert store.put(retained("$SYS/0", b"another figure"))

    assert (len(store), store.size_bytes) == (1, cost_of("a", 1) + NODE_COST)
    assert len(store.match("$SYS/#")) == 3
    store._check()
    assert store.remove("$SYS/1")
    assert store.remove("a")
    assert (len(store), store.size_bytes) == (0, 0)
    store._check()


def test_a_full_store_refuses_a_new_topic_and_still_replaces_old_ones() -> None:
    store = RetainedStore(2, 10_000)
    assert store.put(retained("a"))
    assert store.put(retained("b"))

    assert not store.put(retained("c"))
    assert store.put(retained("b", b"newer"))

    assert store.get("c") is None
    assert [message.payload for message in store.match("b")] == [b"newer"]


def test_a_message_beyond_the_bytes_is_refused_and_changes_nothing() -> None:
    full = cost_of("a", 21) + NODE_COST
    store = RetainedStore(10, full)
    assert store.put(retained("a", b"x" * 21))

    assert not store.put(retained("a", b"x" * 22))
    assert not store.put(retained("b", b""))

    assert store.size_bytes == full
    assert [len(message.payload) for message in store.match("#")] == [21]


def test_every_level_of_a_topic_counts_and_shared_ones_once() -> None:
    store = stored("a/b/c", "a/b/d")

    assert store.size_bytes == 2 * cost_of("a/b/c", 1) + 4 * NODE_COST
    assert not RetainedStore(10, cost_of("a/b/c", 1) + 3 * NODE_COST - 1).put(retained("a/b/c"))
    store.remove("a/b/c")
    assert store.size_bytes == cost_of("a/b/d", 1) + 3 * NODE_COST


def test_what_an_earlier_run_retained_stays_under_lower_limits() -> None:
    store = RetainedStore(1, 10)
    for topic in ("a", "b"):
        store.restore(retained(topic, b"x" * 20))

    assert not store.put(retained("c"))
    assert store.put(retained("b", b"smaller"))
    assert [message.topic for message in store.match("#")] == ["a", "b"]
    store._check()


def test_removing_a_topic_keeps_those_above_and_below() -> None:
    store = stored("a", "a/b", "a/b/c")

    assert store.remove("a/b")
    assert not store.remove("a/b")

    assert [message.topic for message in store.match("#")] == ["a", "a/b/c"]


def test_the_deepest_topic_is_found_and_removed() -> None:
    # A topic has at most 65,535 bytes (1.5.4), so 65,536 levels: more than any stack is deep.
    topic = "/" * 65_535
    store = stored(topic, "a")

    assert [message.topic for message in store.match("/".join(["+"] * 32_000) + "/#")] == [topic]
    assert [message.topic for message in store.match(topic)] == [topic]
    assert store.remove(topic)
    assert len(store.match("#")) == 1


def naive_cost(messages: list[Message]) -> int:
    levels = [message.topic.split("/") for message in messages]
    nodes = {tuple(one[: depth + 1]) for one in levels for depth in range(len(one))}
    return sum(copy_cost(message.size()) for message in messages) + len(nodes) * NODE_COST


class RetainedMachine(RuleBasedStateMachine):
    """Any sequence of puts and removes, beside a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.store = RetainedStore(MESSAGES_MAX, BYTES_MAX)
        self.expected: dict[str, Message] = {}

    @rule(topic=TOPICS, size=st.integers(0, 400))
    def put(self, topic: str, size: int) -> None:
        message = retained(topic, b"x" * size)
        others = [kept for name, kept in self.expected.items() if name != topic]
        old = self.expected.get(topic)
        fits = len(others) < MESSAGES_MAX and (
            naive_cost([*others, message]) <= BYTES_MAX or (old is not None and message.size() <= old.size())
        )

        assert self.store.put(message) is fits
        if fits:
            self.expected[topic] = message

    @rule(topic=TOPICS)
    def remove(self, topic: str) -> None:
        assert self.store.remove(topic) is (self.expected.pop(topic, None) is not None)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(list(self.expected)))

        assert self.store.remove(topic)
        del self.expected[topic]

    @rule(topic_filter=FILTERS)
    def match(self, topic_filter: str) -> None:
        found = self.store.match(topic_filter)

        wanted = [message for topic, message in self.expected.items() if selects(topic_filter, topic)]
        assert len(found) == len(wanted)
        assert {id(message) for message in found} == {id(message) for message in wanted}

    @invariant()
    def is_whole(self) -> None:
        self.store._check()
        assert len(self.store) == len(self.expected)
        assert all(self.store.get(topic) is message for topic, message in self.expected.items())


RetainedMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestRetained = RetainedMachine.TestCase


@settings(max_examples=50)
@given(st.lists(TOPICS, unique=True, max_size=12))
def test_an_emptied_store_keeps_nothing(topics: list[str]) -> None:
    store = stored(*topics)

    for topic in sorted(topics):
        assert store.remove(topic)

    assert store.size_bytes == 0
    assert not store._root.children


@pytest.mark.parametrize("topic_filter", ["#", "+/#", "a/#", "a/+", "+/+/c", "a/b/c", "$SYS/#", "x"])
def test_a_walk_finds_the_same_in_parts(topic_filter: str) -> None:
    store = RetainedStore(100, 100_000)
    for topic in ("a", "a/b", "a/b/c", "b/b/c", "c", "$SYS/x", "a/d", "d/e/f/g"):
        store.put(Message(topic, b"x", 0, True, 0))

    walk = store.walk(topic_filter)
    found = []
    while not walk.is_over():
        part = walk.take(1)
        assert len(part) <= 1
        found += part

    assert found == store.match(topic_filter)
