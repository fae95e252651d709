"""The checker of delay bounds notices a broker that is slower than its promises count with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.sim.deployment.plans import ONE, PUBLISHER, SUBSCRIBER, act, plan, publish

from timebound.config.input import InputConfig
from timebound.core.values.message import Message
from timebound.sim.deployment.checkers.bounds import Bounds
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.node import SimNode
from timebound.sim.deployment.script import Action, ClientSetting, Plan
from timebound.sim.deployment.timers import Call
from timebound.units import MILLISECOND, SECOND

TURN_NS = 10 * MILLISECOND
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


class Watched(Bounds):
    """Keeps what each message of the flow was promised, and how long it waited."""

    def __init__(self) -> None:
        self.flow: list[tuple[int, int]] = []

    def served(
        self, deployment: Deployment, node: SimNode, message: Message, wait_ns: int, is_covered: bool
    ) -> None:
        super().served(deployment, node, message, wait_ns, is_covered)
        if message.publisher == "p" and is_covered:
            self.flow.append((message.promised_ns, wait_ns))


def beside(others: Callable[[int], list[Action]]) -> list[tuple[int, int]]:
    """Promises and waits of a flow of 40 messages, beside what three others do in 5 s; `others` by number."""
    terms = {"period": "100ms", "size": "100"}
    advertised = act(1, "request", "p", number=99, topic="$timebound/advertise/a/x", terms=terms)
    flow = [publish(2 + number / 10, number) for number in range(40)]
    clients = (PUBLISHER, *(ClientSetting(f"o{number}", "n1") for number in range(3)))
    actions = [action for number in range(3) for action in others(number)]
    entrance = replace(INPUT, stall_allowance_s=0.01, advertisements_per_second_max=1_000)
    configs = (replace(ONE[0], input=entrance),)
    watched = Watched()
    deployment = Deployment(plan(advertised, *flow, *actions, clients=clients, configs=configs), [watched])

    assert deployment.run() == []
    return watched.flow


def advertising_in_a_loop(number: int) -> list[Action]:
    """A client that asks 50 times a second for a flow of another rate, also too large ones."""
    return [
        act(
            1.5 + place / 50,
            "request",
            f"o{number}",
            number=10_000 + 1_000 * number + place,
            topic=f"$timebound/advertise/b/{number}",
            terms={"rate": str((1, 7, 10_000)[place % 3]), "size": "100"},
        )
        for place in range(250)
    ]


def test_advertising_in_a_loop_leaves_bounds_and_waits_of_others_as_they_are() -> None:
    calm = beside(lambda number: [])
    asked = beside(lambda number: advertising_in_a_loop(number)[:1])

    found = beside(advertising_in_a_loop)

    assert len(found) == len(calm) == 40
    # Three clients with a flow each lengthen a bound once, however often they ask.
    assert max(promise for promise, _ in found) == max(promise for promise, _ in asked)
    assert max(wait for _, wait in found) <= max(wait for _, wait in calm) + TURN_NS


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
