"""Copies from neighbours wait in the input queues beside the messages of clients."""

from __future__ import annotations

from dataclasses import replace

from timebound.config.input import InputConfig
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.inlet import NEIGHBOUR_PREFIX

from .plans import FAR, LINK, PUBLISHER, TWO, numbers, plan, publish, run, subscribe

NEAR = replace(PUBLISHER, name="q", node="n2")
SLOW = InputConfig(turn_s=0.1, quantum_time_s=0.01, queue_quanta_max=16)


def flooded() -> Deployment:
    """A hundred copies from a neighbour, and then a message of a client of the broker itself."""
    messages = [publish(4, number) for number in range(1, 101)]
    own = publish(4.5, 200, who="q", topic="a/y")
    configs = (TWO[0], replace(TWO[1], input=SLOW))
    clients = (PUBLISHER, NEAR, FAR)
    return run(plan(subscribe(1, "a/#"), *messages, own, clients=clients, configs=configs, links=LINK))


def test_flood_over_a_link_does_not_hold_up_clients() -> None:
    order = numbers(flooded())

    assert order.index(200) < 70  # all of a turn, and every second quantum
    assert [number for number in order if number != 200] == list(range(1, 101))


def test_link_is_left_unread_while_copies_wait_outside_the_queues() -> None:
    deployment = flooded()

    assert deployment.history.counts["neighbour slowed"] >= 1
    assert not deployment.failures


def test_neighbour_joins_and_leaves_the_entrance() -> None:
    deployment = flooded()
    node = deployment.nodes["n2"]

    assert NEIGHBOUR_PREFIX + "n1" in node.broker.entrance.publishers
    [end] = [one for one in node.connections.values() if getattr(one, "name", "") == "n1"]
    end.close(0, "the end")
    node.intake._free_ns = 0
    node.turn()
    assert NEIGHBOUR_PREFIX + "n1" not in node.broker.entrance.publishers
