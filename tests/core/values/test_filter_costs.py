"""What filters cost in all: it follows whatever happens to subscriptions, and has a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.broker_doubles import Node, Peer

from timebound.core.broker import QUOTA_EXCEEDED
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.filter_costs import FilterCosts
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms

SEARCH = "text LIKE '%a%'"  # costs 1 for each subscription, and 32 once
WHERES = ("", "x = 1", "x = 1 AND y = 2", SEARCH, "text CONTAINS 'b'")


def want(node: Node, peer: Peer, topic_filter: str, where: str) -> int:
    subscription = Subscription(client_id=peer.client_id, topic_filter=topic_filter, terms=Terms(where=where))
    return node.broker.subscribe(peer.session, subscription, node.now_ns)


def cost(node: Node) -> int:
    node.check()
    return node.broker.statistics().filter_cost


def test_many_clients_together_reach_the_limit_of_the_broker() -> None:
    node = Node(BrokerLimits(filter_cost_per_client_max=3, filter_cost_total_max=5))
    peers = [node.connect(f"c{number}") for number in range(3)]

    codes = [want(node, peer, topic, "x = 1") for peer in peers for topic in ("a", "b")]

    assert codes == [0, 0, 0, 0, 0, QUOTA_EXCEEDED]
    wanted = Subscription(client_id="c2", topic_filter="b", terms=Terms(where="x = 1"))
    assert node.broker.limit_reached(peers[2].session, wanted) == "filter_cost_total_max"
    assert cost(node) == 5
    assert node.subscribe(peers[2], "b", 0) == 0  # what has no filter costs nothing


def test_equal_searches_of_several_clients_count_once() -> None:
    node = Node()
    first, second = node.connect("first"), node.connect("second")
    want(node, first, "a", SEARCH)
    assert cost(node) == 1 + 32

    want(node, second, "b", SEARCH)
    assert cost(node) == 2 + 32

    node.unsubscribe(first, "a")
    assert cost(node) == 1 + 32
    node.unsubscribe(second, "b")
    assert cost(node) == 0


def test_what_goes_gives_back_what_it_cost() -> None:
    node = Node()
    unsubscribed, replaced, ended, expired = [node.connect(name, expiry_s=10) for name in "abcd"]
    taken_over, denied = node.connect("e", expiry_s=10), node.connect("f", user="mallory")
    for peer in (unsubscribed, replaced, ended, expired, taken_over, denied):
        want(node, peer, "t", "x = 1 AND y = 2")
    assert cost(node) == 12

    node.unsubscribe(unsubscribed, "t")
    assert cost(node) == 10
    want(node, replaced, "t", "x = 1")
    assert cost(node) == 9
    node.disconnect(ended, expiry_s=0)
    assert cost(node) == 7
    node.disconnect(expired)
    assert cost(node) == 7  # its messages are still matched
    node.advance(10)
    assert cost(node) == 5
    node.connect("e")
    assert cost(node) == 5  # resumed, with its subscription
    node.connect("e", clean=True)
    assert cost(node) == 3
    node.broker.set_access(AccessList([AccessRule("", "all", "#", True)]), node.now_ns)
    assert cost(node) == 1


@pytest.mark.parametrize("total_max", [100, 3])
def test_a_restart_keeps_all_sessions_and_counts_what_they_cost(total_max: int) -> None:
    node = Node()
    for name in "abc":
        want(node, node.connect(name, expiry_s=1_000), "t", "x = 1 AND y = 2")
    node.settle()

    node.limits = BrokerLimits(filter_cost_total_max=total_max)
    node.crash()

    assert cost(node) == 6
    again = node.connect("a", expiry_s=1_000)
    assert want(node, again, "t", "x = 1 AND y = 2") == 0  # what it had; nothing becomes dearer
    assert want(node, again, "t", "x = 1") == 0
    assert want(node, again, "u", "z = 1") == (QUOTA_EXCEEDED if total_max == 3 else 0)
    assert cost(node) == (5 if total_max == 3 else 6)


subscriptions = st.builds(
    lambda where, parts: Subscription(
        client_id="c",
        topic_filter="#",
        terms=Terms(
            where=where,
            correlate=f"all({', '.join(['a/b'] * parts)})" if parts else "",
        ),
    ),
    st.sampled_from(WHERES),
    st.integers(0, 3),
)


@given(st.lists(st.tuples(st.integers(0, 2), subscriptions, st.integers(0, 9)), max_size=20))
def test_sums_of_parts_and_of_the_whole_are_those_of_their_subscriptions(
    steps: list[tuple[int, Subscription, int]],
) -> None:
    whole = FilterCosts()
    parts = [FilterCosts(whole) for _ in range(3)]
    held: list[list[Subscription]] = [[], [], []]
    for number, subscription, place in steps:
        if place < len(held[number]):
            parts[number].count(held[number].pop(place), -1)
        else:
            parts[number].count(subscription, 1)
            held[number].append(subscription)

        parts[number]._check(held[number])
        whole._check(held[0] + held[1] + held[2])
        assert parts[number].whole_total() == whole.total
