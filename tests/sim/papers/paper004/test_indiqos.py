"""IndiQoS: ways over rendezvous brokers, interception, replicas; all is given back in the end."""

from __future__ import annotations

from random import Random

import pytest

from timebound.sim.papers.paper004.finder import PathRequest
from timebound.sim.papers.paper004.indiqos import IndiQos
from timebound.sim.papers.paper004.network import Network, make_network
from timebound.sim.papers.paper004.readings import Assumptions, assumptions


@pytest.fixture(scope="module")
def network() -> Network:
    return make_network("single", Assumptions(), 2)


def requests(network: Network, count: int) -> list[PathRequest]:
    random = Random(5)
    names = network.brokers()
    return [
        PathRequest(number, random.choice(names), names[0], "t", f"t{number % 3}") for number in range(count)
    ]


@pytest.mark.parametrize("reading", ["literal", "links-shared", "dht-direct"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_what_was_accepted_is_reserved_and_given_back(network: Network, reading: str, replicas: int) -> None:
    finder = IndiQos(network, assumptions(reading), replicas)
    accepted = [one for one in requests(network, 60) if finder.ask(one).is_accepted]

    assert 10 < len(accepted) <= 60
    assert finder.utilisation() > 0
    Random(1).shuffle(accepted)
    for one in accepted:
        finder.end(one)
    assert finder.utilisation() == 0


def test_a_latency_is_at_least_that_of_the_best_path(network: Network) -> None:
    finder = IndiQos(network, Assumptions(), 1)
    for one in requests(network, 60):
        outcome = finder.ask(one)
        if outcome.is_accepted:
            assert outcome.latency_ns >= network.map.distance_ns(one.publisher, one.subscriber)


def test_who_asks_where_the_flow_is_already_costs_no_link(network: Network) -> None:
    finder = IndiQos(network, Assumptions(), 1)
    first, second = (
        PathRequest(number, network.brokers()[77], network.brokers()[0], "t", "t") for number in (1, 2)
    )
    outcome = finder.ask(first)
    used, before = finder.utilisation(), finder.messages

    assert finder.ask(second) == outcome
    assert (finder.utilisation(), finder.messages) == (used, before)


def test_more_replicas_answer_sooner_and_cost_more(network: Network) -> None:
    means = []
    for replicas in (1, 4):
        finder = IndiQos(network, Assumptions(), replicas)
        outcomes = [finder.ask(one) for one in requests(network, 40)]
        latencies = [one.latency_ns for one in outcomes if one.is_accepted]
        means.append((sum(latencies) / len(latencies), finder.messages))

    assert means[1][0] < means[0][0]
    assert means[1][1] > 2 * means[0][1]
