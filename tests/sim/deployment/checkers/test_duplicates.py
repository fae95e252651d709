"""The checker of duplicates notices a QoS 2 message that came twice, and excuses what is not promised."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.deployment.plans import calm, judge

from timebound.sim.deployment.checkers.duplicates import Duplicates
from timebound.sim.deployment.deployment import Deployment


def with_duplicate(qos: int) -> Deployment:
    deployment = calm(Duplicates())
    assert judge(deployment, Duplicates()) == []
    [first, *_] = [one for one in deployment.history.arrivals if one.qos == qos]
    deployment.history.arrivals.append(replace(first))
    return deployment


def test_only_qos_2_must_not_come_twice() -> None:
    assert judge(with_duplicate(1), Duplicates()) == []
    assert judge(with_duplicate(2), Duplicates()) == ["s got QoS 2 message 3 2 times"]


def test_packet_that_is_told_apart_by_its_id_is_none() -> None:
    deployment = with_duplicate(2)

    deployment.history.arrivals[-1].is_new = False

    assert judge(deployment, Duplicates()) == []


def test_replay_of_a_retained_message_is_none() -> None:
    deployment = with_duplicate(2)
    deployment.history.messages[3].retain = True
    assert judge(deployment, Duplicates())

    deployment.history.subscriptions[0].granted_ns = deployment.history.messages[3].sent_ns

    assert judge(deployment, Duplicates()) == []


def test_restart_excuses_messages_of_other_brokers_alone() -> None:
    deployment = with_duplicate(2)
    sent = deployment.history.messages[3]
    deployment.history.crashes.append((sent.sent_ns + 1, "n1"))
    assert judge(deployment, Duplicates())

    sent.taken = [("n2", 1, sent.sent_ns)]

    assert judge(deployment, Duplicates()) == []


def test_group_and_timer_have_copies_of_their_own() -> None:
    deployment = with_duplicate(2)

    deployment.history.subscriptions[0].terms["every"] = "5s"

    assert judge(deployment, Duplicates()) == []
