"""Small plans with known outcomes, and their runs."""

from __future__ import annotations

from typing import Any

from timebound.config.mesh import NeighbourConfig
from timebound.config.values import Config
from timebound.sim.deployment.checkers.registry import all_checkers
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.script import Action, ClientSetting, LinkPlace, Plan
from timebound.units import MILLISECOND, SECOND

ONE = (Config(node_name="n1"),)
TWO = (
    Config(node_name="n1", neighbours=(NeighbourConfig(name="n2", host="n2"),)),
    Config(node_name="n2", neighbours=(NeighbourConfig(name="n1"),)),
)
LINK = (LinkPlace("n1", "n2"),)
PUBLISHER = ClientSetting("p", "n1")
SUBSCRIBER = ClientSetting("s", "n1")
FAR = ClientSetting("s", "n2")


def act(time_s: float, kind: str, who: str, **what: Any) -> Action:
    return Action(int(time_s * 1_000) * MILLISECOND, kind, who, what)


def publish(time_s: float, number: int, *, who: str = "p", topic: str = "a/x", **what: Any) -> Action:
    return act(time_s, "publish", who, number=number, topic=topic, **what)


def subscribe(time_s: float, topic_filter: str, qos: int = 2, who: str = "s", **terms: str) -> Action:
    return act(time_s, "subscribe", who, entries=[{"topic_filter": topic_filter, "qos": qos}], terms=terms)


def plan(
    *actions: Action,
    clients: tuple[ClientSetting, ...] = (PUBLISHER, SUBSCRIBER),
    configs: tuple[Config, ...] = ONE,
    links: tuple[LinkPlace, ...] = (),
    commit_delay_ns: int = 5 * MILLISECOND,
) -> Plan:
    """A plan in which all clients connect at once."""
    connecting = [act(0, "connect", client.name) for client in clients]
    return Plan(7, configs, links, clients, (*connecting, *actions), commit_delay_ns, 30 * SECOND)


def run(wanted: Plan, *checkers: Checker) -> Deployment:
    """Run a plan with all checkers, or only these; nothing unexpected may be raised."""
    deployment = Deployment(wanted, checkers or all_checkers())
    deployment.run()
    if deployment.error is not None:
        raise deployment.error
    return deployment


def calm(*checkers: Checker) -> Deployment:
    """Six messages of one publisher that all arrive, two with each QoS."""
    messages = [publish(2 + number / 10, number + 1, qos=number % 3) for number in range(6)]
    deployment = run(plan(subscribe(1, "a/#"), *messages), *checkers)
    assert numbers(deployment) == [1, 2, 3, 4, 5, 6]
    assert not deployment.failures, deployment.failures
    return deployment


def numbers(deployment: Deployment, client: str = "s") -> list[int]:
    """The messages that a client got, in order."""
    return [one.number for one in deployment.history.arrivals if one.client == client]


def judge(deployment: Deployment, checker: Checker) -> list[str]:
    """What a checker finds at the end of a run that may have been changed since."""
    deployment.failures.clear()
    checker.finished(deployment)
    return [failure.text for failure in deployment.failures]
