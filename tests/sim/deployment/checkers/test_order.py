"""The checker of order notices a message that overtook another of its flow."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.deployment.plans import (
    FAR,
    LINK,
    PUBLISHER,
    TWO,
    calm,
    judge,
    numbers,
    plan,
    publish,
    run,
    subscribe,
)

from timebound.config.mesh import NeighbourConfig
from timebound.config.values import Config
from timebound.sim.deployment.checkers.order import Order
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.script import LinkPlace, Plan

IN_ORDER = (
    Config(node_name="n1", neighbours=(NeighbourConfig(name="n2", host="n2", strategy="fifo"),)),
    Config(node_name="n2", neighbours=(NeighbourConfig(name="n1", strategy="fifo"),)),
)


def swapped() -> Deployment:
    """Messages 2 and 5, both of QoS 1, arrived the other way round."""
    deployment = calm(Order())
    assert judge(deployment, Order()) == []
    arrivals = deployment.history.arrivals
    arrivals[1], arrivals[4] = arrivals[4], arrivals[1]
    return deployment


def test_swapped_messages_of_one_flow_are_noticed() -> None:
    assert judge(swapped(), Order()) == ["s got 5 before 2 on 'a/x'"]


def test_messages_with_other_limits_may_overtake() -> None:
    deployment = swapped()

    deployment.history.messages[5].timeout_ns = 10**9

    assert judge(deployment, Order()) == []


def test_message_that_was_sent_again_may_come_later() -> None:
    deployment = swapped()

    deployment.history.messages[2].is_resent = True

    assert judge(deployment, Order()) == []


def test_limits_are_those_of_all_subscriptions_that_select_a_message() -> None:
    for terms in ({"deadline": "1s"}, {"ordered": "true"}):
        deployment = swapped()
        [asked] = [one for one in deployment.history.subscriptions if one.client == "s"]
        other = replace(asked, terms={**terms, "where": "level > 50"})
        deployment.history.subscriptions.append(other)
        assert judge(deployment, Order()) == ["s got 5 before 2 on 'a/x'"], terms

        deployment.history.messages[5].level = 60

        assert judge(deployment, Order()) == [], terms


def test_subscription_that_began_on_the_way_of_a_message_leaves_its_order_open() -> None:
    deployment = swapped()
    [asked] = [one for one in deployment.history.subscriptions if one.client == "s"]
    sent_ns = deployment.history.messages[2].sent_ns
    later = replace(asked, terms={"name": "hot"}, asked_ns=sent_ns - 1, granted_ns=sent_ns + 1)

    deployment.history.subscriptions.append(later)

    assert judge(deployment, Order()) == []


def test_between_brokers_order_is_promised_on_one_path_without_faults() -> None:
    deployment = swapped()
    made = deployment.plan
    for sent in deployment.history.messages.values():
        sent.taken = [("n2", 1, sent.sent_ns)]
    deployment.history.faults.clear()

    deployment.plan = Plan(made.seed, IN_ORDER, LINK, made.clients, made.actions)
    assert judge(deployment, Order()) == ["s got 5 before 2 on 'a/x'"]
    deployment.plan = Plan(made.seed, IN_ORDER, (*LINK, *LINK), made.clients, made.actions)
    assert judge(deployment, Order()) == []
    deployment.plan = Plan(made.seed, IN_ORDER, LINK, made.clients, made.actions)
    deployment.history.faults.append(deployment.history.messages[5].sent_ns)
    assert judge(deployment, Order()) == []


def over_slow_link(configs: tuple[Config, ...]) -> Deployment:
    """Long and short messages in turn, faster than a link between two brokers takes them."""
    messages = [
        publish(3 + number / 100, number + 1, qos=1, size=3_000 if number % 2 else 100)
        for number in range(12)
    ]
    slow = (LinkPlace("n1", "n2", rate_bytes_per_s=5_000),)
    return run(plan(subscribe(1, "a/#"), *messages, clients=(PUBLISHER, FAR), configs=configs, links=slow))


def test_link_in_order_of_arrival_keeps_the_order_of_a_flow() -> None:
    deployment = over_slow_link(IN_ORDER)

    assert numbers(deployment) == list(range(1, 13))
    assert not deployment.failures


def test_link_by_worth_keeps_the_order_of_a_flow() -> None:
    assert numbers(over_slow_link(TWO)) == list(range(1, 13))
