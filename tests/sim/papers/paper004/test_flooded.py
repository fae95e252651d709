"""FNS and FR: the best path with room, and what looking for it costs."""

from __future__ import annotations

import pytest

from timebound.sim.papers.paper004.finder import Attempt, PathRequest
from timebound.sim.papers.paper004.flooded import FloodedRequests, FullState
from timebound.sim.papers.paper004.network import SLOTS, STUB, Network
from timebound.sim.papers.paper004.readings import Assumptions, assumptions


def diamond() -> Network:
    network = Network()
    for (one, other), latency_ns in {("a", "b"): 1, ("b", "d"): 1, ("a", "c"): 2, ("c", "d"): 2}.items():
        for link in ((one, other), (other, one)):
            network.map.set_link(*link, latency_ns)
            network.kinds[link] = STUB
    return network


def request(number: int, subscriber: str = "d", flow: str = "") -> PathRequest:
    return PathRequest(number, subscriber, "a", "t", flow or f"f{number}")


def test_the_best_path_is_taken_until_it_is_full_and_then_the_next() -> None:
    finder = FullState(diamond(), Assumptions())

    outcomes = [finder.ask(request(number)) for number in range(2 * SLOTS + 1)]

    assert outcomes == [Attempt(True, 2)] * SLOTS + [Attempt(True, 4)] * SLOTS + [Attempt(False)]
    assert finder.utilisation() == 0.5, "all links away from the publisher, none back"
    finder.end(request(0))
    assert finder.ask(request(99)) == Attempt(True, 2)


def test_a_flow_takes_a_link_once() -> None:
    finder = FullState(diamond(), Assumptions())

    assert finder.ask(request(1, "b", "t")).is_accepted
    assert finder.ask(request(2, "d", "t")) == Attempt(True, 2)
    assert finder.ask(request(3, "d", "t")) == Attempt(True, 2)
    assert finder.load.used(("a", "b")) == finder.load.used(("b", "d")) == 1


@pytest.mark.parametrize(
    ("reading", "messages"),
    [
        ("literal", 2 + 2 * 5),  # back along the path; a flood of 8 - 4 + 1 for each link
        ("floods-half", 2),
        ("floods-full", 2),
    ],
)
def test_changes_are_flooded_as_it_is_read(reading: str, messages: int) -> None:
    finder = FullState(diamond(), assumptions(reading))
    finder.ask(request(1))
    assert finder.messages == messages

    for number in range(2, SLOTS + 1):
        finder.ask(request(number))
    floods = {"literal": 2 * SLOTS, "floods-half": 4, "floods-full": 2}[reading]
    assert finder.messages == 2 * SLOTS + 5 * floods


@pytest.mark.parametrize(("reading", "cost"), [("literal", 8), ("fr-pruned", 5)])
def test_every_request_is_flooded_also_a_refused_one(reading: str, cost: int) -> None:
    finder = FloodedRequests(diamond(), assumptions(reading))

    assert finder.ask(request(1)) == Attempt(True, 2)
    assert finder.messages == cost + 4, "the answer and the reservation pass two links each"
    for number in range(2, 2 * SLOTS + 1):
        finder.ask(request(number))
    before = finder.messages
    assert not finder.ask(request(99)).is_accepted
    assert finder.messages - before == cost
