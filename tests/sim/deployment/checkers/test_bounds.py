"""The checker of delay bounds notices a broker that is slower than its promises count with."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.deployment.plans import ONE, PUBLISHER, SUBSCRIBER, act, plan, publish

from timebound.config.input import InputConfig
from timebound.sim.deployment.checkers.bounds import Bounds
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.script import Plan
from timebound.sim.deployment.timers import Call
from timebound.units import SECOND

INPUT = InputConfig(turn_s=0.01, quantum_time_s=0.002, stall_allowance_s=0.001)


def flow_in_a_flood() -> Plan:
    """A flow of four messages, each of which meets a flood of another client."""
    terms = {"period": "1s", "size": "100"}
    advertised = act(1, "request", "p", number=99, topic="$timebound/advertise/a/x", terms=terms)
    flow = [publish(2 + number, number) for number in range(1, 5)]
    floods = [publish(1.95 + place // 60, 100 + place, who="s", topic="a/y") for place in range(300)]
    configs = (replace(ONE[0], input=INPUT),)
    return plan(advertised, *flow, *floods, clients=(PUBLISHER, SUBSCRIBER), configs=configs)


def test_flow_keeps_its_bound_in_a_flood() -> None:
    deployment = Deployment(flow_in_a_flood(), [Bounds()])

    assert deployment.run() == []
    assert deployment.history.counts["message with a delay bound"] == 4


def test_machine_that_is_slower_than_promised_is_noticed() -> None:
    deployment = Deployment(flow_in_a_flood(), [Bounds()])
    node = deployment.nodes["n1"]

    def slow_down() -> None:
        node.intake.quantum_ns *= 30  # the bounds still count with the configured time

    deployment.kernel.schedule(3 * SECOND // 2, Call(slow_down))
    failures = deployment.run()

    assert {failure.checker for failure in failures} == {"bounds"}
    assert failures[0].text.startswith("message 1 of p on 'a/x' waited ")


def test_excess_has_no_bound() -> None:
    terms = {"period": "10s", "size": "100"}
    advertised = act(1, "request", "p", number=99, topic="$timebound/advertise/a/x", terms=terms)
    excess = [publish(2 + number / 10, number) for number in range(1, 5)]
    deployment = Deployment(plan(advertised, *excess, configs=(replace(ONE[0], input=INPUT),)), [Bounds()])

    assert deployment.run() == []
    assert deployment.history.counts["message with a delay bound"] == 1
    assert deployment.history.counts["policed excess lowered"] == 3
