"""The checker of rights notices messages that the rules of their time forbid; a reload withdraws them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.sim.deployment.plans import ONE, act, judge, numbers, plan, publish, run, subscribe

from timebound.config.security import SecurityConfig
from timebound.core.values.access import ALL, ANYONE, SUBSCRIBE, AccessList, AccessRule
from timebound.records import Reason
from timebound.sim.deployment.checkers.rights import RightsKept, rules_at, user_of, was_forbidden
from timebound.sim.deployment.script import Action, ClientSetting

ALLOWED = AccessRule(ANYONE, ALL, "#", True)
FORBIDDING = (AccessRule("bert", SUBSCRIBE, "a/x", False), ALLOWED)
SECURED = (replace(ONE[0], security=SecurityConfig(password_file=Path("users"), rules=(ALLOWED,))),)
CLIENTS = (ClientSetting("p", "n1"), ClientSetting("s", "n1", user="bert"), ClientSetting("t", "n1"))
ASKED = (subscribe(1, "a/x"), subscribe(1, "a/y"), subscribe(1, "a/x", who="t"))


def reloading(*actions: Action) -> list[int]:
    """What s gets when it may no longer read a/x from 3 s on."""
    rules = act(3, "rules", "n1", rules=FORBIDDING)
    wanted = plan(*ASKED, rules, *actions, clients=CLIENTS, configs=SECURED)
    deployment = run(wanted)
    assert not deployment.failures, deployment.failures
    assert deployment.history.counts["subscription ended by new rules"] == 1
    return numbers(deployment)


def test_reload_ends_the_subscription_of_one_client_alone() -> None:
    assert reloading(publish(2, 1, qos=1), publish(4, 2, qos=1), publish(4, 3, topic="a/y", qos=1)) == [1, 3]


def test_waiting_copies_of_an_absent_client_are_dropped() -> None:
    away = (act(1.5, "disconnect", "s"), act(4, "connect", "s"))

    assert reloading(*away, publish(2, 1, qos=1), publish(2, 2, topic="a/y", qos=1)) == [2]


def test_rules_that_changed_while_a_broker_was_down_count_from_its_start() -> None:
    down = (act(2.5, "crash", "n1"), act(3.5, "restart", "n1"))
    wanted = plan(
        *ASKED,
        act(1.5, "disconnect", "s"),
        publish(2, 1, qos=1),
        *down,
        act(3, "rules", "n1", rules=FORBIDDING),
        act(5, "connect", "s"),
        clients=CLIENTS,
        configs=SECURED,
    )

    deployment = run(wanted)

    assert not deployment.failures, deployment.failures
    assert (numbers(deployment), numbers(deployment, "t")) == ([], [1])
    assert deployment.history.counts[f"dropped: {Reason.NOT_AUTHORIZED.value}"] == 1


def test_arrival_that_the_rules_forbade_is_noticed() -> None:
    deployment = run(plan(*ASKED, publish(2, 1, qos=1), clients=CLIENTS, configs=SECURED), RightsKept())
    assert judge(deployment, RightsKept()) == []
    [(_, _, taken_ns)] = deployment.history.messages[1].taken
    deployment.history.rules.append((taken_ns + 1, "n1", AccessList(list(FORBIDDING))))
    assert judge(deployment, RightsKept()) == []  # it was on its way

    deployment.history.rules[0] = (taken_ns, "n1", AccessList(list(FORBIDDING)))

    assert judge(deployment, RightsKept()) == ["s (bert) got 1, but may not read 'a/x'"]
    assert user_of(deployment, "s") == "bert"
    assert was_forbidden(deployment, "n1", "s", "a/x", taken_ns)
    assert not was_forbidden(deployment, "n1", "s", "a/x", taken_ns + 1)
    assert not was_forbidden(deployment, "n1", "t", "a/x", 0)
    assert rules_at(deployment, "n1", 0).may_subscribe("bert", "s", "a/x")


def test_retained_message_may_be_replayed_once_the_rules_allow_it() -> None:
    secured = (replace(SECURED[0], security=replace(SECURED[0].security, rules=FORBIDDING)),)
    deployment = run(
        plan(
            publish(2, 1, qos=1, retain=True),
            act(3, "rules", "n1", rules=(ALLOWED,)),
            subscribe(4, "a/x"),
            clients=CLIENTS,
            configs=secured,
        ),
        RightsKept(),
    )

    assert numbers(deployment) == [1]
    assert judge(deployment, RightsKept()) == []
    deployment.history.rules.clear()
    assert judge(deployment, RightsKept()) == ["s (bert) got 1, but may not read 'a/x'"]
