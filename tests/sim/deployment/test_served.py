"""What a simulated broker says to a client, packet by packet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from timebound.config.limits import Limits
from timebound.config.security import SecurityConfig
from timebound.config.values import Config
from timebound.core.values.access import ALL, ANYONE, AccessRule
from timebound.core.values.access import SUBSCRIBE as SUBSCRIBING
from timebound.sim.deployment.history import History
from timebound.sim.deployment.served import REPLAY_STEPS

from .plans import PUBLISHER, SUBSCRIBER, act, numbers, plan, publish, run, subscribe


def granted(history: History) -> list[int]:
    return [one.code for one in history.subscriptions if one.client == "s"]


def test_filters_of_a_subscribe_are_granted_or_refused_one_by_one() -> None:
    entries = [{"topic_filter": "a/#", "qos": 1}, {"topic_filter": "a/#/b"}, {"topic_filter": "b", "qos": 2}]

    deployment = run(plan(act(1, "subscribe", "s", entries=entries, terms={})))

    assert granted(deployment.history) == [1, 0x8F, 2]


def test_terms_that_cannot_be_read_and_limits_refuse() -> None:
    configs = (Config(node_name="n1", limits=Limits(subscriptions_per_client_max=1)),)

    deployment = run(
        plan(
            subscribe(1, "a", deadline="soon"),
            subscribe(2, "a"),
            subscribe(3, "b"),
            configs=configs,
        )
    )

    assert granted(deployment.history) == [0x83, 2, 0x97]


def test_access_rules_count_for_users() -> None:
    rules = (AccessRule("guest", SUBSCRIBING, "a/#", False), AccessRule(ANYONE, ALL, "#", True))
    security = SecurityConfig(password_file=Path("users"), rules=rules)
    configs = (Config(node_name="n1", security=security),)

    deployment = run(
        plan(
            subscribe(1, "a/x"),
            configs=configs,
            clients=(PUBLISHER, replace(SUBSCRIBER, user="guest")),
        )
    )

    assert granted(deployment.history) == [0x87]


def test_retained_messages_are_replayed_over_several_turns() -> None:
    assert REPLAY_STEPS < 30
    messages = [publish(1, number, topic=f"a/{number}", retain=True) for number in range(1, 31)]

    deployment = run(plan(*messages, subscribe(3, "a/#"), publish(3.001, 40, topic="a/1")))

    assert sorted(numbers(deployment)) == [*range(1, 31), 40]
    assert deployment.history.counts["sliced replay"] == 2  # the probe's, too
    assert not deployment.failures


def test_unsubscribe_ends_deliveries() -> None:
    deployment = run(
        plan(
            subscribe(1, "a/#"),
            publish(2, 1),
            act(3, "unsubscribe", "s", topic_filter="a/#", name=None),
            publish(4, 2),
        )
    )

    assert numbers(deployment) == [1]


def test_packet_that_is_too_large_for_the_receiver_is_dropped() -> None:
    small = replace(SUBSCRIBER, packet_size_max=200)

    deployment = run(
        plan(
            subscribe(1, "a/#"),
            publish(2, 1, qos=1, size=400),
            publish(3, 2, qos=1),
            clients=(PUBLISHER, small),
        )
    )

    assert numbers(deployment) == [2]
    assert deployment.history.counts["dropped: too_large"] == 1
    assert not deployment.failures


def test_normal_disconnect_removes_the_will_and_another_code_publishes_it() -> None:
    will = {"number": 90, "topic": "a/will"}
    leaving = replace(PUBLISHER, name="w", will=will)

    for code, expected in ((0, []), (4, [90])):
        deployment = run(
            plan(
                subscribe(1, "a/#"),
                act(2, "disconnect", "w", code=code),
                clients=(PUBLISHER, SUBSCRIBER, leaving),
            )
        )
        assert numbers(deployment) == expected


def test_mqtt_3_clients_are_served_too() -> None:
    old = replace(SUBSCRIBER, version=4)

    deployment = run(plan(subscribe(1, "a/#"), publish(2, 1, qos=2), clients=(PUBLISHER, old)))

    assert numbers(deployment) == [1]
    assert not deployment.failures
