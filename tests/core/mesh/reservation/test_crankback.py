"""Reserving with a map and crankback: trees, full links, races, failures; no leaks and no overbooking."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.mesh.reservation.doubles import AMOUNT, MS, Net

from timebound.core.mesh.reservation.crankback import HOLD_NS, TRIES_MAX
from timebound.core.mesh.reservation.messages import DETOUR, DOWN, FULL, Commit, Demand, Obstacle, Resolution

LINE = {("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1}
DIAMOND = {("a", "b"): 1, ("b", "d"): 1, ("a", "c"): 2, ("c", "d"): 2}


def demand(flow: str = "f", root: str = "a", amount: int = AMOUNT, latency_ms: float = 0) -> Demand:
    return Demand(flow, root, amount, int(latency_ms * MS))


def test_a_path_is_reserved_on_each_link_and_released() -> None:
    net = Net(LINE)
    net.ask("d", "1", demand())
    net.settle()

    assert net.answers["1"] == Resolution("1", True, 3 * MS)
    assert net.reserved() == {("a", "b"): AMOUNT, ("b", "c"): AMOUNT, ("c", "d"): AMOUNT}
    assert net.tree("f") == {"b": "a", "c": "b", "d": "c"}
    assert net.passed == 6, "three there, three back"

    net.cancel("d", "1", "f")
    net.settle()
    assert net.reserved() == {}
    assert net.tree("f") == {}


def test_a_second_subscriber_joins_the_tree_where_it_meets_it() -> None:
    net = Net({**LINE, ("c", "e"): 1})
    net.ask("d", "1", demand())
    net.settle()
    before = net.passed
    net.ask("e", "2", demand())
    net.ask("b", "3", demand())
    net.settle()

    assert net.passed - before == 2
    assert net.answers["2"].latency_ns == 3 * MS
    assert net.answers["3"].latency_ns == 1 * MS
    net.cancel("d", "1", "f")
    net.settle()
    assert set(net.reserved()) == {("a", "b"), ("b", "c"), ("c", "e")}


def test_a_full_link_is_gone_round_and_named_if_there_is_no_way() -> None:
    net = Net(DIAMOND, capacity=AMOUNT)
    net.ask("d", "1", demand("f"))
    net.settle()
    net.ask("d", "2", demand("g"))
    net.settle()
    net.ask("d", "3", demand("h"))
    net.settle()

    assert net.answers["2"] == Resolution("2", True, 4 * MS, (), 1), "d knows that its own link is full"
    assert not net.answers["3"].is_granted
    full = {one.link: one for one in net.answers["3"].obstacles}
    assert full[("b", "d")] == Obstacle(("b", "d"), FULL, 0)
    assert set(full) >= {("b", "d"), ("c", "d")}


def test_a_latency_that_cannot_be_had_is_refused_without_a_message() -> None:
    net = Net(DIAMOND)
    net.ask("d", "1", demand(latency_ms=1.5))
    assert not net.answers["1"].is_granted
    assert net.passed == 0

    net.ask("d", "2", demand(latency_ms=2))
    net.settle()
    assert net.answers["2"].latency_ns == 2 * MS


def test_a_flow_that_comes_by_a_long_way_is_not_taken_where_a_short_one_is_asked_for() -> None:
    net = Net({**DIAMOND, ("d", "e"): 1}, capacity=AMOUNT)
    net.ask("d", "1", demand("other"))
    net.settle()
    net.ask("d", "2", demand("f"))  # over c: 4 ms
    net.settle()
    net.ask("e", "3", demand("f", latency_ms=4))
    net.settle()

    assert net.answers["2"].latency_ns == 4 * MS
    assert [one.reason for one in net.answers["3"].obstacles if one.link == ("d", "e")] == [DETOUR]

    net.ask("e", "4", demand("f"))
    net.settle()
    assert net.answers["4"].latency_ns == 5 * MS, "without a limit a detour is better than nothing"


def test_more_of_a_flow_is_reserved_up_to_where_there_is_enough() -> None:
    net = Net({**LINE, ("c", "e"): 1})
    net.ask("d", "1", demand(amount=10))
    net.settle()
    net.ask("e", "2", demand(amount=30))
    net.settle()
    net.ask("d", "3", demand(amount=20))
    net.settle()

    assert net.reserved() == {("a", "b"): 30, ("b", "c"): 30, ("c", "d"): 20, ("c", "e"): 30}
    net.ask("d", "4", demand(amount=81))
    net.settle()
    assert not net.answers["4"].is_granted
    assert net.reserved() == {("a", "b"): 30, ("b", "c"): 30, ("c", "d"): 20, ("c", "e"): 30}


@pytest.mark.parametrize("seed", range(20))
def test_of_requests_that_race_for_the_last_room_exactly_one_wins(seed: int) -> None:
    net = Net({("a", "m"): 1, ("m", "x"): 1, ("m", "y"): 1, ("m", "z"): 1}, capacity=AMOUNT)
    for number, name in enumerate("xyz"):
        net.ask(name, str(number), demand(f"f{number}"))
    net.settle(Random(seed))

    assert sum(one.is_granted for one in net.answers.values()) == 1
    assert net.reserved()[("a", "m")] == AMOUNT


@pytest.mark.parametrize("seed", range(20))
def test_of_a_flow_asked_for_at_once_everywhere_there_is_one_tree(seed: int) -> None:
    net = Net({("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1, ("d", "a"): 1, ("b", "d"): 1})
    for name in "bcd":
        net.ask(name, name, demand())
    net.settle(Random(seed))

    tree = net.tree("f")
    assert set(tree) == {"b", "c", "d"}
    assert net.reserved() == {(parent, name): AMOUNT for name, parent in tree.items()}


def test_a_failed_link_ends_what_came_over_it_and_the_next_request_goes_round() -> None:
    net = Net({**DIAMOND, ("d", "e"): 1})
    net.ask("e", "1", demand())
    net.settle()
    net.fail("b", "d")
    net.settle()

    assert net.brokers["e"].lost == ["1"]
    assert net.reserved() == {}
    net.ask("e", "2", demand())
    net.settle()
    assert net.tree("f") == {"c": "a", "d": "c", "e": "d"}


def test_a_link_that_fails_while_it_is_asked_for_is_gone_round() -> None:
    net = Net({**DIAMOND, ("d", "e"): 1})
    net.ask("e", "1", demand())
    net.step(Random(0))  # at d, which has passed it on to b
    net.fail("b", "d")
    net.settle()

    assert net.answers["1"] == Resolution("1", True, 5 * MS, (), 2)
    assert set(net.reserved()) == {("a", "c"), ("c", "d"), ("d", "e")}
    assert not any(one.reason == DOWN for one in net.answers["1"].obstacles)


def test_what_is_held_expires_and_a_commit_that_comes_later_is_sent_back() -> None:
    net = Net(LINE, capacity=AMOUNT)
    net.ask("c", "1", demand())
    net.step(Random(0))  # held by b for c
    b = net.brokers["b"]
    b.expire(HOLD_NS)
    net.brokers["b"].receive("a", Commit("1.1", "f", MS))
    net._collect("b")

    assert [type(message).__name__ for message in net.wires[("b", "a")]] == ["Hold", "Prune"]
    assert net.reserved() == {}


def test_a_cancelled_search_leaves_nothing_behind() -> None:
    for steps in range(7):
        net = Net(LINE)
        net.ask("d", "1", demand())
        for _ in range(steps):
            net.step(Random(0))
        net.cancel("d", "1", "f")
        net.settle()
        assert net.reserved() == {}, steps


names = st.sampled_from("abcdef")
links = st.dictionaries(
    st.tuples(names, names).filter(lambda ends: ends[0] < ends[1]), st.integers(1, 4), min_size=4
)
actions = st.lists(
    st.tuples(st.sampled_from(("ask", "ask", "ask", "cancel", "step", "fail")), names, st.integers(0, 11)),
    max_size=30,
)


@given(links, actions, st.integers(0, 1_000_000), st.integers(1, 3))
def test_at_rest_what_is_reserved_is_what_lives(
    joined: dict[tuple[str, str], int],
    wanted: list[tuple[str, str, int]],
    seed: int,
    room: int,
) -> None:
    net = Net(joined, capacity=room * AMOUNT)
    random = Random(seed)
    asked: dict[str, tuple[str, str]] = {}  # by request: broker and flow
    used_names: list[str] = []
    for what, name, number in wanted:
        if name not in net.brokers:
            continue
        if what == "ask":
            request, roots = f"r{len(used_names)}", net.map.brokers()
            used_names.append(request)
            root = roots[number % len(roots)]
            flow = f"{root}{number % 3}"
            asked[request] = (name, flow)
            net.ask(name, request, Demand(flow, root, AMOUNT))
        elif what == "cancel" and asked:
            request = sorted(asked)[number % len(asked)]
            name, flow = asked.pop(request)
            net.cancel(name, request, flow)
        elif what == "fail" and net.map.links():
            net.fail(*net.map.links()[number % len(net.map.links())])
        else:
            net.step(random)
    net.settle(random)

    lost = {request for broker in net.brokers.values() for request in broker.lost}
    living = {
        ends for request, ends in asked.items() if net.answers[request].is_granted and request not in lost
    }
    assert all(broker.is_quiet() for broker in net.brokers.values())
    reserved: dict[tuple[str, str], int] = {}
    for flow in {flow for _, flow in living}:
        tree = net.tree(flow)
        needed = {name for name, one in living if one == flow}
        for name in needed:
            while name != flow[0]:  # every one is joined with the publisher's broker
                name = tree[name]
        assert set(tree) - set(tree.values()) <= needed, (
            "nobody has a flow that he neither wants nor passes on"
        )
        for name, parent in tree.items():
            reserved[(parent, name)] = reserved.get((parent, name), 0) + AMOUNT
    assert net.reserved() == reserved
    assert all(amount <= room * AMOUNT for amount in reserved.values())


@given(links, st.lists(st.tuples(names, names), max_size=25), st.integers(1, 2))
def test_one_after_another_is_refused_only_where_no_way_has_room(
    joined: dict[tuple[str, str], int], wanted: list[tuple[str, str]], room: int
) -> None:
    net = Net(joined, capacity=room * AMOUNT)
    for number, (name, root) in enumerate(wanted):
        if not {name, root} <= set(net.brokers) or name == root:
            continue
        flow = f"f{number}"
        full = frozenset(ends for ends, amount in net.reserved().items() if amount == room * AMOUNT)
        net.ask(name, flow, demand(flow, root))
        net.settle()
        answer = net.answers[flow]
        path = net.map.path(root, name, full)
        assert answer.is_granted == bool(path) or answer.tries == TRIES_MAX
        if answer.is_granted:
            tree = net.tree(flow)
            assert [tree[one] for one in path[1:]] == path[:-1], "the best of the ways with room"
