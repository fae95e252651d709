"""Crankback in the experiment: brokers' own objects, with messages counted per link."""

from __future__ import annotations

from timebound.sim.papers.paper004.finder import Attempt, PathRequest
from timebound.sim.papers.paper004.flooded import FullState
from timebound.sim.papers.paper004.network import make_network
from timebound.sim.papers.paper004.probing import Crankback
from timebound.sim.papers.paper004.readings import Assumptions


def test_it_takes_the_best_path_gives_it_back_and_counts_every_message() -> None:
    network = make_network("single", Assumptions(), 1)
    finder = Crankback(network, Assumptions())
    names = network.brokers()
    request = PathRequest(1, names[200], names[3], "t", "t")
    hops = len(network.map.path(names[3], names[200])) - 1

    outcome = finder.ask(request)

    assert outcome == Attempt(True, network.map.distance_ns(names[3], names[200]))
    assert finder.utilisation() * len(network.kinds) * 8 == hops
    looked_up = finder.messages - 2 * hops
    assert looked_up % 2 == 0
    before = finder.messages
    finder.end(request)
    assert finder.messages - before == hops
    assert finder.utilisation() == 0

    finder.ask(PathRequest(2, names[200], names[3], "t", "t"))
    assert finder.messages == before + 3 * hops, "the publisher is known by now"


def test_it_accepts_what_full_knowledge_accepts_while_there_is_room() -> None:
    network = make_network("multi", Assumptions(), 2)
    names = network.brokers()
    ours, best = Crankback(network, Assumptions()), FullState(network, Assumptions())
    for number in range(100):
        request = PathRequest(number, names[(37 * number) % 252], names[number % 7], "t", f"f{number % 7}")
        found, expected = ours.ask(request), best.ask(request)
        assert found.is_accepted == expected.is_accepted
        assert found.latency_ns <= 1.2 * expected.latency_ns
