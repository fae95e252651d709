"""The checker of retained messages compares what brokers retain with what was published last."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.deployment.plans import FAR, LINK, PUBLISHER, TWO, act, judge, plan, publish, run, subscribe

from timebound.sim.deployment.checkers.retained import Retained
from timebound.sim.deployment.deployment import Deployment

LAST = (publish(2, 1, retain=True, qos=1), publish(3, 2, retain=True, qos=1))


def checked(deployment: Deployment) -> Retained:
    [checker] = deployment._checkers
    assert isinstance(checker, Retained)
    return checker


def test_last_message_of_a_topic_is_retained() -> None:
    deployment = run(plan(*LAST), Retained())
    assert judge(deployment, checked(deployment)) == []

    probe = next(one for one in deployment.history.arrivals if one.retain)
    probe.number = 1

    assert judge(deployment, checked(deployment)) == [
        "n1 retains 1 on 'a/x', expected one of [2] (0 = nothing)"
    ]


def test_empty_message_ends_it() -> None:
    deployment = run(plan(*LAST, publish(4, 3, retain=True, is_empty=True)), Retained())

    assert judge(deployment, checked(deployment)) == []
    assert not [one for one in deployment.history.arrivals if one.retain]


def test_crash_may_bring_back_what_was_before_an_unacknowledged_one() -> None:
    crash = (act(3.001, "crash", "n1"), act(4, "restart", "n1"))
    lost = (publish(2, 1, retain=True, qos=1), publish(3, 2, retain=True))

    deployment = run(plan(*lost, *crash, commit_delay_ns=900_000_000), Retained())

    [probe] = [one for one in deployment.history.arrivals if one.retain]
    assert probe.number == 1
    assert judge(deployment, checked(deployment)) == []


def test_other_brokers_retain_what_their_clients_wanted() -> None:
    deployment = run(
        plan(subscribe(1, "a/#"), *LAST, clients=(PUBLISHER, FAR), configs=TWO, links=LINK), Retained()
    )

    found = {(one.node, one.number) for one in deployment.history.arrivals if one.retain}
    assert found == {("n1", 2), ("n2", 2)}
    assert judge(deployment, checked(deployment)) == []


def test_disk_and_memory_must_agree() -> None:
    deployment = run(plan(*LAST), Retained())

    deployment.nodes["n1"].disk.tables.retained["a/x"].payload = b"other"

    assert judge(deployment, checked(deployment)) == ["n1: disk and memory differ on 'a/x'"]


def test_run_that_is_not_settled_asks_no_broker_what_it_retains() -> None:
    deployment = run(replace(plan(*LAST), is_settled=False), Retained())

    assert judge(deployment, checked(deployment)) == []
    deployment.nodes["n1"].disk.tables.retained["a/x"].payload = b"other"
    assert judge(deployment, checked(deployment)) == ["n1: disk and memory differ on 'a/x'"]
